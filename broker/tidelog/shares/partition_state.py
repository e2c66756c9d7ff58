"""What a share group knows of one partition: which records are in flight, in which state.

It decides acknowledgements, releases, the end of locks, and the move of the start offset. Changes
that must be stored are begun here, written by `led_partition.py`, and then completed or rolled
back here. `acquiring.py` gives records out. Pure: time and limits come as arguments.

Kafka: SharePartition. Differences: what lies below the start of the log is forgotten at once, where
Kafka keeps acquired records until their locks end; and records that only a gap in the stored state
names are AVAILABLE spans, where Kafka keeps a window of gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.shares.in_flight import InFlight
from tidelog.shares.records import ACKNOWLEDGED_AS, AckType, RecordState, ShareError, Span
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog.coordinators.share.values import StateBatch

__all__ = ["AckBatch", "Change", "ShareLimits", "SharePartitionState"]

# 3 is Kafka's ARCHIVING. Other states are never stored; their records are given out again.
_STORED = {2: RecordState.ACKNOWLEDGED, 3: RecordState.ARCHIVED, 4: RecordState.ARCHIVED}
_NOT_FOUND = "Batch record not found. The {} offset in request is past acquired records."
_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
_BATCH_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
_NOT_OWNER = "Member is not the owner of offset"
_NOT_OWNER_OF_BATCH = "Member is not the owner of batch record"
_NO_RENEWALS = "Renewing acquisition locks is not enabled for the group."


class ShareLimits(NamedTuple):
    """The settings of a share group that count for its partitions."""

    lock_ms: int = 30_000
    deliveries_max: int = 5
    in_flight_max: int = 2000
    renews: bool = True


class AckBatch(NamedTuple):
    """A member's acknowledgement: one type for all offsets, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Change(NamedTuple):
    """A change that is written before it counts; both are empty if there is nothing to write."""

    spans: list[Span]
    batches: list[StateBatch]

    def begin(self, span: Span, target: RecordState) -> None:
        """Begin to change one span."""
        self.spans.append(span)
        self.batches.append(span.begin(target))


class SharePartitionState:
    """The records in flight of one share partition."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Go on from a stored state: ShareError if it contradicts itself."""
        self.in_flight = InFlight(start_offset)
        for batch in batches:
            first, last = batch.first_offset, batch.last_offset
            expected = self.in_flight.next_offset
            if first < expected or last < first:
                raise ShareError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"The stored state of a share partition has a batch {first}-{last}, but goes "
                    f"on at offset {expected}.",
                )
            if first > expected:
                unread = Span(expected, first - 1, RecordState.AVAILABLE, 0)
                unread.is_read = False
                self.in_flight.add(unread)
            state = _STORED.get(batch.delivery_state, RecordState.AVAILABLE)
            self.in_flight.add(Span(first, last, state, batch.delivery_count))
        self.in_flight.advance()

    # ---- offsets and counts -------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Kafka's SPSO: everything before it is done."""
        return self.in_flight.start_offset

    @property
    def next_fetch_offset(self) -> int:
        """Where to read next: at the first record that may be acquired, else behind all."""
        for span in self.in_flight.spans:
            if span.is_available:
                return span.first
        return self.in_flight.next_offset

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Return whether there is anything to acquire, or room for more records."""
        flight = self.in_flight
        return flight.count < limits.in_flight_max or self.next_fetch_offset < flight.next_offset

    @property
    def delivery_complete_count(self) -> int:
        """Number of records in flight that are done; those being written count as written."""
        return sum(span.size for span in self.in_flight.spans if span.will_be_done)

    @property
    def acquired_count(self) -> int:
        """Number of records that members hold."""
        return sum(span.size for span in self._held())

    @property
    def next_deadline(self) -> float | None:
        """When the first lock ends."""
        return min(
            (span.lock_until for span in self._held()),
            default=None,
        )

    # ---- acknowledgements ---------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acks: Iterable[AckBatch], limits: ShareLimits, now: float
    ) -> Change:
        """Begin what a member's acknowledgements change; renewals count at once. ShareError: none
        of them counts."""
        change = Change([], [])
        try:
            for ack in acks:
                self._acknowledge_batch(member_id, ack, limits, now, change)
        except ShareError:
            self.complete(change, is_written=False)
            raise
        return change

    def _acknowledge_batch(
        self, member_id: str, ack: AckBatch, limits: ShareLimits, now: float, change: Change
    ) -> None:
        if not all(AckType.GAP <= kind <= AckType.RENEW for kind in ack.types):
            raise ShareError(
                ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {list(ack.types)}"
            )
        if ack.last_offset < self.start_offset:
            return  # below the start nothing can be changed, and it is no error
        self._check_range(ack)
        first = max(ack.first_offset, self.start_offset)
        for low, high, kind in _runs(ack, first):
            for span in self.in_flight.between(low, high):
                self._check_owner(span, member_id)
            for span in self.in_flight.cut(low, high):
                if kind is AckType.RENEW:
                    if not limits.renews:
                        raise ShareError(ErrorCode.INVALID_RECORD_STATE, _NO_RENEWALS)
                    span.lock_until = now + limits.lock_ms / 1000
                    continue
                target = ACKNOWLEDGED_AS[kind]
                if target is RecordState.AVAILABLE:
                    target = _released(span, limits)
                change.begin(span, target)

    def _check_range(self, ack: AckBatch) -> None:
        spans = self.in_flight.spans
        if not spans or ack.last_offset < spans[0].first:
            raise ShareError(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        last = spans[-1].last
        if ack.first_offset > last:
            raise ShareError(ErrorCode.INVALID_REQUEST, _NOT_FOUND.format("first"))
        if ack.last_offset > last:
            raise ShareError(ErrorCode.INVALID_REQUEST, _NOT_FOUND.format("last"))

    def _check_owner(self, span: Span, member_id: str) -> None:
        is_whole = (span.first, span.last) == span.batch
        if span.target is not None or span.state is not RecordState.ACQUIRED:
            reason = _BATCH_NOT_ACQUIRED if is_whole else _NOT_ACQUIRED
        elif span.member_id != member_id:
            reason = _NOT_OWNER_OF_BATCH if is_whole else _NOT_OWNER
        else:
            return
        raise ShareError(ErrorCode.INVALID_RECORD_STATE, reason)

    def release(self, member_id: str, limits: ShareLimits) -> Change:
        """Begin to release all records that a member holds: it leaves. The deliveries to it count,
        as in Kafka 4.3."""
        change = Change([], [])
        for span in self._held():
            if span.member_id == member_id:
                change.begin(span, _released(span, limits))
        return change

    def complete(self, change: Change, *, is_written: bool) -> bool:
        """End a change: it counts from now on, or never was. Return whether the start offset
        moved.

        Where it never was, a lock that ended meanwhile ends now: `next_deadline` is in the past.
        """
        for span in change.spans:
            span.settle(is_written=is_written)
        moved = self.in_flight.advance()
        self.in_flight.join_alike()
        return moved

    # ---- time, and the log --------------------------------------------------------------------

    def expire(self, now: float, limits: ShareLimits) -> list[StateBatch]:
        """End the locks that are over; return what to write. It counts at once, whatever becomes
        of the write, as in Kafka: the member has lost its records."""
        batches = []
        for span in [span for span in self._held() if span.lock_until <= now]:
            batches.append(span.begin(_released(span, limits)))
            span.settle(is_written=True)
        if batches:
            self.in_flight.advance()
            self.in_flight.join_alike()
        return batches

    def archive(self, first: int, last: int, state: RecordState) -> None:
        """Archive the records in this state that are gone from the log, or aborted.

        Nothing is written: a new leader finds it out in the same way.
        """
        for span in list(self.in_flight.cut(first, last)):
            if span.state is state and span.target is None:
                span.step(RecordState.ARCHIVED)

    def tidy(self) -> None:
        """Pass what was archived."""
        self.in_flight.advance()
        self.in_flight.join_alike()

    def move_start(self, log_start_offset: int) -> bool:
        """Forget the records that the log no longer has; return whether any were in flight."""
        if log_start_offset <= self.start_offset:
            return False
        self.in_flight.move_start(log_start_offset)
        self.in_flight.advance()
        return True

    def _held(self) -> Iterator[Span]:
        """Yield the spans that members hold, without those just being written."""
        for span in self.in_flight.spans:
            if span.state is RecordState.ACQUIRED and span.target is None:
                yield span


def _released(span: Span, limits: ShareLimits) -> RecordState:
    """Return what becomes of records that a member gives back, or loses."""
    is_last = span.delivery_count >= limits.deliveries_max
    return RecordState.ARCHIVED if is_last else RecordState.AVAILABLE


def _runs(ack: AckBatch, first: int) -> Iterator[tuple[int, int, AckType]]:
    """Yield (first, last, type) of neighbours with the same type, from the offset `first` on."""
    types = ack.types
    if len(types) == 1:
        yield first, ack.last_offset, AckType(types[0])
        return
    low = first
    for offset in range(first, ack.last_offset + 1):
        kind = types[offset - ack.first_offset]
        if offset == ack.last_offset or types[offset + 1 - ack.first_offset] != kind:
            yield low, offset, AckType(kind)
            low = offset + 1
