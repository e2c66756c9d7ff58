"""Giving records that were read from the log to a member.

Members get whole batches where they can: records come from the log in batches, and are acknowledged
in them. Only batch headers are read. A record near its delivery limit comes alone or with few, so
that one bad record does not archive its neighbours. Pure.

Kafka: SharePartition.acquire. In its `record_limit` mode (KIP-1206) a member gets no more records
than it asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.shares.records import Acquired, RecordState, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.shares.partition_state import ShareLimits, SharePartitionState

__all__ = ["LogBatch", "Wish", "acquire"]

_THROTTLE_MIN = 2  # deliveries; from half of the limit on, if that is more


class LogBatch(NamedTuple):
    """First and last offset of a batch in the log."""

    base_offset: int
    last_offset: int


class Wish(NamedTuple):
    """What a member asks of one partition. `batch_size` and `records_max` are numbers of records;
    `is_strict` is the record limit mode. `lock_until` is in seconds of the timeline."""

    member_id: str
    fetch_offset: int
    records_max: int
    batch_size: int
    is_strict: bool
    lock_until: float


def acquire(
    state: SharePartitionState, wish: Wish, limits: ShareLimits, batches: Sequence[LogBatch]
) -> list[Acquired]:
    """Give records of these batches, which were read at the wish's fetch offset, to its member."""
    if wish.records_max <= 0 or not batches or batches[-1].last_offset < state.start_offset:
        return []
    taking = _Taking(state, wish, limits, batches)
    if taking.room > 0:
        base = batches[0].base_offset
        if wish.fetch_offset < base:  # compaction took what is in between
            state.archive(wish.fetch_offset, base - 1, RecordState.AVAILABLE)
        taking.take()
        state.tidy()
    return taking.acquired


class _Taking:
    """One acquisition in progress: what is taken, and the room that is left."""

    def __init__(
        self,
        state: SharePartitionState,
        wish: Wish,
        limits: ShareLimits,
        batches: Sequence[LogBatch],
    ) -> None:
        self._flight = flight = state.in_flight
        self._wish = wish
        self._limits = limits
        self._batches = batches
        self._throttle_from = max(_THROTTLE_MIN, (limits.deliveries_max + 1) // 2)
        self._base = batches[0].base_offset
        self._last = batches[-1].last_offset
        self.acquired: list[Acquired] = []
        self.room = min(wish.records_max, limits.in_flight_max - flight.count)
        if self.room <= 0 and wish.fetch_offset < flight.next_offset:
            # Full, but something in between is free again: nothing new is taken behind it.
            self.room = min(wish.records_max, flight.next_offset - wish.fetch_offset)
            self._last = min(self._last, flight.next_offset - 1)

    def take(self) -> None:
        """Take what is in flight and free, then what was never taken."""
        flight, last = self._flight, self._last
        for group in _grouped(flight.between(self._base, last)):
            if self.room <= 0:
                return
            if not group[0].is_read:
                self._take_unread(group)
            elif not self._take_again(group):
                return
        first = max(self._base, flight.next_offset)
        if self.room > 0 and first <= last:
            self._take_new(first, last)

    def _take_again(self, group: list[Span]) -> bool:
        """Take the free records of one batch; False if nothing more may come with them."""
        base, last = self._base, self._last
        free = [s for s in group if s.is_available and s.last >= base and s.first <= last]
        if not free:
            return True
        throttles = max(span.delivery_count for span in free) >= self._throttle_from
        if throttles and self.acquired:
            self.room = 0
            return False
        span = group[0]
        first, end = span.batch
        is_whole = len(group) == 1 and (span.first, span.last) == span.batch
        fits = first >= base and end <= last
        too_large = self._wish.is_strict and span.size > self.room
        if is_whole and fits and not throttles and not too_large:
            self._give(span)
            return True
        taken = self._take_some(free, end - first + 1)
        if throttles and taken:
            self.room = 0
            return False
        return True

    def _take_some(self, free: list[Span], batch_records: int) -> int:
        """Take records of a batch that is not whole; return how many."""
        limit = self._limits.deliveries_max
        most = self.room if self._wish.is_strict else batch_records
        taken = 0
        throttled = False
        for span in free:
            is_last_try = limit > _THROTTLE_MIN and span.delivery_count == limit - 1
            if is_last_try and taken:
                break  # it comes alone, with the next fetch
            if not throttled and span.delivery_count >= self._throttle_from:
                throttled = True
                few = batch_records >> (span.delivery_count - self._throttle_from + 1)
                most = min(most, max(1, few))
            count = min(1 if is_last_try else span.size, most - taken)
            count = min(count, self._last - max(span.first, self._base) + 1)
            if count <= 0:
                break
            first = max(span.first, self._base)
            for part in list(self._flight.cut(first, first + count - 1)):
                self._give(part)
            taken += count
            if is_last_try or taken >= most:
                break
        return taken

    def _give(self, span: Span) -> None:
        """Give a span to the member; neighbours with the same count are listed as one."""
        given = span.acquire(self._wish.member_id, self._wish.lock_until)
        self.room -= span.size
        before = self.acquired[-1] if self.acquired else None
        if (
            before is not None
            and before.last_offset + 1 == given.first_offset
            and before.delivery_count == given.delivery_count
            and before.first_offset >= span.batch[0]
        ):
            self.acquired[-1] = before._replace(last_offset=given.last_offset)
        else:
            self.acquired.append(given)

    # ---- records that this leader has not given out yet ---------------------------------------

    def _take_unread(self, gap: list[Span]) -> None:
        """Take records in a gap of the stored state, as far as they were read now."""
        for span in gap:
            first, last = max(span.first, self._base), min(span.last, self._last)
            if self.room <= 0 or not span.is_available or first > last:
                continue
            for part in list(self._flight.cut(first, last)):
                self._flight.remove(part)
                end = self._take_new(first, last)
                if end < last:
                    self._flight.add(part.copy(end + 1, last))

    def _take_new(self, first: int, last: int) -> int:
        """Take records for the first time, in batches of about the size that the member wants;
        return the last one of them."""
        if self.room < last - first + 1:
            last = min(last, self._end_of_batch(first + self.room - 1))
        if not self._flight.spans:
            self._flight.start_offset = first
        if self._wish.is_strict:
            self._take_strictly(first, last)
            return last
        for low, high in self._sized(first, last):
            span = Span(low, high, RecordState.AVAILABLE, 0)
            self._flight.add(span)
            self._give(span)
        return last

    def _take_strictly(self, first: int, last: int) -> None:
        """Take a whole batch in flight, but give out only as many records as there is room for."""
        span = Span(first, last, RecordState.AVAILABLE, 0)
        self._flight.add(span)
        if span.size > self.room:
            self._flight.split(span, first + self.room)
        self._give(span)

    def _sized(self, first: int, last: int) -> list[tuple[int, int]]:
        """Divide new records at batch bounds once a part has `batch_size` of them."""
        parts = []
        if last - first + 1 > self._wish.batch_size:
            for batch in self._batches:
                base = batch.base_offset
                if first < base <= last and base - first >= self._wish.batch_size:
                    parts.append((first, base - 1))
                    first = base
        parts.append((first, last))
        return parts

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the batch with this offset, or the offset itself."""
        for batch in self._batches:
            if batch.base_offset <= offset <= batch.last_offset:
                return batch.last_offset
        return offset


def _grouped(spans: list[Span]) -> list[list[Span]]:
    """Group spans by the batch that they were first taken in."""
    groups: list[list[Span]] = []
    for span in spans:
        if groups and groups[-1][0].batch == span.batch and groups[-1][0].is_read == span.is_read:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups
