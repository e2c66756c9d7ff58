"""Heartbeats of the members of share groups.

Once the records of one are committed, it has the share coordinator initialize the state of
partitions that the group has not read before; the answer does not wait for that, and a later
heartbeat assigns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.awaiting import drive
from tidelog.coordinators.groups.modern.membership import ModernMembership, group_of
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.requests import check

if TYPE_CHECKING:
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.modern.requests import Answer
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.share.requests import ShareHeartbeat
    from tidelog.coordinators.groups.share.state_changes import StateChanges

__all__ = ["ShareMembership"]


class ShareMembership(ModernMembership):
    """Members of the share groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, states: StateChanges) -> None:
        super().__init__(coordinator)
        self._states = states

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> Answer:
        """Handle ShareGroupHeartbeat; return once its records are committed. RefusedError if it is
        refused, or if the write has failed."""
        check(group_id, request)
        shard = self._shard_of(group_id)
        group = share_group(shard, group_id, request.epoch)
        now = self._coordinator.now()
        step = group.heartbeat(request, self._coordinator.topics, now)
        self._append(shard, group, step.records, now)
        group.begun(step.initialize, now)
        await self._committed(shard, step.records)
        if step.initialize:
            drive(self._states.initialize(group_id, step.initialize, step.state_epoch))
        return step.answer


def share_group(shard: GroupShard, group_id: str, epoch: int) -> ShareGroup:
    """Return the group of a heartbeat, a new one if it may begin one; RefusedError if it is of
    another type, even without members, as in Kafka."""
    return group_of(shard, group_id, epoch, ShareGroup, may_replace=False)
