"""Where remote reads find their data: in the caches, or by a `Load` from the store.

`load` and `clean` block and run on a worker thread, on frozen values. Everything else belongs to
the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.chunks import (
    Buffers,
    Chunk,
    ChunkPlace,
    CorruptRemoteDataError,
    load_chunk,
)
from tidelog_storage.remote.index_cache import RemoteIndexes
from tidelog_storage.remote.near import Near, opener_of, piece_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from tidelog_storage.remote.api import OpenSegment, RemoteSegment, RemoteStorage
    from tidelog_storage.remote.chunk_cache import ChunkCache
    from tidelog_storage.remote.index_cache import IndexCache

    Loaded = RemoteIndexes | Chunk | OpenSegment

__all__ = ["Leftovers", "Load", "Sources"]


class Load(NamedTuple):
    """One thing to load: a segment's indexes, or with a place a chunk of it, or with `opens` the
    open segment, to be read on the loop (`near.py`)."""

    segment: RemoteSegment
    place: ChunkPlace | None = None
    with_times: bool = False
    opens: bool = False

    @property
    def key(self) -> tuple[UUID, int]:
        """One load of a key at a time; all readers share it."""
        if self.opens:
            return self.segment.segment_id, -2
        return self.segment.segment_id, -1 if self.place is None else self.place.start

    @property
    def bytes(self) -> int:
        """How much it fetches of the log."""
        return 0 if self.place is None else self.place.end - self.place.start


class Leftovers(NamedTuple):
    """What a thread has to close and to remove after things have expired."""

    retired: list[OpenSegment]
    paths: list[str]


class Sources:
    """The caches of one broker, in front of its remote store."""

    def __init__(self, store: RemoteStorage, indexes: IndexCache, chunks: ChunkCache) -> None:
        self.indexes = indexes
        self.chunks = chunks
        self.near = Near()
        self._store = store
        self._is_near = opener_of(store) is not None
        self._buffers = Buffers()

    # ---- on the loop --------------------------------------------------------------------------

    def find(
        self, segment: RemoteSegment, offset: int, position: int | None, now_ms: int
    ) -> Chunk | None:
        """The chunk in memory with this offset, or with this byte."""
        chunk = self.chunks.find(segment.segment_id, offset, position)
        if chunk is not None:
            self.chunks.use(segment.segment_id, chunk, now_ms)
        return chunk

    def find_indexes(
        self, segment: RemoteSegment, now_ms: int, *, with_times: bool = False
    ) -> RemoteIndexes | None:
        """The indexes, if they are in memory."""
        indexes = self.indexes.get(segment.segment_id, now_ms)
        return None if indexes is None or (with_times and indexes.times is None) else indexes

    def chunk(
        self,
        segment: RemoteSegment,
        offset: int,
        wanted: int,
        now_ms: int,
        *,
        position: int | None = None,
    ) -> Chunk | Load:
        """The chunk to read an offset from, or what has to be loaded first.

        `position` is where a batch begins at or before the offset; None if the reader does not
        know. `wanted` bytes will be read at most.
        """
        chunk = self.find(segment, offset, position, now_ms)
        if chunk is None and position is None:
            position = self._position(segment, offset, now_ms)
            if position is not None:
                chunk = self.find(segment, offset, position, now_ms)
        found: Chunk | Load | None = chunk
        if found is None and position is not None and self.is_near(segment):
            found = self._piece(segment, position, wanted, now_ms)
        return self._in_store(segment, position, now_ms) if found is None else found

    def _position(self, segment: RemoteSegment, offset: int, now_ms: int) -> int | None:
        """Where a batch begins at or before an offset, as far as it is known here."""
        if offset <= segment.start_offset:
            return 0
        before = self.chunks.before(segment.segment_id, offset=offset)
        if before is not None:
            return before.end
        grid = self.chunks.grid(segment, None, now_ms)
        if grid is not None and grid.is_whole:
            return None
        indexes = self.indexes.get(segment.segment_id, now_ms)
        return None if indexes is None else indexes.offsets.lookup(offset)

    def _piece(
        self,
        segment: RemoteSegment,
        position: int,
        wanted: int,
        now_ms: int,
        *,
        ahead: bool = False,
    ) -> Chunk | Load | None:
        """A piece out of the page cache; None if it is not there, or not to be read now."""
        near = self.near
        if not near.is_open(segment):
            return Load(segment, opens=True)
        if not ahead and not near.may_read(wanted, now_ms):
            return None
        before = self.chunks.before(segment.segment_id, position=position)
        piece = near.read(segment, position, wanted, before, now_ms)
        if piece is not None:
            self.chunks.put(segment, piece, now_ms, ahead=ahead)
        return piece

    def _in_store(self, segment: RemoteSegment, position: int | None, now_ms: int) -> Load:
        """What to load for a byte where a batch begins: a chunk, or first the indexes, if it takes
        them to know the byte or the chunk."""
        indexes = self.indexes.get(segment.segment_id, now_ms)
        offsets = None if indexes is None else indexes.offsets
        grid = self.chunks.grid(segment, offsets, now_ms)
        if grid is None or (position is None and not grid.is_whole):
            return Load(segment)
        return Load(segment, grid.place_at(position or 0))

    def ahead(
        self, segment: RemoteSegment, position: int, wanted: int, now_ms: int
    ) -> Chunk | Load | None:
        """The chunk at this byte, where a reader will go on, or what has to be loaded to have it;
        None if there is no room for a piece."""
        found: Chunk | Load | None = self.chunks.find(segment.segment_id, -1, position)
        if found is None and self.is_near(segment):
            opens = not self.near.is_open(segment)
            if not opens and not self.chunks.has_room_ahead(piece_bytes(wanted), now_ms):
                return None
            found = self._piece(segment, position, wanted, now_ms, ahead=True)
        return self._in_store(segment, position, now_ms) if found is None else found

    def is_near(self, segment: RemoteSegment) -> bool:
        """Whether to try the page cache first."""
        return self._is_near and not self.near.is_for_threads(segment)

    def begin(self, load: Load) -> None:
        """The load is going to run; one of its key at a time."""
        if load.place is None and not load.opens:
            self.indexes.begin(load.segment.segment_id)

    def keep(self, load: Load, loaded: Loaded, now_ms: int, *, ahead: bool = False) -> None:
        """Take what was loaded; `ahead` if no reader waits for it yet."""
        if isinstance(loaded, Chunk):
            self.chunks.put(load.segment, loaded, now_ms, ahead=ahead)
        elif isinstance(loaded, RemoteIndexes):
            self.indexes.put(load.segment, loaded, now_ms)
        else:
            self.near.opened(load.segment, loaded, now_ms)

    def give_up(self, load: Load, error: BaseException, now_ms: int) -> None:
        """The load failed. After a corrupt answer nothing of the segment is trusted any more: the
        index may be what is wrong."""
        segment_id = load.segment.segment_id
        if load.place is None and not load.opens:
            self.indexes.give_up(segment_id, now_ms)
        if isinstance(error, CorruptRemoteDataError):
            self.forget((segment_id,), now_ms)

    def forget(self, segment_ids: Iterable[UUID], now_ms: int) -> None:
        """Segments are deleted, or not to be trusted."""
        for segment_id in segment_ids:
            self.indexes.remove((segment_id,), now_ms)
            self.chunks.forget(segment_id)
            self.near.retire(segment_id)

    def expire(self, now_ms: int) -> Leftovers | None:
        """Drop what was not used for long. `clean` gets the rest of it."""
        self.chunks.expire(now_ms)
        self.near.expire(now_ms)
        if not len(self.chunks):
            self._buffers.clear()
            self.near.buffers.clear()
        paths = self.indexes.expire(now_ms)
        retired, self.near.retired = self.near.retired, []
        return Leftovers(retired, paths) if paths or retired else None

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing that could get old."""
        indexes = self.indexes
        return not (len(self.chunks) or len(self.near) or len(indexes) or indexes.has_removals)

    def clear(self) -> None:
        """The end: let everything go."""
        self.near.clear()
        for handle in self.near.retired:
            handle.close()
        self.near.retired.clear()
        self.chunks.clear()
        self.indexes.close()

    # ---- on a worker thread -------------------------------------------------------------------

    def load(self, load: Load) -> Loaded:
        """Get it from the store. Blocks; RemoteStorageError."""
        if load.opens:
            opener = opener_of(self._store)
            assert opener is not None
            return opener(load.segment)
        if load.place is None:
            return self.indexes.load(load.segment, self._store, with_times=load.with_times)
        return load_chunk(self._store, load.segment, load.place, self._buffers)

    def clean(self, leftovers: Leftovers) -> None:
        """Close and remove files."""
        for handle in leftovers.retired:
            handle.close()
        self.indexes.remove_files(leftovers.paths)
