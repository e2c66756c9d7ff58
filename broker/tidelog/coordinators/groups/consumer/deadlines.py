"""When the members of a consumer group must be heard of again. Pure: the time is given.

No record holds these: after loading, all sessions begin again. Members of the classic protocol have
the session timeout that they ask for, and instead of a time for revoking, a time to join once they
are asked to and a time to sync after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.states import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.consumer.views import ConsumerLimits
    from tidelog.coordinators.groups.member import Now

__all__ = ["Deadlines"]


class Deadlines:
    """Deadlines in ticks_ms by member id."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, tuple[int, int]] = {}  # the epoch that must end, and when
        self._joins: dict[str, int] = {}
        self._syncs: dict[str, int] = {}

    def alive(self, member: ConsumerMember, limits: ConsumerLimits, now: Now) -> None:
        """Begin a session, after each sign of life."""
        classic = member.subscription.classic
        timeout_ms = limits.session_timeout_ms if classic is None else classic.session_timeout_ms
        self._sessions[member.member_id] = now.ticks_ms + timeout_ms

    def changed(self, member: ConsumerMember, now: Now) -> None:
        """Give a member its rebalance timeout if it must revoke partitions, else end that time."""
        self._rebalances.pop(member.member_id, None)
        is_classic = member.subscription.classic is not None
        if member.state is MemberState.UNREVOKED_PARTITIONS and not is_classic:
            at_ms = now.ticks_ms + member.subscription.rebalance_timeout_ms
            self._rebalances[member.member_id] = (member.epoch, at_ms)

    def must_join(self, member: ConsumerMember, now: Now) -> None:
        """Note that a classic member was asked to join; its time runs from the first time."""
        at_ms = now.ticks_ms + member.subscription.rebalance_timeout_ms
        self._joins.setdefault(member.member_id, at_ms)

    def must_sync(self, member_id: str, timeout_ms: int, now: Now) -> None:
        """Note that a classic member has joined."""
        self._joins.pop(member_id, None)
        self._syncs[member_id] = now.ticks_ms + timeout_ms

    def synced(self, member_id: str) -> None:
        """Note that a classic member has its assignment."""
        self._syncs.pop(member_id, None)

    def next_ms(self, members: Mapping[str, ConsumerMember]) -> int | None:
        """Return when `late` is due, None if nothing can be; forget those that are gone."""
        if len(self._sessions) > len(members):
            for each in (self._sessions, self._rebalances, self._joins, self._syncs):
                for name in each.keys() - members.keys():
                    del each[name]
        rebalances = (at_ms for _, at_ms in self._rebalances.values())
        rest = (*self._joins.values(), *self._syncs.values())
        return min((*self._sessions.values(), *rebalances, *rest), default=None)

    def late(self, members: Mapping[str, ConsumerMember], now: Now) -> set[str]:
        """Return the members whose time has passed; each is returned once."""
        late = set()
        for each in (self._sessions, self._joins, self._syncs):
            due = {name for name, at_ms in each.items() if at_ms <= now.ticks_ms}
            for name in due:
                del each[name]
            late |= due
        for name, (epoch, at_ms) in list(self._rebalances.items()):
            if at_ms > now.ticks_ms:
                continue
            del self._rebalances[name]
            member = members.get(name)
            if member is not None and member.epoch == epoch:
                late.add(name)
        return late & members.keys()
