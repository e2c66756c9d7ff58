"""The batches of a remote piece, in ranges of bytes: memory does not depend on a segment's size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from tidelog_pipeline.history.aborted import AbortedRange, is_aborted
from tidelog_pipeline.history.decoder import RawBatch, raw_batch
from tidelog_protocol.batch import HEADER_BYTES, MAGIC, crc_is_valid, read_header
from tidelog_storage.indexes import OFFSET_ENTRY
from tidelog_storage.remote.api import IndexKind
from tidelog_storage.remote.chunks import Buffers, CorruptRemoteDataError, fetch_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_pipeline.history.planner import Piece
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

Span = tuple[int, int]
"""Offsets [start, end)."""

__all__ = ["RANGE_BYTES", "remote_batches", "remote_headers"]

RANGE_BYTES = 8 << 20
_buffers = Buffers()  # of this process: a worker of Spark has one task at a time


def remote_batches(
    store: RemoteStorage,
    piece: Piece,
    aborted: Sequence[AbortedRange],
    range_bytes: int = RANGE_BYTES,
) -> Iterator[RawBatch]:
    """The batches with offsets of the piece, without markers and aborted transactions.

    The first and the last may have offsets outside of it. RemoteStorageError, of which
    RemoteResourceNotFound if the segment was deleted.
    """
    assert piece.part is not None
    segment = piece.part.segment
    bounds = piece.start, piece.end
    for header, data, inside in remote_headers(store, segment, bounds, range_bytes):
        if not crc_is_valid(data, header, inside):
            raise _corrupt(segment, f"the batch at {header.base_offset}", "its CRC is wrong")
        is_left_out = header.is_control or not header.records_count
        if not is_left_out and not is_aborted(header, aborted):
            yield raw_batch(data, inside, header)


def remote_headers(
    store: RemoteStorage, segment: RemoteSegment, bounds: Span, range_bytes: int = RANGE_BYTES
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """All batches of a segment with offsets in [start, end): the header, and where the batch is in
    the bytes around it. No checksum is looked at.

    The next range is fetched while the batches of one are used.
    """
    start, end = bounds
    position = _position_of(store, segment, start)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(_fetch, store, segment, position, range_bytes)
        is_over = position >= segment.size
        while not is_over:
            buffer, size = following.result()
            data = memoryview(buffer)[:size]
            batches, used, cut = _whole_batches(segment, data, position)
            if not used and cut <= len(data):
                raise _corrupt(segment, f"byte {position}", "its last batch is cut")
            position += used
            is_over = position >= segment.size
            is_over = is_over or (bool(batches) and batches[-1][0].next_offset >= end)
            if not is_over:  # again from the batch that was cut: less than to join the two ranges
                size = max(range_bytes, cut)
                following = pool.submit(_fetch, store, segment, position, size)
            for header, inside in batches:
                if header.base_offset >= end:
                    return
                if header.last_offset >= start:
                    yield header, data, inside
            if isinstance(buffer, bytearray):
                _buffers.give(buffer)


def _fetch(
    store: RemoteStorage, segment: RemoteSegment, start: int, size: int
) -> tuple[bytes | bytearray, int]:
    end = min(start + size, segment.size)
    return fetch_range(store, segment, start, end, _buffers), end - start


def _whole_batches(
    segment: RemoteSegment, data: memoryview, position: int
) -> tuple[list[tuple[BatchHeader, int]], int, int]:
    """The batches that are whole in these bytes, with their places; how many bytes they are, and
    how many the batch has that is cut by the end of the bytes, as far as its header is there."""
    found: list[tuple[BatchHeader, int]] = []
    inside = 0
    while len(data) - inside >= HEADER_BYTES:
        header = read_header(data, inside)
        size = header.size_in_bytes
        if header.magic != MAGIC or not HEADER_BYTES <= size <= segment.size - position - inside:
            raise _corrupt(segment, f"byte {position + inside}", "it is no record batch")
        if size > len(data) - inside:
            return found, inside, size
        found.append((header, inside))
        inside += size
    return found, inside, 0


def _position_of(store: RemoteStorage, segment: RemoteSegment, offset: int) -> int:
    """Where a batch begins at or before an offset, by the offset index."""
    if offset <= segment.start_offset:
        return 0
    with closing(store.fetch_index(segment, IndexKind.OFFSET)) as stream:
        data = stream.read()
    if len(data) % OFFSET_ENTRY.size:
        raise CorruptRemoteDataError(f"{segment.segment_id}: its offset index is cut")
    found = 0
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        if segment.start_offset + relative > offset:
            break
        found = position
    return found


def _corrupt(segment: RemoteSegment, place: str, what: str) -> CorruptRemoteDataError:
    name = f"{segment.topic}-{segment.partition} {segment.start_offset}..{segment.end_offset}"
    return CorruptRemoteDataError(f"{name}, segment {segment.segment_id}, {place}: {what}")
