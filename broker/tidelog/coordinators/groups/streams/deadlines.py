"""When the members of a streams group must be heard of again, and when its first assignment is due.

No record holds these: after loading, all sessions begin again. Pure: the time is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.streams.states import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.member import Now
    from tidelog.coordinators.groups.streams.member import StreamsMember

__all__ = ["Deadlines"]


class Deadlines:
    """Deadlines in ticks_ms."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, tuple[int, int]] = {}  # the epoch that must end, and when
        self._first_assignment: int | None = None

    @property
    def is_delayed(self) -> bool:
        """Return whether a new group waits for more members before it assigns tasks."""
        return self._first_assignment is not None

    def delay(self, delay_ms: int, now: Now) -> None:
        """Have a new group wait; the time runs from its first member on."""
        if self._first_assignment is None:
            self._first_assignment = now.ticks_ms + delay_ms

    def end_delay(self, now: Now) -> bool:
        """Return whether the first assignment is due; it is so once."""
        if self._first_assignment is None or self._first_assignment > now.ticks_ms:
            return False
        self._first_assignment = None
        return True

    def alive(self, member_id: str, timeout_ms: int, now: Now) -> None:
        """Begin a session, after each sign of life."""
        self._sessions[member_id] = now.ticks_ms + timeout_ms

    def changed(self, member: StreamsMember, now: Now) -> None:
        """Give a member its rebalance timeout if it must revoke tasks, else end that time."""
        self._rebalances.pop(member.member_id, None)
        if member.state is MemberState.UNREVOKED_TASKS:
            at_ms = now.ticks_ms + member.description.rebalance_timeout_ms
            self._rebalances[member.member_id] = (member.epoch, at_ms)

    def next_ms(self, members: Mapping[str, StreamsMember]) -> int | None:
        """Return when the next one is due, None if nothing is; forget members that are gone."""
        if len(self._sessions) > len(members):
            for each in (self._sessions, self._rebalances):
                for name in each.keys() - members.keys():
                    del each[name]
        rebalances = (at_ms for _, at_ms in self._rebalances.values())
        first = () if self._first_assignment is None else (self._first_assignment,)
        return min((*self._sessions.values(), *rebalances, *first), default=None)

    def late(self, members: Mapping[str, StreamsMember], now: Now) -> set[str]:
        """Return the members whose time has passed; each is returned once."""
        late = {name for name, at_ms in self._sessions.items() if at_ms <= now.ticks_ms}
        for name in late:
            del self._sessions[name]
        for name, (epoch, at_ms) in list(self._rebalances.items()):
            if at_ms > now.ticks_ms:
                continue
            del self._rebalances[name]
            member = members.get(name)
            if member is not None and member.epoch == epoch:
                late.add(name)
        return late & members.keys()
