"""Heartbeats of the members of share groups.

It passes a request, the topics and the time to the pure group, has the coordinator append and apply
the records, and answers once they are committed. Then it has the share coordinator initialize the
state of partitions that the group has not read before; the answer does not wait for that, and a
later heartbeat assigns them. It does not know the wire. The coordinator itself ends sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.awaiting import drive
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.requests import check
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.member import Now
    from tidelog.coordinators.groups.modern.requests import Answer
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.share.group import ShareStep
    from tidelog.coordinators.groups.share.requests import ShareHeartbeat
    from tidelog.coordinators.groups.share.state_changes import StateChanges

__all__ = ["ShareMembership"]


class ShareMembership:
    """Members of the share groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, states: StateChanges) -> None:
        self._coordinator = coordinator
        self._states = states

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> Answer:
        """Handle ShareGroupHeartbeat; return once its records are committed. RefusedError if it is
        refused, or if the write has failed."""
        coordinator = self._coordinator
        check(group_id, request)
        shard = coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            raise RefusedError(shard)
        group = share_group(shard, group_id, request.epoch)
        now = coordinator.now()
        step = group.heartbeat(request, coordinator.topics, now)
        self._append(shard, group, step, now)
        error = await coordinator.settled(shard, wrote=bool(step.records))
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
        if step.initialize:
            drive(self._states.initialize(group_id, step.initialize, step.state_epoch))
        return step.answer

    def _append(self, shard: GroupShard, group: ShareGroup, step: ShareStep, now: Now) -> None:
        coordinator = self._coordinator
        if step.records:
            error = coordinator.append_consumer(shard, group, step.records)
            if error is not ErrorCode.NONE:
                raise RefusedError(error)
            group.begun(step.initialize, now)
            return
        coordinator.watch_session(shard, group, now)


def share_group(shard: GroupShard, group_id: str, epoch: int) -> ShareGroup:
    """Return the group of a heartbeat, a new one if it may begin one; RefusedError if it is of
    another type, even without members, as in Kafka."""
    group = shard.groups.get(group_id)
    if isinstance(group, ShareGroup):
        return group
    if group is not None:
        message = f"Group {group_id} is not a share group."
    elif epoch == 0:
        return ShareGroup(group_id, shard.limits_of.share(group_id))
    else:
        message = f"{'Share group' if epoch > 0 else 'Group'} {group_id} not found."
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
