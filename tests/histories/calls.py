"""The calls of clients, and the history that holds them.

Every call has a `Span`: when it was made and when its answer came (`math.inf` if none did). An
outcome is OK (the answer says it is done), FAILED (the answer says it is not done and never will
be) or UNKNOWN (no answer, or one that leaves it open).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

Place = tuple[str, int]
"""Topic and partition. The topic is its id where a name may come back."""


class Outcome(enum.Enum):
    """What a client knows of a call that changes something."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Span(NamedTuple):
    """Seconds on one clock that all clients share."""

    invoked: float
    completed: float = math.inf

    def is_before(self, other: Span) -> bool:
        """Whether this call was over when the other one was made."""
        return self.completed < other.invoked


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction as its producer has it. `ended`: the call that asked to commit or abort it.

    OK is committed, FAILED is aborted or never asked to commit.
    """

    name: str
    outcome: Outcome = Outcome.FAILED
    ended: Span = field(default_factory=lambda: Span(math.inf))


@dataclass(slots=True)
class Send:
    """One record sent, retries included.

    `is_all`: acks=all, so an acknowledgement promises that the record stays. `is_once`: its
    producer numbers records, so that it is written at most once. `offset`: None if not answered.
    `appended_ms`: the append time that was answered, -1 for none. `is_deletion`: of the key, by a
    record without a value (a tombstone); `value` is what else tells it from others.
    """

    client: str
    place: Place
    value: bytes
    span: Span
    outcome: Outcome
    offset: int | None = None
    is_all: bool = True
    is_once: bool = False
    transaction: Transaction | None = None
    appended_ms: int = -1
    key: bytes | None = None
    is_deletion: bool = False


class Stamp(NamedTuple):
    """The append time that a reader finds in a record, and the leader epoch that it is of."""

    offset: int
    time_ms: int
    epoch: int


@dataclass(slots=True)
class Poll:
    """What one read found from offset `start` up to `end`: (offset, value) pairs.

    `is_committed`: by isolation.level=read_committed. `assignment` numbers a consumer's seeks and
    assignments: within one, it goes on where it was. `transaction`: the reader's own, if the read
    is part of one, which commits the offset for `group`. `stamps`: those of records with
    LogAppendTime.
    """

    client: str
    place: Place
    start: int
    end: int
    records: tuple[tuple[int, bytes], ...]
    span: Span
    is_committed: bool = False
    assignment: int = 0
    transaction: Transaction | None = None
    group: str = ""
    stamps: tuple[Stamp, ...] = ()


@dataclass(slots=True)
class Listed:
    """An answer to "where does the log end (or begin)". `epoch`: the leader's, -1 if unknown."""

    client: str
    place: Place
    is_end: bool
    offset: int
    epoch: int
    span: Span


@dataclass(slots=True)
class Commit:
    """An offset that a group commits. Checks expect that offsets of a place rise.

    `member_id` and `epoch`: of the member that commits; none outside of groups.
    """

    client: str
    group: str
    place: Place
    offset: int
    span: Span
    outcome: Outcome
    member_id: str = ""
    epoch: int = -1


@dataclass(slots=True)
class Committed:
    """A committed offset that was asked for; -1 for none."""

    client: str
    group: str
    place: Place
    offset: int
    span: Span


@dataclass(slots=True)
class Led:
    """What an answer to Metadata says of a partition's leader; -1 for none."""

    client: str
    place: Place
    leader: int
    epoch: int
    span: Span


@dataclass(slots=True)
class MemberCall:
    """A request of a static member (KIP-345): "join", "sync", "beat" or "commit".

    `member_id` is its own, or the one that the answer gave it: each process has another. `host`:
    the broker that was asked. `error`: by Kafka's name; it counts if the outcome is FAILED.
    """

    kind: str
    group: str
    instance: str
    member_id: str
    generation: int
    host: str
    span: Span
    outcome: Outcome
    error: str = ""
    assignment: bytes = b""


@dataclass(slots=True)
class Beat:
    """A heartbeat of a member of KIP-848: it joins (`epoch` 0), stays, or leaves (below 0). Or, if
    it `is_classic`, a call of a classic member of such a group, whose generations are the epochs.

    `owned`: what it says that it has, None if it does not say. `assigned`: what the answer lets it
    have, None if that has not changed. `rebalance_s`: how long it may take to give something up,
    None if it does not say. `says_all`: as after a lost answer. `term`: of the coordinator, None if
    another one may have been elected by then. An outcome is FAILED if the answer is that of a
    coordinator which refuses.
    """

    group: str
    member_id: str
    epoch: int
    span: Span
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    instance: str | None = None
    owned: frozenset[Place] | None = None
    answered_epoch: int = -1
    assigned: frozenset[Place] | None = None
    rebalance_s: float | None = None
    says_all: bool = False
    is_classic: bool = False
    term: Hashable = None


class Loss(NamedTuple):
    """Something that Kafka does not promise to survive: from `at` on, what was known of a place
    (of all if None) may be gone from `from_offset` on.

    `since`: it began before, and until `at` some are still told what others do not find.
    """

    at: float
    place: Place | None = None
    from_offset: int = 0
    since: float = math.inf


@dataclass(slots=True)
class ClientHistory:
    """All calls of a run, in the order in which they were made.

    `deleted` has, by place, the offset below which somebody asked to delete (or lets retention
    delete: `math.inf`). `steady`: from then on a group has the same static members, and no session
    runs out. `sessions`: seconds without a heartbeat after which a group of KIP-848 gives a member
    up. `together`: from then on all replicas of a compacted topic are in sync. `quiet_since`: from
    then on there were no faults. `clocks_are_steady`: no broker's clock was set back.
    """

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    member_calls: list[MemberCall] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    sessions: dict[str, float] = field(default_factory=dict)
    steady: dict[str, float] = field(default_factory=dict)
    deleted: dict[Place, float] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    together: dict[str, float] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    quiet_since: float = math.inf
    clocks_are_steady: bool = True

    def is_void(self, place: Place, offset: int, known: float, asked: float) -> bool:
        """Whether a loss between two moments excuses that a record is gone."""
        return any(
            known <= loss.at
            and min(loss.since, loss.at) <= asked
            and loss.place in (None, place)
            and offset >= loss.from_offset
            for loss in self.losses
        )

    def has_losses(self, places: Iterable[Place]) -> bool:
        """Whether anything of these places may be lost."""
        lost = {loss.place for loss in self.losses}
        return None in lost or not lost.isdisjoint(places)


class Anomaly(NamedTuple):
    """One thing that must not be. `kind` is the name of its sort."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"
