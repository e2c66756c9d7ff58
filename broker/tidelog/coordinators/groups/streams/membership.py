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
from tidelog.coordinators.groups.streams.topology import GroupStatus, Status

if TYPE_CHECKING:
    from collections.abc import Callable

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

    async def heartbeat(
        self,
        group_id: str,
        request: StreamsHeartbeat,
        may_create: Callable[[str], bool] | None = None,
    ) -> StreamsAnswer:
        """Handle StreamsGroupHeartbeat; return once its records are committed. RefusedError if it
        is refused, or if the write has failed. `may_create` says which topics the member may have
        created; all of them without an authorizer."""
        check(group_id, request)
        shard = self._shard_of(group_id)
        group = group_of(shard, group_id, request.epoch, StreamsGroup, may_replace=True)
        now = self._coordinator.now()
        step = group.heartbeat(request, self._coordinator.topics, now)
        self._append(shard, group, step.records, now)
        await self._committed(shard, step.records)
        if not step.missing_topics:
            return step.answer
        names = [each.name for each in step.missing_topics]
        denied = [] if may_create is None else [name for name in names if not may_create(name)]
        if denied:  # then none is created, as in Kafka
            text = f"Unauthorized to CREATE on topics {', '.join(denied)}."
            return _with_detail(step.answer, text, is_new=True)
        return self._with_creation(step)

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
        return _with_detail(answer, f"Creation failed: {detail}.")


def _with_detail(answer: StreamsAnswer, detail: str, *, is_new: bool = False) -> StreamsAnswer:
    """Return the answer with more about missing internal topics; `is_new`: also where its status
    says nothing about them."""
    missing = Status.MISSING_INTERNAL_TOPICS
    if is_new and all(each.status is not missing for each in answer.status):
        return answer._replace(status=(*answer.status, GroupStatus(missing, detail)))
    return answer._replace(
        status=tuple(
            each._replace(detail=f"{each.detail}; {detail}") if each.status is missing else each
            for each in answer.status
        )
    )
