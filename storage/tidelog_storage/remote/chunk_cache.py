"""Chunks of remote segments in memory, shared by all readers, and how much to have ready for each.

One cache, bounded by bytes, and one rule of what goes first: chunks that a reader has passed, then
those that are being read, then those fetched for readers that are still to come; of each the least
recently used. Chunks from the store lie on one grid per segment, so that readers at different
places ask for the same ones; pieces from the page cache (`near.py`) begin where a reader stopped.
A reader that goes on where it stopped is given a window ahead that doubles.

All state belongs to the event loop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from tidelog_storage.remote.chunks import ChunkPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from tidelog_storage.indexes import OffsetIndex
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.chunks import Chunk

__all__ = ["ChunkCache", "Grid"]

CHUNK_BYTES = 8 << 20  # at most: an S3 client takes milliseconds of processor time a request
CHUNK_BYTES_MIN = 256 << 10
CAPACITY_BYTES = 64 << 20
WINDOW_BYTES_MAX = 16 << 20
PASSED_PIECES_BYTES_MAX = 4 << 20  # for readers right behind; the page cache has them anyway
_READERS_MAX = 1024  # that read on, remembered by the offset where they stopped
_GRIDS_MAX = 1024
_AHEAD_MS_MAX = 30_000
_UNUSED_MS_MAX = 60_000
_ACTIVE_MS = 5_000  # partitions read within this time share the capacity

_PASSED, _READING, _AHEAD = range(3)  # the order in which chunks go


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
        if place.end <= bound:  # the reader did not come here over chunks of the grid
            self.add(bound)
            place = self.place(bound)
        return place

    def add(self, bound: int) -> None:
        """A batch begins (or the segment ends) at this byte."""
        if self._bounds[bisect_left(self._bounds, bound)] != bound:
            insort(self._bounds, bound)


class _Held:
    """A chunk in the cache. `rank` says how soon it goes, `used` orders chunks of one rank."""

    __slots__ = ("chunk", "rank", "segment_id", "used", "used_ms")

    def __init__(self, segment_id: UUID, chunk: Chunk) -> None:
        self.segment_id = segment_id
        self.chunk = chunk
        self.rank = self.used = self.used_ms = 0


class ChunkCache:
    """The chunks of one broker, their grids and their readers.

    Invariants: `weight` is that of all chunks, and at most `capacity_bytes`; the chunks of a grid
    end at its bounds.
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
        self.weight = 0
        self._window_bytes_max = window_bytes_max
        self._held: dict[UUID, dict[int, _Held]] = {}  # by segment and first byte
        self._uses = 0
        self._grids: dict[UUID, Grid] = {}
        self._readers: dict[tuple[UUID, int, int], int] = {}  # windows, by where they stopped
        self._partitions: dict[tuple[UUID, int], int] = {}  # when they were last asked for

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    # ---- the grid -----------------------------------------------------------------------------

    def grid(self, segment: RemoteSegment, index: OffsetIndex | None, now_ms: int) -> Grid | None:
        """The grid of a segment; None if it takes the offset index to draw it. A small segment is
        one chunk.

        Grids are finer if many partitions are read: what each reader is in the middle of has to
        fit.
        """
        grid = self._grids.get(segment.segment_id)
        if grid is not None:
            return grid
        active = self._active(segment.topic_id_partition, now_ms)
        if segment.size <= min(2 * self.chunk_bytes, self.capacity_bytes // (8 * active)):
            grid = Grid((), segment.size, self.chunk_bytes)
        elif index is None:
            return None
        else:
            smallest = min(self.chunk_bytes, CHUNK_BYTES_MIN)
            share = max(self.capacity_bytes // (10 * active), smallest)
            grid = Grid(index.positions, segment.size, min(self.chunk_bytes, share))
        self._add_grid(segment, grid)
        return grid

    def _add_grid(self, segment: RemoteSegment, grid: Grid) -> None:
        if len(self._grids) >= _GRIDS_MAX:
            del self._grids[next(iter(self._grids))]
        self._grids[segment.segment_id] = grid
        for held in self._of(segment.segment_id):  # they came by the grid before this one
            grid.add(held.chunk.end)

    # ---- chunks -------------------------------------------------------------------------------

    def _of(self, segment_id: UUID) -> Iterator[_Held]:
        """The newest first: a reader that goes on wants that one."""
        return reversed(self._held.get(segment_id, {}).values())

    def _all(self) -> Iterator[_Held]:
        return (held for of in self._held.values() for held in of.values())

    def find(self, segment_id: UUID, offset: int, position: int | None = None) -> Chunk | None:
        """The chunk that holds this offset, or else this byte of the segment."""
        for held in self._of(segment_id):
            chunk = held.chunk
            if chunk.first_offset <= offset < chunk.end_offset:
                return chunk
            if position is not None and chunk.start <= position < chunk.end:
                return chunk
        return None

    def before(self, segment_id: UUID, *, offset: int = -1, position: int = -1) -> Chunk | None:
        """The chunk that ends at this offset or byte."""
        for held in self._of(segment_id):
            if held.chunk.end_offset == offset or held.chunk.end == position:
                return held.chunk
        return None

    def use(self, segment_id: UUID, chunk: Chunk, now_ms: int) -> None:
        """A reader reads this chunk."""
        held = self._held[segment_id][chunk.start]
        self._rank(held, _READING, now_ms)

    def _rank(self, held: _Held, rank: int, now_ms: int) -> None:
        self._uses += 1
        held.rank, held.used, held.used_ms = rank, self._uses, now_ms

    def put(
        self, segment: RemoteSegment, chunk: Chunk, now_ms: int, *, ahead: bool = False
    ) -> None:
        """Keep a chunk, and let others go for it; `ahead` if no reader has come for it yet."""
        segment_id = segment.segment_id
        self._drop(self._held.get(segment_id, {}).get(chunk.start))
        grid = self._grids.get(segment_id)
        if grid is not None:
            grid.add(chunk.end)
        if chunk.weight > self.capacity_bytes:
            return
        held = _Held(segment_id, chunk)
        self._held.setdefault(segment_id, {})[chunk.start] = held
        self.weight += chunk.weight
        self._rank(held, _AHEAD if ahead else _READING, now_ms)
        while self.weight > self.capacity_bytes:
            self._drop(min(self._all(), key=_goes_first))

    def _drop(self, held: _Held | None) -> None:
        if held is not None:
            of = self._held[held.segment_id]
            del of[held.chunk.start]
            if not of:
                del self._held[held.segment_id]
            self.weight -= held.chunk.weight

    def forget(self, segment_id: UUID) -> None:
        """The segment is gone, or what is known of it was wrong."""
        self._grids.pop(segment_id, None)
        for held in list(self._of(segment_id)):
            self._drop(held)

    def expire(self, now_ms: int) -> None:
        """Drop what no reader used for a minute."""
        for held in [held for held in self._all() if now_ms - held.used_ms > _UNUSED_MS_MAX]:
            self._drop(held)

    def clear(self) -> None:
        """Drop everything."""
        self._held.clear()
        self.weight = 0
        self._grids.clear()
        self._readers.clear()
        self._partitions.clear()

    # ---- readers ------------------------------------------------------------------------------

    def has_room_ahead(self, wanted: int, now_ms: int) -> bool:
        """Whether so many bytes may be fetched ahead: they take half of the room at most. Chunks
        that no reader came for in a long time are dropped for them."""
        ahead = sorted((held for held in self._all() if held.rank == _AHEAD), key=_goes_first)
        size = sum(held.chunk.weight for held in ahead)
        for held in ahead:
            if size + wanted <= self.capacity_bytes // 2:
                break
            if now_ms - held.used_ms < _AHEAD_MS_MAX:
                return False
            size -= held.chunk.weight
            self._drop(held)
        return wanted <= self.capacity_bytes // 2

    def read_on(
        self, partition: TopicIdPartition, offset: int, next_offset: int, now_ms: int
    ) -> int:
        """A read of [offset, next offset) was served: how many bytes to have ready behind it.

        None for a reader that was not seen before; twice the last window for one that goes on,
        within its share.
        """
        readers = self._readers
        active = self._active(partition, now_ms)
        last_bytes = readers.pop((partition.topic_id, partition.partition, offset), None)
        window_bytes = 0
        if last_bytes is not None:
            share = self.capacity_bytes // (2 * active)
            wanted = max(2 * last_bytes, 2 * self.chunk_bytes)
            window_bytes = min(wanted, self._window_bytes_max, share)
        if len(readers) >= _READERS_MAX:
            del readers[next(iter(readers))]
        readers[partition.topic_id, partition.partition, next_offset] = window_bytes
        return window_bytes

    def passed(self, segment_id: UUID, position: int, now_ms: int) -> None:
        """A reader stopped at this byte of a segment: it is done with the chunks up to there."""
        while True:
            held = next((h for h in self._of(segment_id) if _has(h.chunk, position - 1)), None)
            if held is None or held.rank == _PASSED:
                return
            if held.chunk.end > position:
                self._rank(held, _READING, now_ms)
                return
            self._rank(held, _PASSED, now_ms)
            position = held.chunk.start
            if held.chunk.is_piece:
                self._keep_few_pieces()

    def _keep_few_pieces(self) -> None:
        passed = [held for held in self._all() if held.chunk.is_piece and held.rank == _PASSED]
        size = sum(held.chunk.weight for held in passed)
        for held in sorted(passed, key=_goes_first):
            if size <= PASSED_PIECES_BYTES_MAX:
                break
            size -= held.chunk.weight
            self._drop(held)

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


def _goes_first(held: _Held) -> tuple[int, int]:
    return held.rank, held.used


def _has(chunk: Chunk, position: int) -> bool:
    return chunk.start <= position < chunk.end
