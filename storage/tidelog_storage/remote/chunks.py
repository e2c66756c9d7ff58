"""Pieces of a remote segment in memory: whole batches, checked once, served many times.

A chunk begins and ends at batches, so its CRCs can be checked where it is fetched, on a worker
thread, and nothing that a store made up, cut short or let rot ever reaches a cache. After that no
batch is looked at again: a read is two binary searches and a slice. Frozen, so any thread may have
it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import HEADER_BYTES, MAGIC, crc_is_valid, read_header
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from typing import BinaryIO

    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

__all__ = ["Chunk", "ChunkPlace", "CorruptRemoteDataError", "load_chunk", "read_exactly"]


class CorruptRemoteDataError(RemoteStorageError):
    """The store answered with bytes that cannot be those of the segment."""


class ChunkPlace(NamedTuple):
    """Where a chunk lies in a segment's `.log`. Not `exact`: it ends with the last whole batch at
    or before `end`, as no index entry says where a batch begins near there."""

    start: int
    end: int
    exact: bool = True


class Chunk:
    """Whole batches of one segment from byte `start` to `end`.

    `_positions[i]` is where batch i begins in `data`, one more than batches; `_next_offsets[i]` the
    offset behind it.
    """

    __slots__ = ("_next_offsets", "_positions", "data", "end", "start")

    def __init__(
        self, start: int, data: bytes, positions: array[int], next_offsets: array[int]
    ) -> None:
        self.start = start
        self.data = data
        self.end = start + positions[-1]
        self._positions = positions
        self._next_offsets = next_offsets

    def __len__(self) -> int:
        return len(self._next_offsets)

    @property
    def weight(self) -> int:
        """Bytes of memory, about."""
        return len(self.data) + 16 * len(self._next_offsets)

    def batch_with(self, offset: int) -> int:
        """The first batch that ends at or above `offset`; `len(self)` if none does."""
        return bisect_right(self._next_offsets, offset)

    def batches_below(self, end_offset: int) -> int:
        """How many batches lie wholly below an offset."""
        return bisect_right(self._next_offsets, end_offset)

    def next_offset(self, batch: int) -> int:
        """The offset behind a batch."""
        return self._next_offsets[batch]

    def position(self, batch: int) -> int:
        """Where a batch begins in `data`."""
        return self._positions[batch]

    def fitting(self, first: int, stop: int, max_bytes: int) -> int:
        """The batch behind the last of [first, stop) that `max_bytes` from `first` on still hold.

        `first` itself if that is too large already.
        """
        positions = self._positions
        behind = bisect_right(positions, positions[first] + max_bytes, first, stop + 1)
        return max(behind - 1, first)

    def view(self, first: int, stop: int) -> memoryview:
        """The batches [first, stop) as they are."""
        return memoryview(self.data)[self._positions[first] : self._positions[stop]]


def load_chunk(store: RemoteStorage, segment: RemoteSegment, place: ChunkPlace) -> Chunk:
    """Fetch and check a chunk. Blocks; RemoteStorageError.

    CorruptRemoteDataError for anything but the segment's own whole batches.
    """
    start, end, exact = place
    data = _fetch(store, segment, start, end)
    if not exact and len(data) >= HEADER_BYTES:
        first = read_header(data).size_in_bytes
        if len(data) < first <= segment.size - start:  # one batch is larger than a chunk
            data = _fetch(store, segment, start, start + first)
    positions, next_offsets = _walk(segment, start, data, exact=exact)
    if not next_offsets:
        raise _corrupt(segment, start, "no batch")
    return Chunk(start, data, positions, next_offsets)


def _fetch(store: RemoteStorage, segment: RemoteSegment, start: int, end: int) -> bytes:
    with store.fetch_segment(segment, start, end - 1) as stream:
        data = read_exactly(stream, end - start)
    if len(data) < end - start:
        raise _corrupt(segment, start, f"{len(data)} bytes instead of {end - start}")
    return data


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """So many bytes of a stream, fewer only at its end."""
    data = stream.read(size)
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while data and left > 0:
        data = stream.read(left)
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


def _walk(
    segment: RemoteSegment, start: int, data: bytes, *, exact: bool
) -> tuple[array[int], array[int]]:
    """Positions and next offsets of the batches in `data`, each checked."""
    positions = array("q", (0,))
    next_offsets = array("q")
    position = 0
    size = len(data)
    next_offset = segment.start_offset
    while size - position >= HEADER_BYTES:
        header = read_header(data, position)
        behind = position + header.size_in_bytes
        if header.magic != MAGIC or header.size_in_bytes < HEADER_BYTES:
            raise _corrupt(segment, start + position, "no batch header")
        if behind > size:
            break
        # Offsets rise inside the segment: bytes of another one, or of another place, do not.
        if not next_offset <= header.base_offset <= header.last_offset <= segment.end_offset:
            raise _corrupt(
                segment,
                start + position,
                f"offsets {header.base_offset} to {header.last_offset} behind {next_offset - 1}",
            )
        if not crc_is_valid(data, header, position):
            raise _corrupt(segment, start + position, "a batch with another CRC")
        position = behind
        next_offset = header.last_offset + 1
        positions.append(position)
        next_offsets.append(next_offset)
    if exact and position != size:
        raise _corrupt(segment, start + position, "no batch, or half of one")
    return positions, next_offsets


def _corrupt(segment: RemoteSegment, position: int, what: str) -> CorruptRemoteDataError:
    return CorruptRemoteDataError(
        f"{segment.partition.topic}-{segment.partition.partition}, remote segment"
        f" {segment.segment_id.hex()} of offsets {segment.start_offset} to {segment.end_offset},"
        f" byte {position}: {what}"
    )
