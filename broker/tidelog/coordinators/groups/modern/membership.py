"""What the handlers of heartbeats share: they find a group, append its records, await their commit.

A handler passes a request, the topics and the time to the pure group, has the coordinator append
and apply the records, and answers once they are committed. It does not know the wire. The
coordinator itself ends sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.coordinators.groups.classic.group import Group
from tidelog.coordinators.groups.modern.group import ModernGroup
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.kinds import MemberGroup
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.shard import GroupShard

    Settling = Coroutine[Any, Any, ErrorCode]
    """Work for `awaiting.drive`; its result is NONE once records are committed."""

__all__ = ["ModernMembership", "group_of"]

G = TypeVar("G", bound=ModernGroup[Any, Any, Any])


def group_of(shard: GroupShard, group_id: str, epoch: int, of: type[G], *, may_replace: bool) -> G:
    """Return the group of a heartbeat in this epoch, a new one if it may begin one: in epoch 0, and
    if `may_replace` also in the place of an empty classic group; RefusedError if it is of another
    type."""
    group = shard.groups.get(group_id)
    if isinstance(group, of):
        return group
    is_free = group is None or (may_replace and isinstance(group, Group) and group.is_empty)
    if epoch == 0 and is_free:
        return of(group_id, shard.limits_of(of.type, group_id))
    message = f"Group {group_id} is not a {of.type} group."
    if group is None:
        name = f"{of.type.capitalize()} group" if epoch > 0 else "Group"
        message = f"{name} {group_id} not found."
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)


class ModernMembership:
    """Members of the groups of one type of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def _shard_of(self, group_id: str) -> GroupShard:
        """Return a group's shard; RefusedError if it is not served here now."""
        shard = self._coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            raise RefusedError(shard)
        return shard

    def _append(
        self, shard: GroupShard, group: MemberGroup, records: list[Record], now: Now
    ) -> None:
        """Append and apply the records of a heartbeat, if it has any."""
        if not records:
            self._coordinator.watch_session(shard, group, now.ticks_ms)
            return
        error = self._coordinator.append_consumer(shard, group, records, now)
        if error is not ErrorCode.NONE:
            raise RefusedError(error)

    def _settling(self, shard: GroupShard, *, wrote: bool) -> Settling | None:
        """Return work that ends when what a heartbeat wrote is committed, or what others have
        written before one that `wrote` nothing; None if it is by now. RefusedError if a write has
        failed."""
        error = self._coordinator.settled_now(shard, wrote=wrote)
        if error is None:
            return self._coordinator.settled_later(shard)
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
        return None

    async def _committed(self, shard: GroupShard, records: list[Record]) -> None:
        """Await what `_settling` returns; RefusedError if a write has failed."""
        settling = self._settling(shard, wrote=bool(records))
        error = ErrorCode.NONE if settling is None else await settling
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
