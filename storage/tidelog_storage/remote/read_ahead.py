"""Chunks of remote segments in memory, bounded by bytes and shared by all readers of a segment.

Chunks of a segment lie on one grid, drawn from its offset index, so that readers at different
places ask for the same ones and a catch-up fetches every byte once. Who reads on where it stopped
is given a window ahead that doubles, and is told what to fetch for it. All state changes on the
loop alone; fetching is `sources.py`'s.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.chunks import ChunkPlace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tidelog_storage.indexes import OffsetIndex
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.chunks import Chunk

__all__ = ["Grid", "ReadAhead", "Window"]

CHUNK_BYTES = 8 << 20  # at most: an S3 client takes milliseconds of processor time a request
CHUNK_BYTES_MIN = 256 << 10
CAPACITY_BYTES = 64 << 20
WINDOW_BYTES_MAX = 16 << 20
_LOOKS = 4  # while a window is read: to look takes as long as half an answer
_READERS_MAX = 1024  # that read on, remembered by the offset where they stopped
_GRIDS_MAX = 1024
_AHEAD_MS_MAX = 30_000
_UNUSED_MS_MAX = 60_000  # what nobody came for so long goes
_ACTIVE_MS = 5_000  # a reader that read that long ago is counted in


class Grid:
    """Where the chunks of one segment begin: at index entries, so at batches.

    Invariant: `_bounds` rises from 0 to the segment's size.
    """

    __slots__ = ("_bounds", "_chunk_bytes")

    def __init__(self, positions: Sequence[int], size: int, chunk_bytes: int) -> None:
        """`positions` are those of the offset index."""
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

    @property
    def is_whole(self) -> bool:
        """Whether the segment is one chunk."""
        return len(self._bounds) == 2

    def place(self, position: int) -> ChunkPlace:
        """The chunk that holds this byte of the segment, as far as the grid knows."""
        bounds = self._bounds
        slot = bisect_right(bounds, position)
        start, end = bounds[slot - 1], bounds[slot]
        if end - start > 2 * self._chunk_bytes:  # few index entries: do not fetch it all at once
            return ChunkPlace(start, start + self._chunk_bytes, exact=False)
        return ChunkPlace(start, end)

    def place_at(self, bound: int) -> ChunkPlace:
        """The chunk that holds this byte, where a batch begins."""
        place = self.place(bound)
        if place.end <= bound:  # somebody came here by another way than over chunks
            self.add(bound)
            place = self.place(bound)
        return place

    def add(self, bound: int) -> None:
        """A batch begins (or the segment ends) at this byte."""
        if self._bounds[bisect_left(self._bounds, bound)] != bound:
            insort(self._bounds, bound)


class Window(NamedTuple):
    """How many bytes to have ready behind a reader; how many he has read since it was looked
    whether they are, and whether it is to be looked now."""

    bytes: int
    unlooked: int
    is_due: bool


_NO_WINDOW = Window(0, 0, is_due=False)


class _Chunks:
    """Some chunks in an order, and their weight."""

    __slots__ = ("bytes", "chunks")

    def __init__(self) -> None:
        self.bytes = 0
        self.chunks: dict[tuple[UUID, int], tuple[Chunk, int]] = {}  # with when they came

    def put(self, key: tuple[UUID, int], chunk: Chunk, now_ms: int) -> None:
        """Add one that is not there, as the newest."""
        self.chunks[key] = (chunk, now_ms)
        self.bytes += chunk.weight

    def pop(self, key: tuple[UUID, int]) -> Chunk | None:
        """Take one out."""
        entry = self.chunks.pop(key, None)
        if entry is None:
            return None
        self.bytes -= entry[0].weight
        return entry[0]

    def drop_oldest(self) -> None:
        """Let the first one go."""
        self.pop(next(iter(self.chunks)))


class ReadAhead:
    """The chunks that are there, in three orders, of which the first goes first:

    - `_done`, read to their end by somebody; others may come for them, or not;
    - `_reading`, in the middle of which somebody is;
    - `_ahead`, fetched for readers that are still to come; they take at most half of the room.

    Invariants: `weight` is that of all and at most `capacity_bytes`; no key is in two of them; a
    grid has the ends of all chunks of its segment.
    """

    def __init__(
        self,
        capacity_bytes: int = CAPACITY_BYTES,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        window_bytes_max: int = WINDOW_BYTES_MAX,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.chunk_bytes = chunk_bytes
        self._window_bytes_max = window_bytes_max
        self._done = _Chunks()
        self._reading = _Chunks()
        self._ahead = _Chunks()
        self._grids: dict[UUID, Grid] = {}
        self._readers: dict[tuple[UUID, int, int], Window] = {}  # by where they stopped
        self._partitions: dict[tuple[UUID, int], int] = {}  # when they were last asked for

    def __len__(self) -> int:
        return sum(len(part.chunks) for part in self._parts)

    @property
    def weight(self) -> int:
        """Bytes of all chunks."""
        return self._done.bytes + self._reading.bytes + self._ahead.bytes

    @property
    def _parts(self) -> tuple[_Chunks, _Chunks, _Chunks]:
        return self._done, self._reading, self._ahead

    # ---- chunks -------------------------------------------------------------------------------

    def is_whole(self, segment: RemoteSegment, now_ms: int) -> bool:
        """Whether the segment is small enough to be one chunk: then nobody needs its index."""
        grid = self._grids.get(segment.segment_id)
        if grid is not None:
            return grid.is_whole
        share = self.capacity_bytes // (8 * self._active(segment.topic_id_partition, now_ms))
        if segment.size > min(2 * self.chunk_bytes, share):
            return False
        self._add_grid(segment, Grid((), segment.size, self.chunk_bytes))
        return True

    def grid(self, segment: RemoteSegment, index: OffsetIndex | None, now_ms: int) -> Grid:
        """The grid of a segment; `index` is its offset index, None if it `is_whole`.

        Finer if many partitions are read: what each reader is in the middle of has to fit.
        """
        grid = self._grids.get(segment.segment_id)
        if grid is not None:
            return grid
        share = self.capacity_bytes // (10 * self._active(segment.topic_id_partition, now_ms))
        smallest = min(self.chunk_bytes, CHUNK_BYTES_MIN)
        chunk_bytes = min(self.chunk_bytes, max(share, smallest))
        if index is None:
            grid = Grid((), segment.size, segment.size)
        else:
            grid = Grid(index.positions, segment.size, chunk_bytes)
        self._add_grid(segment, grid)
        return grid

    def _add_grid(self, segment: RemoteSegment, grid: Grid) -> None:
        if len(self._grids) >= _GRIDS_MAX:
            del self._grids[next(iter(self._grids))]
        self._grids[segment.segment_id] = grid
        # Chunks that outlived the segment's last grid, or came when it was forgotten.
        for part in self._parts:
            for (segment_id, _), (chunk, _) in part.chunks.items():
                if segment_id == segment.segment_id:
                    grid.add(chunk.end)

    def peek(self, segment_id: UUID, start: int) -> Chunk | None:
        """The chunk that begins at this byte, for a reader who may not take anything of it."""
        for part in self._parts:
            entry = part.chunks.get((segment_id, start))
            if entry is not None:
                return entry[0]
        return None

    def find(self, segment_id: UUID, position: int, now_ms: int) -> Chunk | None:
        """The chunk with this byte, for a reader."""
        grid = self._grids.get(segment_id)
        return None if grid is None else self.get(segment_id, grid.place(position).start, now_ms)

    def get(self, segment_id: UUID, start: int, now_ms: int) -> Chunk | None:
        """The chunk that begins at this byte, for a reader."""
        key = (segment_id, start)
        chunk = self._reading.pop(key) or self._ahead.pop(key) or self._done.pop(key)
        if chunk is not None:
            self._reading.put(key, chunk, now_ms)
        return chunk

    def put(
        self, segment: RemoteSegment, chunk: Chunk, now_ms: int, *, ahead: bool = False
    ) -> None:
        """Keep a chunk, and let others go for it; `ahead` if nobody has come for it yet."""
        key = (segment.segment_id, chunk.start)
        for part in self._parts:
            part.pop(key)
        grid = self._grids.get(segment.segment_id)
        if grid is not None:
            grid.add(chunk.end)
        if chunk.weight > self.capacity_bytes:
            return
        (self._ahead if ahead else self._reading).put(key, chunk, now_ms)
        while self.weight > self.capacity_bytes:
            next(part for part in self._parts if part.chunks).drop_oldest()

    def forget(self, segment_id: UUID) -> None:
        """The segment is gone, or what is known of it was wrong."""
        self._grids.pop(segment_id, None)
        for part in self._parts:
            for key in [key for key in part.chunks if key[0] == segment_id]:
                part.pop(key)

    def expire(self, now_ms: int) -> None:
        """Let go of what nobody has come for in a minute: its readers have gone."""
        for part in self._parts:
            while part.chunks and now_ms - next(iter(part.chunks.values()))[1] > _UNUSED_MS_MAX:
                part.drop_oldest()

    def clear(self) -> None:
        """Let all go."""
        self._done, self._reading, self._ahead = _Chunks(), _Chunks(), _Chunks()
        self._grids.clear()
        self._readers.clear()
        self._partitions.clear()

    # ---- readers ------------------------------------------------------------------------------

    def has_room_ahead(self, wanted: int, now_ms: int) -> bool:
        """Whether so many bytes may be fetched ahead, what is on its way counted in.

        What nobody came for in a long time makes room: its reader has gone.
        """
        ahead = self._ahead
        while ahead.chunks and ahead.bytes + wanted > self.capacity_bytes // 2:
            _, came_ms = next(iter(ahead.chunks.values()))
            if now_ms - came_ms < _AHEAD_MS_MAX:
                return False
            ahead.drop_oldest()
        return wanted <= self.capacity_bytes // 2

    def read_on(
        self, partition: TopicIdPartition, offset: int, next_offset: int, size: int, now_ms: int
    ) -> Window:
        """A read of [offset, next offset), of so many bytes, was served: what to have ready behind
        it.

        Nothing for a reader that was not seen before; double the last window for one that goes on,
        within its share.
        """
        readers = self._readers
        active = self._active(partition, now_ms)
        last = readers.pop((partition.topic_id, partition.partition, offset), None)
        window = _NO_WINDOW
        if last is not None:
            share = self.capacity_bytes // (2 * active)
            wanted = min(max(2 * last.bytes, 2 * self.chunk_bytes), self._window_bytes_max, share)
            unlooked = last.unlooked + size
            is_due = wanted > last.bytes or _LOOKS * unlooked >= wanted
            window = Window(wanted, 0 if is_due else unlooked, is_due)
        if len(readers) >= _READERS_MAX:
            del readers[next(iter(readers))]
        readers[partition.topic_id, partition.partition, next_offset] = window
        return window

    def passed(self, segment_id: UUID, position: int, now_ms: int) -> None:
        """A reader stopped at this byte of a segment: the chunks up to there are done."""
        grid = self._grids.get(segment_id)
        while grid is not None and position > 0:
            start = grid.place(position - 1).start
            key = (segment_id, start)
            chunk = self._reading.pop(key) or self._ahead.pop(key)
            if chunk is None:
                return
            if chunk.end > position:
                self._reading.put(key, chunk, now_ms)
                return
            self._done.put(key, chunk, now_ms)
            position = start

    def _active(self, partition: TopicIdPartition, now_ms: int) -> int:
        """How many partitions were read of late, this one now."""
        partitions = self._partitions
        key = (partition.topic_id, partition.partition)
        partitions.pop(key, None)
        if len(partitions) >= _READERS_MAX:
            del partitions[next(iter(partitions))]
        partitions[key] = now_ms
        count = 0
        for read_ms in reversed(partitions.values()):
            if now_ms - read_ms > _ACTIVE_MS:
                break
            count += 1
        return count
