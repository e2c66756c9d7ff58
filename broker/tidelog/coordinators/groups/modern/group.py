"""What consumer, share and streams groups share: epochs, members, targets, and their replay. Pure.

`heartbeat` and `expire` write nothing: they return records, and `replay` applies each once it is
appended, as it does while loading. Only what no record holds changes at once: deadlines, and that
metadata must be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from tidelog.coordinators.groups.modern.deadlines import Deadlines
from tidelog.coordinators.groups.modern.member import FIRST_EPOCH, AnyMember
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import ModernGroupState, is_reconciled, state_of
from tidelog.coordinators.groups.modern.views import Limits
from tidelog.coordinators.groups.now import NO_TIMESTAMP
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tidelog.coordinators.groups.modern.records import GroupRecords, Record
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now

__all__ = ["ModernGroup"]

M = TypeVar("M", bound=AnyMember)
T = TypeVar("T")
L = TypeVar("L", bound=Limits)


class ModernGroup(Generic[M, T, L]):
    """A group of members M with targets T and settings L, as its records say.

    Invariant: a member of `targets` is in `members`.
    """

    type: str
    records: ClassVar[GroupRecords[Any, Any]]
    retention_start_ms = NO_TIMESTAMP  # offsets expire by the time of their commits

    def __init__(self, group_id: str, limits: L, deadlines: Deadlines | None = None) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0  # wall time of the target assignment
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        self.is_stale = True  # topics may have changed since the last look
        self._deadlines = deadlines or Deadlines()

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members."""
        return not self.members

    @property
    def is_ready(self) -> bool:
        """Return whether the topics that it needs are there."""
        return True

    @property
    def is_reconciled(self) -> bool:
        """Return whether every member has reached the target assignment."""
        return all(is_reconciled(each, self.assignment_epoch) for each in self.members.values())

    @property
    def state(self) -> ModernGroupState:
        """The state, which follows from the members."""
        return state_of(self)

    def must_have(self, member_id: str) -> M:
        """Return a member, or refuse."""
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets."""
        raise NotImplementedError

    # ---- time --------------------------------------------------------------------------------

    def session_ms(self, _member: M) -> int:
        """Return how long a member stays without heartbeats."""
        return self.limits.session_timeout_ms

    def revocation_ms(self, _member: M) -> int | None:
        """Return how long a member may stay in its epoch, None if it has nothing to give back."""
        return None

    def alive(self, member: M, now: Now) -> None:
        """Begin a member's session, after each sign of life."""
        self._deadlines.alive(member.member_id, now.ticks_ms + self.session_ms(member))

    def moved(self, member: M, now: Now) -> None:
        """Begin or end the time that a member has to give something back, after each step."""
        self._deadlines.changed(member, self.revocation_ms(member), now)

    def topics_changed(self) -> None:
        """Note that the next heartbeat must look at the topics."""
        self.is_stale = True

    def resume(self, now: Now) -> None:
        """Begin the sessions of all members, after loading."""
        self.is_stale = True
        for member in self.members.values():
            self.alive(member, now)
            self.moved(member, now)

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is due, None if nothing is."""
        return self._deadlines.next_ms(self.members)

    def expire(self, topics: Topics, now: Now) -> list[Record]:
        """Return the records that remove members whose session or time for a step has ended."""
        late = self._deadlines.late(self.members, now)
        return self.fence(late, topics) if late else []

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        key, value = record
        kind, records = type(key), self.records
        if kind is records.current_key:  # most of them
            self._replay_assignment(key.member_id, value)
        elif kind is records.group_key:
            if value is not None:  # a tombstone removes the group, which its shard does
                self._replay_epoch(value)
        elif kind is records.target_epoch_key:
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assignment_ms = 0 if value is None else value.assignment_timestamp
        elif kind is records.target_key:
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = records.target_of(value)
        elif kind is records.member_key:
            self._replay_member(key.member_id, value)
        else:
            self._replay_other(key, value)

    def _replay_epoch(self, value: Any) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, member_id: str, value: Any) -> None:
        member = self._take(member_id)
        if value is not None:
            member = member or self.records.new_member(member_id)
            self._put(self.records.with_metadata(member, value))

    def _replay_assignment(self, member_id: str, value: Any) -> None:
        before = self.members.pop(member_id, None)
        if value is not None:
            known = before or self.records.new_member(member_id)
            after = self.records.with_assignment(known, value)
        elif before is not None:
            after = self.records.leaving(before)
        else:
            return
        self.members[member_id] = after
        self._stepped(before, after)

    def _replay_other(self, key: Any, value: Any) -> None:
        """Apply a record of a kind that only this type of group has."""
        raise NotImplementedError

    def _take(self, member_id: str) -> M | None:
        """Take a member out."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._removed(member)
        return member

    def _put(self, member: M) -> None:
        """Put a member in, the last one."""
        self.members[member.member_id] = member
        self._added(member)

    def _stepped(self, before: M | None, after: M) -> None:
        """Count what a member has after a step; it subscribes as before."""
        if before is not None:
            self._removed(before)
        self._added(after)

    def _added(self, member: M) -> None:
        """Count what a member subscribes to and has."""
        raise NotImplementedError

    def _removed(self, member: M) -> None:
        """Count it no longer."""
        raise NotImplementedError

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members, in Kafka's order."""
        raise NotImplementedError
