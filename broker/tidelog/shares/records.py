"""The states of records in flight, and a span of records that share one.

A record is in flight from its first acquisition until it and all records before it are done. The
table below has every move; what decides about moves is in `partition_state.py` and `acquiring.py`.
Pure.

Kafka: RecordState, InFlightState. The number 3 is ARCHIVING, which 4.3 never writes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.share.values import StateBatch

if TYPE_CHECKING:
    from tidelog_protocol.errors import ErrorCode

__all__ = [
    "ACKNOWLEDGED_AS",
    "TRANSITIONS",
    "AckType",
    "Acquired",
    "RecordState",
    "ShareError",
    "Span",
]


class RecordState(IntEnum):
    """What may happen to a record next; the numbers are those of the stored state."""

    AVAILABLE = 0
    """A member may acquire it."""
    ACQUIRED = 1
    """One member holds it until its lock ends. Never stored: a new leader gives it out again."""
    ACKNOWLEDGED = 2
    """Done: a member has accepted it."""
    ARCHIVED = 4
    """Done without a member's consent: rejected, delivered too often, aborted, or gone."""


TRANSITIONS: dict[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    RecordState.ACQUIRED: frozenset(
        {RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}
    ),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

_DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AckType(IntEnum):
    """How a member acknowledges a record (Kafka's AcknowledgeType, and 0)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


ACKNOWLEDGED_AS = {
    AckType.GAP: RecordState.ARCHIVED,
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
}
"""The state that each type leads to; a renewal changes none."""


class ShareError(Exception):
    """A request that is refused, with the error for its answer; Kafka adds a text to some."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


class Acquired(NamedTuple):
    """Records that a member now holds."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Span:
    """Neighbouring records in one state.

    `batch` are the first and last offset with which they were first acquired: members get whole
    batches where they can. `target` is the state that is just being written, else None; meanwhile
    nothing else may happen to the records.
    `lock_until` is the end of an ACQUIRED span's lock, in seconds of the timeline. Records that
    are not `read` are AVAILABLE and lie between stored ones: the leader before this one gave them
    out, but stored nothing about them.
    """

    __slots__ = (
        "batch",
        "delivery_count",
        "first",
        "is_read",
        "last",
        "lock_until",
        "member_id",
        "state",
        "target",
    )

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        assert first <= last
        self.first = first
        self.last = last
        self.batch = (first, last)
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = ""
        self.lock_until = 0.0
        self.target: RecordState | None = None
        self.is_read = True

    def __repr__(self) -> str:
        target = "" if self.target is None else f" -> {self.target.name}"
        return f"<{self.first}-{self.last} {self.state.name}{target} x{self.delivery_count}>"

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records now."""
        return self.state is RecordState.AVAILABLE

    @property
    def is_done(self) -> bool:
        """Whether nothing more will happen to the records."""
        return self.state in _DONE

    @property
    def will_be_done(self) -> bool:
        """Like `is_done`, as if what is being written were stored."""
        return self.state in _DONE if self.target is None else self.target in _DONE

    def step(self, state: RecordState) -> None:
        """Change the state as the table allows."""
        assert state in TRANSITIONS[self.state], f"{self!r} cannot become {state.name}"
        self.state = state
        if state is not RecordState.ACQUIRED:
            self.member_id = ""
            self.lock_until = 0.0

    def acquire(self, member_id: str, lock_until: float) -> Acquired:
        """Give the records to a member."""
        self.step(RecordState.ACQUIRED)
        self.delivery_count += 1
        self.member_id = member_id
        self.lock_until = lock_until
        return Acquired(self.first, self.last, self.delivery_count)

    def begin(self, target: RecordState) -> StateBatch:
        """Begin a change that is written first; return what to write."""
        assert self.target is None
        assert target in TRANSITIONS[self.state]
        self.target = target
        return StateBatch(self.first, self.last, target, self.delivery_count)

    def settle(self, *, is_written: bool) -> None:
        """End the change that `begin` began: made, or as if it had not been asked for."""
        target, self.target = self.target, None
        assert target is not None
        if is_written:
            self.step(target)

    def copy(self, first: int, last: int) -> Span:
        """Return a part of the span."""
        part = Span(first, last, self.state, self.delivery_count)
        part.batch = self.batch
        part.member_id = self.member_id
        part.lock_until = self.lock_until
        part.is_read = self.is_read
        assert self.target is None, "what is being written stays in one piece"
        return part

    def goes_on_as(self, other: Span) -> bool:
        """Whether the next span is nothing but the rest of this one."""
        return (
            self.last + 1 == other.first
            and self.batch == other.batch
            and self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.target is None
            and other.target is None
            and self.member_id == other.member_id
            and self.lock_until == other.lock_until
            and self.is_read == other.is_read
        )
