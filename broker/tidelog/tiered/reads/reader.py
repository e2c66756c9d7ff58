"""One read of the remote tier: a fetch of records, or a look-up by time.

    fetch:    segment of (epoch, offset) -> chunk -> cut -> next chunks in memory -> aborted
    look-up:  segment after segment -> time index -> chunk -> record

Both are coroutines that wait only in `Loader`, for data that is not in memory; if all of it is,
they end without waiting. The segment of an offset is looked up once, in the metadata as it is then;
log start and leader epochs are read when they are needed.

KIP-405, rules beyond it: a read is cut where the leader epoch it began in ends, in the segment or
in the log's lineage, because behind that the segment may be of a dead branch; the same holds for
aborted transactions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import iter_records, read_header
from tidelog_storage.remote.api import RemoteResourceNotFound
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.lineage import part_end
from tidelog_storage.types import AbortedTransaction, OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.tiered.reads.loading import Loader
    from tidelog_storage.indexes import AbortedEntry
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.chunks import Chunk
    from tidelog_storage.remote.index_cache import RemoteIndexes

    SegmentAt = Callable[[TopicIdPartition, int, Log, RemoteLogMetadata], tuple[RemoteSegment, int]]
    """Which segment to read an offset from, and where to stop; `segment_at` is the broker's."""

__all__ = ["RemoteRead", "RemoteRecords", "read", "search", "segment_at"]

_PAUSE_SEGMENTS = 200  # between two pauses of a search


@dataclass(frozen=True, slots=True)
class RemoteRead:
    """What is read: whole batches from the one that holds `offset` on, at most `max_bytes`.

    A larger first batch is given whole if `min_one_batch`. `committed` readers get the aborted
    transactions too.
    """

    partition: TopicIdPartition
    offset: int
    max_bytes: int
    min_one_batch: bool = True
    committed: bool = False


class RemoteRecords(NamedTuple):
    """What was read, in buffers of whole batches or parts of them; all but the size may be empty.

    Nothing with a `next_offset` above the asked one: there is nothing up to there, and there the
    local log goes on. `place` is where the reader stopped: segment and byte in it.
    """

    parts: Sequence[memoryview]
    size: int
    next_offset: int
    aborted: Sequence[AbortedTransaction] | None = None
    place: tuple[RemoteSegment, int] | None = None


def segment_at(
    partition: TopicIdPartition, offset: int, log: Log, metadata: RemoteLogMetadata
) -> tuple[RemoteSegment, int]:
    """Return the segment to read an offset from, and the first offset not to be read from it."""
    epoch = log.epochs.epoch_for_offset(offset)
    if epoch is not None and offset >= log.log_start_offset:
        segment = metadata.segment_for(partition, epoch, offset)
        if segment is not None:
            return segment, _end_in(segment, epoch, log)
    raise RemoteResourceNotFound(
        f"{partition.topic}-{partition.partition}: no remote segment has offset {offset} of leader"
        f" epoch {epoch}; the log starts at {log.log_start_offset}"
    )


def _end_in(segment: RemoteSegment, epoch: int, log: Log) -> int:
    """The first offset of the segment that is no longer of the epoch, there or in the log."""
    end_offset = log.epochs.end_offset_for(epoch, log.log_end_offset).offset
    return min(part_end(segment, epoch) + 1, end_offset)


async def read(
    request: RemoteRead,
    log: Log,
    metadata: RemoteLogMetadata,
    source: Loader,
    place: SegmentAt = segment_at,
) -> RemoteRecords:
    """Read for a consumer. RemoteResourceNotFound: the offset is in no segment (any more)."""
    offset = request.offset
    while True:
        segment, end_offset = place(request.partition, offset, log, metadata)
        if request.committed:
            # Only what is stable is copied, but this replica may not have the markers yet: one that
            # follows, or has just begun to lead. Kafka reads on (RemoteLogManager.read), and gives
            # records as committed whose abort it has not heard of.
            end_offset = min(end_offset, log.last_stable_offset)
            if offset >= end_offset:
                return RemoteRecords((), 0, request.offset, ())
        taken = await _take(request, offset, segment, source, end_offset=end_offset)
        if taken is not None:
            break
        offset = end_offset  # a gap at the segment's end
        if offset >= log.local_log_start_offset:
            return RemoteRecords((), 0, offset, () if request.committed else None)
    if not request.committed:
        return taken
    if not taken.size:
        return taken._replace(aborted=())
    transactions = _Aborted(request, taken.next_offset, log)
    return taken._replace(aborted=await transactions.collect(segment, metadata, source))


def _cut(chunk: Chunk, offset: int, end_offset: int, max_bytes: int) -> tuple[int, int, int]:
    """Of a chunk's batches the first one that a read from `offset` on takes, the one behind the
    last within `max_bytes`, and the one behind all that lie below `end_offset`: what follows may be
    of another branch."""
    first = chunk.batch_with(offset)
    stop = chunk.batches_below(end_offset)
    return first, chunk.fitting(first, stop, max_bytes) if first < stop else first, stop


async def _take(
    request: RemoteRead, offset: int, segment: RemoteSegment, source: Loader, *, end_offset: int
) -> RemoteRecords | None:
    """Batches of one segment; None if it has none from `offset` on and below `end_offset`."""
    parts: list[memoryview] = []
    size = 0
    chunk: Chunk | None = await source.chunk(segment, offset, request.max_bytes)
    while chunk is not None:
        first, until, stop = _cut(chunk, offset, end_offset, request.max_bytes - size)
        if first < stop:
            if until == first and not size:
                if not request.min_one_batch:
                    return RemoteRecords((), 0, request.offset)
                until = first + 1
            if until > first:
                parts.append(chunk.view(first, until))
                size += len(parts[-1])
                offset = chunk.next_offset(until - 1)
        # Where the reader goes on: at what is cut off too, if that begins with this chunk.
        position = chunk.start + chunk.position(until)
        if stop < len(chunk) or position < chunk.end or position >= segment.size:
            break
        if size:
            chunk = source.find(segment, offset, position)
        else:
            chunk = await source.chunk(segment, offset, request.max_bytes, position=position)
            assert position < chunk.end, "else this would never end"
    return RemoteRecords(parts, size, offset, None, (segment, position)) if size else None


class _Aborted:
    """The aborted transactions that overlap [request.offset, upper bound)."""

    def __init__(self, request: RemoteRead, upper_bound: int, log: Log) -> None:
        self._request = request
        self._upper_bound = upper_bound
        self._log = log
        self._found: dict[AbortedTransaction, None] = {}

    async def collect(
        self, segment: RemoteSegment, metadata: RemoteLogMetadata, source: Loader
    ) -> list[AbortedTransaction]:
        """Of the segment that was read; of later ones of the lineage, while what began below the
        bound may end there; of local ones."""
        log, epochs = self._log, self._log.epochs
        is_all = not segment.txn_index_empty and self._add(segment, await source.indexes(segment))
        if is_all:
            return list(self._found)
        offset = self._upper_bound
        while offset < log.local_log_start_offset:
            epoch = epochs.epoch_for_offset(offset)
            if epoch is None:
                break
            end_offset = epochs.end_offset_for(epoch, log.log_end_offset).offset
            following = metadata.next_segment_with_txn_index(self._request.partition, epoch, offset)
            if following is None:
                offset = end_offset
                continue
            if following.segment_id != segment.segment_id:
                segment = following
                if self._add(segment, await source.indexes(segment)):
                    return list(self._found)
            offset = max(_end_in(segment, epoch, log), offset + 1)
        local = log.aborted_transactions(self._request.offset, self._upper_bound)
        self._found.update(dict.fromkeys(local))
        return list(self._found)

    def _add(self, segment: RemoteSegment, indexes: RemoteIndexes) -> bool:
        """Add what overlaps; whether later segments add nothing."""
        for entry in indexes.transactions:
            if not self._is_of_lineage(entry, segment):
                continue
            begins_below = entry.first_offset < self._upper_bound
            if begins_below and entry.last_offset >= self._request.offset:
                self._found[AbortedTransaction(entry.producer_id, entry.first_offset)] = None
            if entry.last_stable_offset >= self._upper_bound:
                return True
        return False

    def _is_of_lineage(self, entry: AbortedEntry, segment: RemoteSegment) -> bool:
        """Whether the marker is in the log: in a dead branch it says nothing of a live
        transaction."""
        offset = entry.last_offset
        epochs = [epoch for epoch, start in segment.epochs if start <= offset]
        if not epochs:
            return False  # below the log start, when the segment was copied
        is_in_log = offset < self._log.log_end_offset
        return is_in_log and self._log.epochs.epoch_for_offset(offset) == epochs[-1]


# ---- look-up by time -----------------------------------------------------------------------------


async def search(
    timestamp: int,
    partition: TopicIdPartition,
    log: Log,
    metadata: RemoteLogMetadata,
    source: Loader,
) -> OffsetAndTimestamp | None:
    """The first remote record of the log as new as `timestamp` (ms) or newer.

    None: it is to be looked for in the local part, which begins at or below all that was not
    searched here (Kafka: RemoteLogManager.findOffsetByTimestamp).
    """
    offset = log.log_start_offset
    seen = 0
    while offset < log.local_log_start_offset:
        seen += 1
        if seen % _PAUSE_SEGMENTS == 0:
            await asyncio.sleep(0)
        offset = max(offset, log.log_start_offset)
        if offset >= log.local_log_start_offset:
            break  # the log start has passed the border since the last step
        segment, end_offset = segment_at(partition, offset, log, metadata)
        if segment.max_timestamp >= timestamp:
            found = await _search_segment(timestamp, offset, segment, source, end_offset=end_offset)
            if found is not None:
                return found
        offset = end_offset
    return None


async def _search_segment(
    timestamp: int, offset: int, segment: RemoteSegment, source: Loader, *, end_offset: int
) -> OffsetAndTimestamp | None:
    indexes = await source.indexes(segment, with_times=True)
    assert indexes.times is not None
    offset = max(offset, indexes.times.lookup(timestamp))
    position = indexes.offsets.lookup(offset)
    while position < segment.size:
        chunk = await source.chunk(segment, offset, 0, position=position)
        stop = chunk.batches_below(end_offset)
        for batch in range(chunk.batch_with(offset), stop):
            found = _search_batch(chunk, batch, timestamp, offset)
            if found is not None:
                return found
        if stop < len(chunk):
            return None
        position = chunk.end
        offset = max(offset, chunk.end_offset)
    return None


def _search_batch(
    chunk: Chunk, batch: int, timestamp: int, offset: int
) -> OffsetAndTimestamp | None:
    data = chunk.view(batch, batch + 1)
    header = read_header(data)
    if header.max_timestamp < timestamp:
        return None
    try:
        for record in iter_records(data):
            if record.timestamp >= timestamp and record.offset >= offset:
                return OffsetAndTimestamp(record.offset, record.timestamp, header.leader_epoch)
    except ProtocolError as error:
        raise CorruptRemoteDataError(f"a remote batch cannot be read: {error}") from error
    return None
