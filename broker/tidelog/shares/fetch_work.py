"""One ShareFetch in progress: read where a group goes on, and acquire what was read.

`fetches.py` and `remote_fetches.py` decide when. Of the wire it knows only the request's limits.

Kafka: ShareFetchUtils, PartitionMaxBytesStrategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.replication.fetch_sessions import FetchedPartition
from tidelog.replication.reads import TRANSACTION_COMMITTED, FetchParams
from tidelog.shares.aborted import aborted_ranges, cut_records, read_batches, without
from tidelog.shares.acquiring import LogBatch, Wish, acquire
from tidelog.shares.records import Acquired, RecordState, ShareError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.replication.reads import ReadResult
    from tidelog.shares.led_partition import LedPartition
    from tidelog.shares.sessions import TopicIdPartition
    from tidelog.shares.share_partitions import SharePartitions
    from tidelog_protocol.schema import Buffer

__all__ = ["FetchWish", "PartitionAnswer", "ShareFetchWork"]

_READ_BYTES_MIN, _READ_BYTES_MAX = 64 << 10, 32 << 20
_VOID = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class FetchWish(NamedTuple):
    """What a member asks for in one request."""

    group_id: str
    member_id: str
    min_bytes: int
    max_bytes: int
    records_max: int
    batch_size: int
    is_strict: bool


class PartitionAnswer(NamedTuple):
    """One partition's part of the answer."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    records: Buffer = b""
    acquired: Sequence[Acquired] = ()


class ShareFetchWork:
    """One fetch in progress: the partitions it reads, and the answers so far."""

    def __init__(
        self, shares: SharePartitions, wish: FetchWish, leds: Sequence[LedPartition]
    ) -> None:
        self.shares = shares
        self.wish = wish
        self.leds = leds
        self.settings = shares.settings(wish.group_id)
        self.answers: dict[TopicIdPartition, PartitionAnswer] = {}
        self._records_left = wish.records_max

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions whose events may complete the fetch."""
        return [led.partition.topic_partition for led in self.leds]

    @property
    def has_failed(self) -> bool:
        """Whether some share partition is void."""
        return any(led.failure is not None for led in self.leds)

    def fetchable(self) -> list[LedPartition]:
        """Return the share partitions that have no answer yet and may be read now."""
        return [led for led in self.leds if self._key(led) not in self.answers and led.is_fetchable]

    def read(self, leds: Sequence[LedPartition]) -> dict[LedPartition, ReadResult]:
        """Read each where its group goes on, together about what the member will take.

        The limits of bytes are far above that: Kafka reads only the headers of what it does not
        give out, here it would all be read.
        """
        if not leds:
            return {}
        limits = [self.bytes_of(led, len(leds)) for led in leds]
        results = self.shares.replicas.read(
            [_request(led, limit) for led, limit in zip(leds, limits, strict=True)],
            FetchParams(isolation=self.settings.isolation),
            max_bytes=max(self.wish.min_bytes, *limits),
        )
        return dict(zip(leds, results, strict=True))

    def read_due(self) -> dict[LedPartition, ReadResult]:
        """Read all that may be read now; of new share partitions, return only as many as it takes
        for `min_bytes`. Kafka loads them one after the other, and the first with enough answers."""
        results = self.read(self.fetchable())
        due = {led: result for led, result in results.items() if not led.is_new}
        size = sum(result.size for result in due.values())
        for led, result in results.items():
            if led.is_new:
                led.is_new = False
                if not due or size < self.wish.min_bytes:
                    due[led] = result
                    size += result.size
        return due

    def bytes_of(self, led: LedPartition, count: int) -> int:
        """Return how many bytes one of so many partitions may give."""
        return min(self.wish.max_bytes // count, max(led.read_bytes, self.wish.min_bytes))

    def take(self, led: LedPartition, result: ReadResult) -> None:
        """Acquire what was read of a partition, or note its error."""
        key, state = self._key(led), led.state
        assert state is not None
        if result.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            state.move_start(led.partition.log.log_start_offset)  # the next fetch goes on there
            self.answers[key] = PartitionAnswer()
            return
        if result.error:
            error = ErrorCode(result.error)
            failure = ShareError(error, f"The partition cannot be read: {error.name}.")
            if error in _VOID:
                led.fence(failure)
            self.answers[key] = PartitionAnswer(error, failure.message)
            return
        self.answers[key] = answer = self._acquire(led, result)
        self._records_left -= sum(last - first + 1 for first, last, _ in answer.acquired)
        self._fit(led, result.size, len(answer.records))
        led.changed()

    def _acquire(self, led: LedPartition, result: ReadResult) -> PartitionAnswer:
        parts, state = result.records, led.state
        assert state is not None
        if self._records_left <= 0 or not result.size:
            return PartitionAnswer()
        records: Buffer = parts[0] if len(parts) == 1 else b"".join(parts)
        batches = read_batches(records)
        limits = self.settings.limits
        wish = Wish(
            self.wish.member_id,
            state.next_fetch_offset,
            self._records_left,
            self.wish.batch_size,
            self.wish.is_strict,
            led.now() + limits.lock_ms / 1000,
        )
        bounds = [LogBatch(each.header.base_offset, each.header.last_offset) for each in batches]
        acquired = acquire(state, wish, limits, bounds)
        if self.settings.isolation == TRANSACTION_COMMITTED and result.aborted:
            ranges = aborted_ranges(records, batches, result.aborted)
            for first, last in ranges:
                state.archive(first, last, RecordState.ACQUIRED)
            state.tidy()
            acquired = without(acquired, ranges)
        if not acquired:
            return PartitionAnswer()
        return PartitionAnswer(records=cut_records(records, batches, acquired), acquired=acquired)

    def _fit(self, led: LedPartition, read: int, taken: int) -> None:
        """Let the next read of a share partition be about as large as what is taken of one."""
        if self._records_left > 0 and taken == read and 2 * read > led.read_bytes:
            led.read_bytes = min(2 * led.read_bytes, _READ_BYTES_MAX)
        elif read and 4 * taken < led.read_bytes:
            led.read_bytes = max(led.read_bytes // 2, _READ_BYTES_MIN)

    def note_failures(self) -> None:
        """Answer with the errors of the share partitions that are void."""
        for led in self.leds:
            if led.failure is not None:
                self.answers[self._key(led)] = PartitionAnswer(
                    led.failure.code, led.failure.message
                )

    def _key(self, led: LedPartition) -> TopicIdPartition:
        return led.key.topic_id, led.key.partition


def _request(led: LedPartition, bytes_max: int) -> FetchedPartition:
    """Return the read of a share partition where its group goes on."""
    assert led.state is not None
    asked = FetchRequest.FetchPartition(
        partition=led.key.partition,
        fetch_offset=led.state.next_fetch_offset,
        partition_max_bytes=bytes_max,
    )
    return FetchedPartition(led.partition.topic_partition.topic, led.key.topic_id, asked)
