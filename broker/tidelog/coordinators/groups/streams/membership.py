"""Heartbeats of the members of streams groups.

Once the records of one are committed, it has the missing internal topics created; the answer does
not wait for that, and later ones say why it failed. The coordinator itself makes the first
assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.membership import ModernMembership, group_of
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog.coordinators.groups.streams.requests import check
from tidelog.coordinators.groups.streams.topology import Status

if TYPE_CHECKING:
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.streams.group import StreamsStep
    from tidelog.coordinators.groups.streams.requests import StreamsAnswer, StreamsHeartbeat
    from tidelog.coordinators.groups.streams.topic_creation import TopicCreation

__all__ = ["StreamsMembership"]

_FAILURES_MAX = 3  # of topics, in one message


class StreamsMembership(ModernMembership):
    """Members of the streams groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, creation: TopicCreation) -> None:
        super().__init__(coordinator)
        self._creation = creation

    async def heartbeat(self, group_id: str, request: StreamsHeartbeat) -> StreamsAnswer:
        """Handle StreamsGroupHeartbeat; return once its records are committed. RefusedError if it
        is refused, or if the write has failed."""
        check(group_id, request)
        shard = self._shard_of(group_id)
        group = group_of(shard, group_id, request.epoch, StreamsGroup, may_replace=True)
        now = self._coordinator.now()
        step = group.heartbeat(request, self._coordinator.topics, now)
        self._append(shard, group, step.records, now)
        await self._committed(shard, step.records)
        return self._with_creation(step) if step.missing_topics else step.answer

    def _with_creation(self, step: StreamsStep) -> StreamsAnswer:
        """Have the missing topics created; return the answer with why it failed before."""
        answer = step.answer
        # A failed creation is tried again after two heartbeats, as Kafka's.
        retry_ms = 2 * answer.heartbeat_interval_ms
        self._creation.begin(step.missing_topics, retry_ms)
        failures = self._creation.failures(each.name for each in step.missing_topics)
        if not failures:
            return answer
        reasons = [f"{name} ({reason})" for name, reason in failures.items()]
        detail = ", ".join(reasons[:_FAILURES_MAX])
        if len(reasons) > _FAILURES_MAX:
            detail += f" and {len(reasons) - _FAILURES_MAX} more"
        return answer._replace(
            status=tuple(
                each._replace(detail=f"{each.detail}; Creation failed: {detail}.")
                if each.status is Status.MISSING_INTERNAL_TOPICS
                else each
                for each in answer.status
            )
        )
