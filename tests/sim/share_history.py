"""What members of a share group were given and answered, and what that obliges the brokers to.

A request is handled between the time it is sent and the time its answer arrives. So a member surely
holds a record from the answer on, until the lock's duration after `sent_s`. `term` is the life of a
share partition at a leader, None if it is not sure: locks end with it, and what is stored does not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from sim.history import require
from tidelog.shares.records import AckType
from tidelog_protocol.errors import ErrorCode

DRIFT = 0.02  # of clocks
FINAL = (AckType.ACCEPT, AckType.REJECT, AckType.GAP)
# Before anything is written. After other errors an acknowledgement may be stored.
REFUSED = (
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass
class Attempt:
    """Where values come from: a transaction, or a plain producer.

    `is_sent_to_commit`: the end of the transaction was asked for. `outcome`: True committed, False
    aborted, None not known. `written`: partition, offset and time of what was acknowledged.
    """

    is_sent_to_commit: bool = False
    outcome: bool | None = None
    written: list[tuple[int, int, float]] = field(default_factory=list)


@dataclass(eq=False)
class Delivery:
    """One record as one member got it; `value` None: an offset without a record.

    `is_asked`: an acknowledgement was sent. `is_doubtful`: the member may have got it again, in an
    answer that was lost.
    """

    member: str
    index: int
    offset: int
    count: int
    value: bytes | None
    sent_s: float
    received_s: float
    lock_s: float
    term: Any
    session: Any
    is_asked: bool = False
    is_doubtful: bool = False
    until_s: float = field(init=False)  # the lock surely lasts as long
    ended_s: float = field(init=False)  # and is surely over then

    def __post_init__(self) -> None:
        self.until_s, self.ended_s = self.lasts(self.sent_s, self.received_s)

    def lasts(self, sent_s: float, received_s: float) -> tuple[float, float]:
        """How long a lock surely lasts, and when it is surely over, by any clock that drifts."""
        return sent_s + self.lock_s * (1 - DRIFT), received_s + self.lock_s * (1 + DRIFT)

    def is_held(self, at_s: float) -> bool:
        """Whether the member surely holds the record still, if the leader is the same."""
        is_sure = not self.is_asked and not self.is_doubtful
        return is_sure and self.session.is_open and at_s < self.until_s


@dataclass(eq=False)
class Acknowledging:
    """Acknowledgements of one partition in one request: all of them count, or none.

    `is_punctual`: the leader's timers ran when it left.
    """

    index: int
    chosen: list[tuple[Delivery, AckType]]
    sent_s: float
    session: Any
    is_punctual: bool = True


class SharedPartition:
    """What is known of one partition by those who write and read it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.facts: dict[int, bytes] = {}
        self.deliveries: dict[int, list[Delivery]] = defaultdict(list)
        self.done: dict[int, float] = {}  # since when
        self.accepted: dict[int, Delivery] = {}
        self.released: dict[int, tuple[float, int]] = {}  # when, and the deliveries until then
        self.asked: dict[int, int] = defaultdict(int)  # final acknowledgements that may count
        self.lost_s: list[float] = []  # when answers were lost
        self.start_max = 0  # of any leader
        self.starts: list[tuple[float, int]] = [(-1.0, 0)]  # stored ones, by the time of the answer
        self.log_starts: list[tuple[float, int]] = [(-1.0, 0)]
        self.delete_bound = 0  # no DeleteRecords asked for more

    def __repr__(self) -> str:
        return f"partition {self.index}"

    def floor(self, at_s: float) -> int:
        """No answer to a request of that time has anything below it."""
        known = (*self.starts, *self.log_starts)
        return max(offset for answered_s, offset in known if answered_s <= at_s)


class ShareHistory:
    """Everything that the clients of one share group know."""

    def __init__(self, partitions: int, deliveries_max: int, *, is_committed: bool) -> None:
        self.partitions = [SharedPartition(index) for index in range(partitions)]
        self.deliveries_max = deliveries_max
        self.is_committed = is_committed
        self.attempts: dict[bytes, Attempt] = {}
        self.counts: dict[str, int] = {}
        self._starts: dict[Any, int] = {}

    def count(self, what: str, by: int = 1) -> None:
        """Keep statistics."""
        self.counts[what] = self.counts.get(what, 0) + by

    # -- deliveries --------------------------------------------------------------------------------

    def delivered(self, new: Delivery) -> None:
        """A member got a record, or an offset without one."""
        known, offset = self.partitions[new.index], new.offset
        where = f"{known}: offset {offset}, given to {new.member}"
        require(1 <= new.count <= self.deliveries_max, f"{where} as delivery {new.count}")
        since = known.done.get(offset, math.inf)
        require(since > new.sent_s, f"{where}, was done since {since:.3f}")
        require(offset >= known.floor(new.sent_s), f"{where}, is below the start")
        if new.value is not None:
            self._check_value(known, new, where)
        when, count = known.released.get(offset, (math.inf, 0))
        require(when > new.sent_s or count < new.count, f"{where}, had {count} deliveries before")
        for old in known.deliveries[offset]:
            self._check_again(old, new, where)
        known.deliveries[offset].append(new)
        self.count("deliveries")
        if new.count > 1:
            self.count("records that come again")

    def _check_value(self, known: SharedPartition, new: Delivery, where: str) -> None:
        assert new.value is not None
        fact = known.facts.setdefault(new.offset, new.value)
        require(fact == new.value, f"{where}, is {new.value!r} and was {fact!r}")
        attempt = self.attempts.get(new.value)
        require(attempt is not None, f"{where}: {new.value!r} was never sent")
        assert attempt is not None
        if self.is_committed:
            require(attempt.is_sent_to_commit, f"{where}: {new.value!r} is of an open transaction")
            require(attempt.outcome is not False, f"{where}: {new.value!r} was aborted")

    def _check_again(self, old: Delivery, new: Delivery, where: str) -> None:
        """A record that was given out before, by the same leader, and surely before this time."""
        if old.term is None or old.term is not new.term or old.received_s > new.sent_s:
            return
        require(old.count < new.count, f"{where} as delivery {new.count}, after {old.count}")
        holds = old.is_held(new.received_s)
        require(not holds, f"{where}, is locked by {old.member} until {old.until_s:.3f}")

    def fetch_lost(self, indexes: list[int], held: list[Delivery], now_s: float) -> None:
        """A member does not know what it was given of these partitions."""
        self.count("answers lost")
        for index in indexes:
            self.partitions[index].lost_s.append(now_s)
        for each in held:
            each.is_doubtful = True

    # -- acknowledgements --------------------------------------------------------------------------

    def asks(self, asking: Acknowledging) -> None:
        """Acknowledgements leave a member."""
        known = self.partitions[asking.index]
        for each, kind in asking.chosen:
            self.count(f"acknowledged as {kind.name}")
            if kind is AckType.RENEW:
                each.ended_s = math.inf  # until the answer says otherwise
                continue
            each.is_asked = True
            if kind in FINAL:
                known.asked[each.offset] += 1

    def answered(self, asking: Acknowledging, error: ErrorCode, now_s: float, term: Any) -> None:
        """The outcome of them all."""
        self.count(f"acknowledgements answered {error.name}")
        for each, kind in asking.chosen:
            if error is ErrorCode.NONE:
                self._counts(each, kind, asking, now_s)
            elif error in REFUSED and kind in FINAL:
                self.partitions[asking.index].asked[each.offset] -= 1
        if error is ErrorCode.INVALID_RECORD_STATE:
            self._check_refusal(asking, now_s, term)

    def _counts(self, each: Delivery, kind: AckType, asking: Acknowledging, now_s: float) -> None:
        known, offset = self.partitions[each.index], each.offset
        where = f"{known}: offset {offset}, {kind.name} of {each.member}"
        is_below = known.start_max > offset  # then anything is answered NONE, and changes nothing
        is_late = asking.sent_s > each.ended_s and not each.is_doubtful and asking.is_punctual
        require(is_below or not is_late, f"{where} counts after the end of its lock")
        if kind is AckType.RENEW:
            each.until_s, each.ended_s = each.lasts(asking.sent_s, now_s)
            return
        if is_below and now_s >= each.until_s:
            return  # the end of its lock may have archived it, at a leader that cannot write that
        if kind is AckType.ACCEPT:
            first = known.accepted.setdefault(offset, each)
            is_first = first is each or is_below
            require(is_first, f"{where}, was accepted by {first.member} before")
        if kind in FINAL or each.count >= self.deliveries_max:
            known.done.setdefault(offset, now_s)
        elif each.count > known.released.get(offset, (now_s, 0))[1]:
            known.released[offset] = (now_s, each.count)

    def _check_refusal(self, asking: Acknowledging, now_s: float, term: Any) -> None:
        """A member that holds all its locks may answer."""
        known = self.partitions[asking.index]
        is_sure = term is not None and not known.delete_bound
        for each, _ in asking.chosen:
            is_same = each.session is asking.session and each.term is term
            is_sure &= is_same and each.session.connection.is_open
            is_sure &= now_s < each.until_s and not each.is_doubtful
        first, _ = asking.chosen[0]
        where = f"{known}: {first.member}, which holds offset {first.offset}"
        require(not is_sure, f"{where} until {first.until_s:.3f}, may not answer for it")

    # -- start offsets -----------------------------------------------------------------------------

    def led(self, index: int, term: Any, start_offset: int) -> None:
        """A leader has this start offset now."""
        known = self.partitions[index]
        before = self._starts.get(term, 0)
        require(start_offset >= before, f"{known}: its start went from {before} to {start_offset}")
        self._starts[term] = start_offset
        known.start_max = max(known.start_max, start_offset)

    def described(self, index: int, sent_s: float, now_s: float, start_offset: int) -> None:
        """The coordinator has this start offset stored."""
        known = self.partitions[index]
        before = max(offset for when, offset in known.starts if when <= sent_s)
        require(start_offset >= before, f"{known}: stored start {start_offset}, before {before}")
        known.starts.append((now_s, start_offset))
        self.count("start offsets described")

    # -- the end -----------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Each record that was committed was given to members, until one was done with it."""
        for attempt in self.attempts.values():
            for index, offset, written_s in attempt.written if attempt.outcome else ():
                known = self.partitions[index]
                if known.asked[offset] or offset < known.delete_bound:
                    continue
                lost = sum(when >= written_s for when in known.lost_s)
                tries = len(known.deliveries[offset]) + lost
                require(
                    tries >= self.deliveries_max,
                    f"{known}: offset {offset} was passed over after {tries} deliveries",
                )
