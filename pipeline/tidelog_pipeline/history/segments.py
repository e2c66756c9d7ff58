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
from tidelog_storage.remote.chunks import CorruptRemoteDataError, read_exactly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_pipeline.history.planner import Piece
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

Span = tuple[int, int]
"""Offsets [start, end)."""

__all__ = ["RANGE_BYTES", "remote_batches", "remote_headers"]

RANGE_BYTES = 8 << 20


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
    position = fetched = _position_of(store, segment, start)
    data = memoryview(b"")  # [position, fetched)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(_fetch, store, segment, fetched, range_bytes)
        while fetched < segment.size:
            range_ = following.result()
            fetched += len(range_)
            data = memoryview(b"".join((data, range_)) if data else range_)
            batches, used = _whole_batches(segment, data, position)
            position, rest = position + used, data[used:]
            is_over = bool(batches) and batches[-1][0].next_offset >= end
            if fetched < segment.size and not is_over:
                following = pool.submit(_fetch, store, segment, fetched, range_bytes)
            for header, inside in batches:
                if header.base_offset >= end:
                    return
                if header.last_offset >= start:
                    yield header, data, inside
            if is_over:
                return
            data = rest
    if data:
        raise _corrupt(segment, f"byte {position}", "its last batch is cut")


def _fetch(store: RemoteStorage, segment: RemoteSegment, start: int, size: int) -> bytes:
    last = min(start + size, segment.size) - 1
    with closing(store.fetch_segment(segment, start, last)) as stream:
        found = read_exactly(stream, last + 1 - start)
    if len(found) < last + 1 - start:
        raise _corrupt(segment, f"byte {start}", f"it ends after {len(found)} bytes")
    return found


def _whole_batches(
    segment: RemoteSegment, data: memoryview, position: int
) -> tuple[list[tuple[BatchHeader, int]], int]:
    """The batches that are whole in these bytes, with their places; how many bytes they are."""
    found, inside = [], 0
    while (header := _whole_batch(segment, data, inside, position)) is not None:
        found.append((header, inside))
        inside += header.size_in_bytes
    return found, inside


def _whole_batch(
    segment: RemoteSegment, data: memoryview, inside: int, position: int
) -> BatchHeader | None:
    """The batch at `inside`, None if it is not whole there."""
    left = len(data) - inside
    if left < HEADER_BYTES:
        return None
    header = read_header(data, inside)
    size = header.size_in_bytes
    if header.magic != MAGIC or not HEADER_BYTES <= size <= segment.size - position - inside:
        raise _corrupt(segment, f"byte {position + inside}", "it is no record batch")
    return header if size <= left else None


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
