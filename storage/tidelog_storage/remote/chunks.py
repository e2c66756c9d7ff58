"""Pieces of a remote segment in memory: whole batches, checked once, served many times.

A chunk begins and ends at batches, so its CRCs can be checked where it is fetched, on a worker
thread, and nothing that a store made up, cut short or let rot ever reaches a cache. After that no
batch is looked at again: a read is two binary searches and a slice. Frozen, so any thread may have
it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    header_fields,
    read_header,
)
from tidelog_protocol.checksum import crc32c
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from typing import Any, BinaryIO

    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage

__all__ = [
    "Buffers",
    "Chunk",
    "ChunkPlace",
    "CorruptRemoteDataError",
    "fetch_range",
    "load_chunk",
    "read_exactly",
    "walk",
]

_STEP = 1 << 20  # sizes of buffers are multiples of this, of the smaller one below it
_STEP_SMALL = 1 << 16


class CorruptRemoteDataError(RemoteStorageError):
    """The store answered with bytes that cannot be those of the segment."""


class ChunkPlace(NamedTuple):
    """Where a chunk lies in a segment's `.log`. Not `exact`: it ends with the last whole batch at
    or before `end`, as no index entry says where a batch begins near there."""

    start: int
    end: int
    exact: bool = True


class Buffers:
    """Memory of chunks that are gone, for the next ones: fresh pages cost more than reading a chunk
    from the page cache. Any thread may use it: lists take and give one thing at a time.
    """

    def __init__(self, bytes_max: int = 32 << 20) -> None:
        self._bytes_max = bytes_max
        self.free: list[bytearray] = []  # given back, and not taken again

    def take(self, size: int) -> bytearray:
        """A buffer of at least so many bytes, with anything in it."""
        step = _STEP_SMALL if size <= _STEP else _STEP
        size = -(-size // step) * step
        for _ in range(len(self.free)):
            try:
                buffer = self.free.pop()
            except IndexError:
                break  # another thread has it
            if size <= len(buffer) <= 2 * size and _is_unseen(buffer):
                return buffer
            self.free.insert(0, buffer)
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Return the buffer. Only existing views may still read it."""
        self.free.append(buffer)
        while sum(map(len, self.free)) > self._bytes_max:
            with suppress(IndexError):  # another thread was faster
                self.free.pop(0)

    def clear(self) -> None:
        """Release all memory."""
        self.free.clear()


def _is_unseen(buffer: bytearray) -> bool:
    """Return whether no view of the buffer is left: a part of it may still be in transmission."""
    try:
        del buffer[-1:]  # raises BufferError if the buffer has views
    except BufferError:
        return False
    buffer.append(0)
    return True


class Chunk:
    """Whole batches of one segment from byte `start` to `end`.

    `_positions[i]` is where batch i begins in `_data`, one more than batches; `_next_offsets[i]`
    the offset behind it. `_data` may go on behind the last batch.
    """

    __slots__ = (
        "_buffers",
        "_data",
        "_next_offsets",
        "_positions",
        "_rest_bytes",
        "end",
        "end_offset",
        "first_offset",
        "is_piece",
        "start",
    )

    def __init__(
        self,
        start: int,
        data: bytes | bytearray,
        positions: array[int],
        next_offsets: array[int],
        buffers: Buffers | None = None,
        *,
        rest_bytes: int | None = None,
    ) -> None:
        """`buffers` takes the data back. A piece out of the page cache (`near.py`) has
        `rest_bytes`: so many bytes of the segment follow the last batch in `data`."""
        self.start = start
        self.end = start + positions[-1]
        self.first_offset = int.from_bytes(data[:8])  # a batch begins with its base offset
        self.end_offset = next_offsets[-1]
        self.is_piece = rest_bytes is not None
        self._rest_bytes = rest_bytes or 0
        self._data = data
        self._positions = positions
        self._next_offsets = next_offsets
        self._buffers = buffers

    def __del__(self) -> None:
        """Nothing that anybody can see depends on when this happens."""
        if self._buffers is not None and isinstance(self._data, bytearray):
            self._buffers.give(self._data)

    def __len__(self) -> int:
        return len(self._next_offsets)

    @property
    def weight(self) -> int:
        """Bytes of memory, about."""
        return len(self._data) + 16 * len(self._next_offsets)

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
        """Where a batch begins, counted from the chunk's start."""
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
        return memoryview(self._data)[self._positions[first] : self._positions[stop]]

    def rest(self) -> memoryview:
        """What was read of the segment behind the last batch."""
        end = self._positions[-1]
        return memoryview(self._data)[end : end + self._rest_bytes]


def load_chunk(
    store: RemoteStorage, segment: RemoteSegment, place: ChunkPlace, buffers: Buffers | None = None
) -> Chunk:
    """Fetch and check a chunk. Blocks; RemoteStorageError.

    CorruptRemoteDataError for anything but the segment's own whole batches. Streams that have
    `fills_buffers` are read into one of `buffers`.
    """
    start, end, exact = place
    data = fetch_range(store, segment, start, end, buffers)
    size = end - start
    if not exact and size >= HEADER_BYTES:
        first = read_header(data).size_in_bytes
        if size < first <= segment.size - start:  # one batch is larger than a chunk
            size = first
            data = fetch_range(store, segment, start, start + size, None)
    positions, next_offsets = walk(segment, start, data, size, exact=exact)
    if not next_offsets:
        raise _corrupt(segment, start, "no batch")
    return Chunk(start, data, positions, next_offsets, buffers)


def fetch_range(
    store: RemoteStorage, segment: RemoteSegment, start: int, end: int, buffers: Buffers | None
) -> bytes | bytearray:
    """Exactly these bytes; a buffer goes on behind them. Blocks; RemoteStorageError."""
    wanted = end - start
    data: bytes | bytearray
    with store.fetch_segment(segment, start, end - 1) as stream:
        if buffers is not None and getattr(stream, "fills_buffers", False):
            data = buffers.take(wanted)
            size = _fill(stream, data, wanted)
        else:
            data = read_exactly(stream, wanted)
            size = len(data)
    if size < wanted:
        raise _corrupt(segment, start, f"{size} bytes instead of {wanted}")
    return data


def _fill(stream: Any, buffer: bytearray, wanted: int) -> int:
    size = 0
    with memoryview(buffer) as view:
        while size < wanted:
            read: int = stream.readinto(view[size:wanted])
            if not read:
                break
            size += read
    return size


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


def walk(
    segment: RemoteSegment,
    start: int,
    data: bytes | bytearray,
    size: int,
    *,
    exact: bool = False,
    batches_max: int = sys.maxsize,
) -> tuple[array[int], array[int]]:
    """Positions and next offsets of the batches in data[:size], each checked; of so many at most.

    CorruptRemoteDataError, also for half a batch at the end if it is to end `exact`ly.
    """
    positions = array("q", (0,))
    next_offsets = array("q")
    position = 0
    next_offset = segment.start_offset
    epochs, slot = segment.epochs, 0
    with memoryview(data) as view:
        while size - position >= HEADER_BYTES and len(next_offsets) < batches_max:
            base_offset, length, epoch, magic, crc, _, delta, *_ = header_fields(view[position:])
            behind = position + length + LENGTH_OVERHEAD
            if magic != MAGIC or length + LENGTH_OVERHEAD < HEADER_BYTES:
                raise _corrupt(segment, start + position, "no batch header")
            if behind > size:
                break
            # Offsets rise inside the segment: bytes of another one, or of another place, do not.
            last_offset = base_offset + delta
            if not next_offset <= base_offset <= last_offset <= segment.end_offset:
                what = f"offsets {base_offset} to {last_offset} behind {next_offset - 1}"
                raise _corrupt(segment, start + position, what)
            if crc32c(view[position + CRC_START : behind], 0) != crc:
                raise _corrupt(segment, start + position, "a batch with another CRC")
            # The CRC does not cover the leader epoch. What was below the log start when the segment
            # was copied may have one that was forgotten.
            while slot + 1 < len(epochs) and epochs[slot + 1][1] <= base_offset:
                slot += 1
            if epoch != epochs[slot][0] and base_offset >= epochs[0][1]:
                what = f"leader epoch {epoch} instead of {epochs[slot][0]}"
                raise _corrupt(segment, start + position, what)
            position = behind
            next_offset = last_offset + 1
            positions.append(position)
            next_offsets.append(next_offset)
    if exact and position != size:
        raise _corrupt(segment, start + position, "no batch, or half of one")
    return positions, next_offsets


def _corrupt(segment: RemoteSegment, position: int, what: str) -> CorruptRemoteDataError:
    return CorruptRemoteDataError(
        f"{segment.topic}-{segment.partition}, remote segment"
        f" {segment.segment_id.hex} of offsets {segment.start_offset} to {segment.end_offset},"
        f" byte {position}: {what}"
    )
