"""Heartbeats of the members of streams groups.

It passes a request, the topics and the time to the pure group, has the coordinator append and apply
the records, and answers once they are committed. Then it has the missing internal topics created;
the answer does not wait for that, and later ones say why it failed. It does not know the wire. The
coordinator itself ends sessions and makes the first assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.group import Group
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.group import StreamsGroup
from tidelog.coordinators.groups.streams.requests import check
from tidelog.coordinators.groups.streams.topology import Status
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.streams.group import StreamsStep
    from tidelog.coordinators.groups.streams.requests import StreamsAnswer, StreamsHeartbeat
    from tidelog.coordinators.groups.streams.topic_creation import TopicCreation

__all__ = ["StreamsMembership"]

_FAILURES_MAX = 3  # of topics, in one message


class StreamsMembership:
    """Members of the streams groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, creation: TopicCreation) -> None:
        self._coordinator = coordinator
        self._creation = creation

    async def heartbeat(self, group_id: str, request: StreamsHeartbeat) -> StreamsAnswer:
        """Handle StreamsGroupHeartbeat; return once its records are committed. RefusedError if it
        is refused, or if the write has failed."""
        coordinator = self._coordinator
        check(group_id, request)
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            raise RefusedError(shard)
        group = _group(shard, group_id, request.epoch)
        now = coordinator.now()
        step = group.heartbeat(request, coordinator.topics, now)
        if step.records:
            error = coordinator.append_consumer(shard, group, step.records)
            if error is not ErrorCode.NONE:
                raise RefusedError(error)
        else:
            coordinator.watch_session(shard, group, now)
        error = await coordinator.settled(shard, wrote=bool(step.records))
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
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


def _group(shard: GroupShard, group_id: str, epoch: int) -> StreamsGroup:
    """Return the group of a heartbeat, a new one if it may begin one, also in the place of an empty
    classic group; RefusedError if it is of another type."""
    group = shard.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        return group
    is_free = group is None or (isinstance(group, Group) and group.is_empty)
    if epoch == 0 and is_free:
        return StreamsGroup(group_id, shard.limits_of.streams(group_id))
    message = f"Group {group_id} is not a streams group."
    if group is None:
        message = f"{'Streams group' if epoch > 0 else 'Group'} {group_id} not found."
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
