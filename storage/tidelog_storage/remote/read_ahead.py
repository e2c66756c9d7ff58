"""Chunks of remote segments in memory, bounded by bytes and shared by all readers of a segment.

Chunks of a segment lie on one grid, drawn from its offset index, so that readers at different
places ask for the same ones and a catch-up fetches every byte once. Who reads on where it stopped
is given a window ahead that doubles, and is told what to fetch for it. All state changes on the
loop alone; fetching is `sources.py`'s.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from tidelog_storage.remote.chunks import ChunkPlace

if TYPE_CHECKING:
    from tidelog_storage.indexes import OffsetIndex
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.chunks import Chunk

__all__ = ["Grid", "ReadAhead"]

CHUNK_BYTES = 1 << 20
CAPACITY_BYTES = 64 << 20
WINDOW_BYTES_MAX = 8 << 20
_READERS_MAX = 256  # that read on, remembered by the offset where they stopped
_GRIDS_MAX = 1024


class Grid:
    """Where the chunks of one segment begin: at index entries, so at batches.

    Invariant: `_bounds` rises from 0 to the segment's size.
    """

    __slots__ = ("_bounds", "_chunk_bytes")

    def __init__(self, index: OffsetIndex, size: int, chunk_bytes: int) -> None:
        positions = index.positions
        bounds = [0]
        while True:
            slot = bisect_left(positions, bounds[-1] + chunk_bytes)
            if slot >= len(positions):
                break
            bounds.append(positions[slot])
        if size > bounds[-1]:
            bounds.append(size)
        self._bounds = bounds
        self._chunk_bytes = chunk_bytes

    def place(self, position: int) -> ChunkPlace:
        """The chunk that holds this byte of the segment, as far as the grid knows."""
        bounds = self._bounds
        slot = bisect_right(bounds, position)
        start, end = bounds[slot - 1], bounds[slot]
        if end - start > 2 * self._chunk_bytes:  # few index entries: do not fetch it all at once
            return ChunkPlace(start, start + self._chunk_bytes, exact=False)
        return ChunkPlace(start, end)

    def add(self, bound: int) -> None:
        """A batch begins (or the segment ends) at this byte."""
        if self._bounds[bisect_left(self._bounds, bound)] != bound:
            insort(self._bounds, bound)


class ReadAhead:
    """The chunks that are there, least recently used first.

    Invariant: `bytes` is the weight of all of them and at most `capacity_bytes`. `_unread` are
    those that were fetched ahead and that nobody came for yet; they take at most half of it.
    """

    def __init__(
        self,
        capacity_bytes: int = CAPACITY_BYTES,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        window_bytes_max: int = WINDOW_BYTES_MAX,
    ) -> None:
        self.bytes = 0
        self.capacity_bytes = capacity_bytes
        self.chunk_bytes = chunk_bytes
        self._window_bytes_max = window_bytes_max
        self._chunks: dict[tuple[bytes, int], Chunk] = {}
        self._unread: dict[tuple[bytes, int], int] = {}
        self._unread_bytes = 0
        self._grids: dict[bytes, Grid] = {}
        self._readers: dict[tuple[bytes, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._chunks)

    # ---- chunks -------------------------------------------------------------------------------

    def grid(self, segment: RemoteSegment, index: OffsetIndex) -> Grid:
        """The grid of a segment; `index` is its offset index."""
        grids = self._grids
        grid = grids.get(segment.segment_id)
        if grid is None:
            if len(grids) >= _GRIDS_MAX:
                del grids[next(iter(grids))]
            grid = Grid(index, segment.size, self.chunk_bytes)
            grids[segment.segment_id] = grid
        return grid

    def get(self, segment_id: bytes, start: int) -> Chunk | None:
        """The chunk that begins at this byte, for a reader."""
        key = (segment_id, start)
        chunk = self._chunks.pop(key, None)
        if chunk is not None:
            self._chunks[key] = chunk
            self._unread_bytes -= self._unread.pop(key, 0)
        return chunk

    def has(self, segment_id: bytes, start: int) -> bool:
        """Whether the chunk is there; it is no nearer to being used for that."""
        return (segment_id, start) in self._chunks

    def put(self, segment: RemoteSegment, chunk: Chunk, *, ahead: bool = False) -> None:
        """Keep a chunk, and let others go for it; `ahead` if nobody has come for it yet."""
        key = (segment.segment_id, chunk.start)
        self._drop(key)
        grid = self._grids.get(segment.segment_id)
        if grid is not None:
            grid.add(chunk.end)
        weight = chunk.weight
        if weight > self.capacity_bytes:
            return
        self._chunks[key] = chunk
        self.bytes += weight
        if ahead:
            self._unread[key] = weight
            self._unread_bytes += weight
        while self.bytes > self.capacity_bytes:
            self._drop(next(iter(self._chunks)))

    def forget(self, segment_id: bytes) -> None:
        """The segment is gone, or what is known of it was wrong."""
        self._grids.pop(segment_id, None)
        for key in [key for key in self._chunks if key[0] == segment_id]:
            self._drop(key)

    def clear(self) -> None:
        """Let all go."""
        self._chunks.clear()
        self._unread.clear()
        self._grids.clear()
        self._readers.clear()
        self.bytes = self._unread_bytes = 0

    def _drop(self, key: tuple[bytes, int]) -> None:
        chunk = self._chunks.pop(key, None)
        if chunk is not None:
            self.bytes -= chunk.weight
            self._unread_bytes -= self._unread.pop(key, 0)

    # ---- readers ------------------------------------------------------------------------------

    def has_room_ahead(self, in_flight_bytes: int) -> bool:
        """Whether one more chunk may be fetched ahead while so many bytes of others are."""
        return self._unread_bytes + in_flight_bytes + self.chunk_bytes <= self.capacity_bytes // 2

    def read_on(self, partition: TopicIdPartition, offset: int, next_offset: int) -> int:
        """A read of [offset, next offset) was served: how many bytes to have ready behind it.

        None (0) for a reader that was not seen before; double the last window for one that goes on.
        """
        readers = self._readers
        window = readers.pop((partition.topic_id, partition.partition, offset), -1)
        if window < 0:
            window = 0
        else:
            window = min(max(2 * window, 2 * self.chunk_bytes), self._window_bytes_max)
        if len(readers) >= _READERS_MAX:
            del readers[next(iter(readers))]
        readers[partition.topic_id, partition.partition, next_offset] = window
        return window
