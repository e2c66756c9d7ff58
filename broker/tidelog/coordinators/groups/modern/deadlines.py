"""When the members of a group must be heard of again. Pure: the time is given.

No record holds these: after loading, all sessions begin again.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidelog.coordinators.groups.modern.member import AnyMember
    from tidelog.coordinators.groups.now import Now

__all__ = ["Deadlines"]

LATE_AT_ONCE = 500  # members that leave in one turn of the loop: 10 to 20 ms


class Deadlines:
    """Deadlines in ticks_ms by member id."""

    def __init__(self, *more: dict[str, int]) -> None:
        """`more` deadlines end a membership as those of sessions do."""
        self._sessions: dict[str, int] = {}
        self._rebalances: dict[str, tuple[int, int]] = {}  # the epoch that must end, and when
        self._plain = (self._sessions, *more)
        self._all: tuple[dict[str, Any], ...] = (self._rebalances, *self._plain)
        self._next_ms: int | None = None  # no deadline is earlier; None: look for it

    def alive(self, member_id: str, at_ms: int) -> None:
        """Begin a session that ends then, after each sign of life."""
        self._sessions[member_id] = at_ms
        if self._next_ms is not None and at_ms < self._next_ms:  # as `due`: most heartbeats do this
            self._next_ms = at_ms

    def changed(self, member: AnyMember, timeout_ms: int | None, now: Now) -> None:
        """Give a member this time to end its epoch; None: it has nothing to give back."""
        self._rebalances.pop(member.member_id, None)
        if timeout_ms is not None:
            at_ms = self.due(now.ticks_ms + timeout_ms)
            self._rebalances[member.member_id] = (member.epoch, at_ms)

    def due(self, at_ms: int) -> int:
        """Return a new deadline; each passes through here."""
        if self._next_ms is not None:
            self._next_ms = min(self._next_ms, at_ms)
        return at_ms

    def next_ms(self, members: Mapping[str, AnyMember]) -> int | None:
        """Return when `late` is next due, or earlier, None if nothing can be; forget members that
        are gone.

        Heartbeats only move deadlines later: all are looked through after `late` alone.
        """
        if len(self._sessions) > len(members):
            self._next_ms = None
            for each in self._all:
                for name in each.keys() - members.keys():
                    del each[name]
        if self._next_ms is None:
            rebalances = (at_ms for _, at_ms in self._rebalances.values())
            plain = (each.values() for each in self._plain)
            self._next_ms = min(chain(rebalances, *plain), default=None)
        return self._next_ms

    def late(self, members: Mapping[str, AnyMember], now: Now) -> set[str]:
        """Return the members whose time has passed; each is returned once. Of thousands, the first
        ones: the others stay due, as each has a timer of its own in Kafka."""
        self._next_ms = None
        late: set[str] = set()
        for each in self._plain:
            due = [name for name, at_ms in each.items() if at_ms <= now.ticks_ms][:LATE_AT_ONCE]
            for name in due:
                del each[name]
            late.update(due)
        for name, (epoch, at_ms) in list(self._rebalances.items()):
            if at_ms > now.ticks_ms:
                continue
            if len(late) >= LATE_AT_ONCE:
                break
            del self._rebalances[name]
            member = members.get(name)
            if member is not None and member.epoch == epoch:
                late.add(name)
        return late & members.keys()
