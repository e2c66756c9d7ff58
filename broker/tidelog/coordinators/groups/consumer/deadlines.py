"""When the members of a consumer group must be heard of again, also classic ones. Pure.

Members of the classic protocol have the session timeout that they ask for, and instead of a time
for revoking, a time to join once they are asked to and a time to sync after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.deadlines import Deadlines

if TYPE_CHECKING:
    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.now import Now

__all__ = ["ConsumerDeadlines"]


class ConsumerDeadlines(Deadlines):
    """With those of classic members."""

    def __init__(self) -> None:
        self._joins: dict[str, int] = {}
        self._syncs: dict[str, int] = {}
        super().__init__(self._joins, self._syncs)

    def must_join(self, member: ConsumerMember, now: Now) -> None:
        """Note that a classic member was asked to join; its time runs from the first time."""
        at_ms = now.ticks_ms + member.subscription.rebalance_timeout_ms
        self._joins.setdefault(member.member_id, self.due(at_ms))

    def must_sync(self, member_id: str, timeout_ms: int, now: Now) -> None:
        """Note that a classic member has joined."""
        self._joins.pop(member_id, None)
        self._syncs[member_id] = self.due(now.ticks_ms + timeout_ms)

    def synced(self, member_id: str) -> None:
        """Note that a classic member has its assignment."""
        self._syncs.pop(member_id, None)
