"""What reads of the remote tier are fed from: caches first, then the store.

`lookup`, `begin`, `keep` and `give_up` belong to the loop; `load` and `clean` block and run on a
worker thread, on frozen values. `run` drives steps to their end in one thread, for tools and tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog_storage.remote.chunks import (
    Buffers,
    Chunk,
    ChunkPlace,
    CorruptRemoteDataError,
    load_chunk,
)
from tidelog_storage.remote.index_cache import RemoteIndexes
from tidelog_storage.remote.near import Near, opener_of
from tidelog_storage.remote.reader import NeedIndexes, Pause

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from tidelog_storage.remote.api import OpenSegment, RemoteSegment, RemoteStorage
    from tidelog_storage.remote.index_cache import IndexCache
    from tidelog_storage.remote.read_ahead import ReadAhead
    from tidelog_storage.remote.reader import Need, NeedChunk, Steps

    Loaded = RemoteIndexes | Chunk | OpenSegment

__all__ = ["Job", "Leftovers", "Sources"]

T = TypeVar("T")
_PLACES_MAX = 1024


class Job(NamedTuple):
    """One thing to be loaded: the indexes of a segment, or with a place a chunk of it; or with
    `opens` the segment itself, to be read on the loop (`near.py`)."""

    segment: RemoteSegment
    place: ChunkPlace | None
    with_times: bool = False
    opens: bool = False

    @property
    def key(self) -> tuple[UUID, int]:
        """One job of a key at a time; who asks for the same waits for it, and looks again."""
        if self.opens:
            return self.segment.segment_id, -2
        return self.segment.segment_id, -1 if self.place is None else self.place.start

    @property
    def bytes(self) -> int:
        """How much it fetches of the log."""
        return 0 if self.place is None else self.place.end - self.place.start


class Leftovers(NamedTuple):
    """What is to be closed and removed after things have expired."""

    retired: list[OpenSegment]
    paths: list[str]


class Sources:
    """The caches of one broker, in front of its remote store."""

    def __init__(self, store: RemoteStorage, indexes: IndexCache, read_ahead: ReadAhead) -> None:
        self.indexes = indexes
        self.read_ahead = read_ahead
        self.near = Near()
        self._store = store
        self._opener = opener_of(store)
        self._buffers = Buffers()
        self._places: dict[tuple[UUID, int], int] = {}  # where readers stopped: bytes, by offset

    # ---- on the loop --------------------------------------------------------------------------

    def lookup(
        self, need: NeedIndexes | NeedChunk, now_ms: int
    ) -> RemoteIndexes | Chunk | Job | int | None:
        """What is needed, if it is in memory; else the job that gets it. None where that will
        do."""
        if isinstance(need, NeedIndexes):
            return self._lookup_indexes(need, now_ms)
        segment = need.segment
        if need.is_found and self._is_near(segment):
            found = self._lookup_near(need, now_ms)
            if found is not None or need.is_optional:
                return found
        offsets = None if need.indexes is None else need.indexes.offsets
        if offsets is None and not self.read_ahead.is_whole(segment, now_ms):
            indexes = self.indexes.get(segment.segment_id, now_ms)
            if indexes is None:
                return Job(segment, None)
            offsets = indexes.offsets
        grid = self.read_ahead.grid(segment, offsets, now_ms)
        place = grid.place_at(need.position)
        if need.is_optional:
            chunk = self.read_ahead.peek(segment.segment_id, place.start)
        else:
            chunk = self.read_ahead.get(segment.segment_id, place.start, now_ms)
        return Job(segment, place) if chunk is None else chunk

    def _lookup_indexes(self, need: NeedIndexes, now_ms: int) -> RemoteIndexes | Job | int | None:
        segment = need.segment
        if need.offset is not None:
            if self._is_near(segment):
                position = self._place(segment, need.offset)
                if position is not None:
                    return position
            if self.read_ahead.is_whole(segment, now_ms):
                return None
        indexes = self.indexes.get(segment.segment_id, now_ms)
        if indexes is not None and (indexes.times is not None or not need.with_times):
            return indexes
        return Job(segment, None, need.with_times)

    def at_hand(self, segment: RemoteSegment, offset: int, now_ms: int) -> Chunk | None:
        """The chunk in memory that a reader goes on with who stopped before this offset."""
        position = self._place(segment, offset)
        return None if position is None else self._find(segment, position, now_ms)

    def _find(self, segment: RemoteSegment, position: int, now_ms: int) -> Chunk | None:
        chunk = self.near.find(segment.segment_id, position)
        if chunk is None:
            chunk = self.read_ahead.find(segment.segment_id, position, now_ms)
        return chunk

    def _place(self, segment: RemoteSegment, offset: int) -> int | None:
        """The byte where the batch with an offset begins, if a reader stopped there."""
        if offset <= segment.start_offset:
            return 0
        return self._places.get((segment.segment_id, offset))

    def _is_near(self, segment: RemoteSegment) -> bool:
        return self._opener is not None and not self.near.is_for_threads(segment)

    def _lookup_near(self, need: NeedChunk, now_ms: int) -> Chunk | Job | None:
        """None if the byte is to be had elsewhere."""
        segment, near = need.segment, self.near
        chunk = self._find(segment, need.position, now_ms)
        if chunk is not None or need.is_optional:
            return chunk
        if not near.is_open(segment.segment_id):
            return Job(segment, None, opens=True)
        return near.demand(segment, need.position, need.wanted, now_ms)

    def make_ready(
        self, segment: RemoteSegment, position: int, wanted: int, now_ms: int
    ) -> Job | int | None:
        """Have at hand what a reader is going to ask for: up to which byte it now is, or the job
        that comes first. None: `ahead` tells what is to be done."""
        if not self._is_near(segment):
            return None
        if self.read_ahead.find(segment.segment_id, position, now_ms) is not None:
            return None
        if not self.near.is_open(segment.segment_id):
            return Job(segment, None, opens=True)
        return self.near.make_ready(segment, position, wanted, now_ms)

    def stopped(self, segment: RemoteSegment, offset: int, position: int, now_ms: int) -> bool:
        """A reader stopped at this byte, and goes on with `offset`: what lies before it may go.
        Whether to `make_ready` what follows, or all is for threads."""
        places, segment_id = self._places, segment.segment_id
        places.pop((segment_id, offset), None)
        if len(places) >= _PLACES_MAX:
            del places[next(iter(places))]
        places[segment_id, offset] = position
        self.read_ahead.passed(segment_id, position, now_ms)
        if not self._is_near(segment):
            return False
        self.near.stopped(segment_id, position)
        return True

    @staticmethod
    def satisfies(job: Job, need: Need, loaded: RemoteIndexes | Chunk | OpenSegment) -> bool:
        """Whether what was loaded is what is needed, not only what comes before it."""
        if isinstance(need, NeedIndexes):
            is_right = job.place is None and not job.opens
            return is_right and (not need.with_times or loaded.times is not None)  # type: ignore[union-attr]
        return job.place is not None

    def ahead(
        self, segment: RemoteSegment, position: int, window_bytes: int, now_ms: int
    ) -> Iterable[Job]:
        """Jobs that are worth doing for a reader who stopped at this byte of a segment, in order:
        what is missing of the next `window_bytes`. Without the indexes, these alone."""
        offsets = None
        if not self.read_ahead.is_whole(segment, now_ms):
            indexes = self.indexes.get(segment.segment_id, now_ms)
            if indexes is None:
                yield Job(segment, None)
                return
            offsets = indexes.offsets
        grid = self.read_ahead.grid(segment, offsets, now_ms)
        end = min(position + window_bytes, segment.size)
        while position < end:
            place = grid.place_at(position)
            if self.read_ahead.peek(segment.segment_id, place.start) is None:
                yield Job(segment, place)
                if not place.exact:
                    return  # where the next one begins is known when this one is there
            position = place.end

    def begin(self, job: Job) -> None:
        """The job is going to be loaded; once at a time."""
        if job.place is None and not job.opens:
            self.indexes.begin(job.segment.segment_id)

    def keep(self, job: Job, loaded: Loaded, now_ms: int, *, ahead: bool = False) -> None:
        """Take what was loaded; `ahead` if nobody waits for it yet."""
        if isinstance(loaded, Chunk):
            self.read_ahead.put(job.segment, loaded, now_ms, ahead=ahead)
        elif isinstance(loaded, RemoteIndexes):
            self.indexes.put(job.segment, loaded, now_ms)
        else:
            self.near.opened(job.segment.segment_id, loaded, now_ms)

    def give_up(self, job: Job, error: BaseException, now_ms: int) -> None:
        """Loading failed. After a corrupt answer nothing of the segment is trusted any more: the
        index may be what is wrong."""
        segment_id = job.segment.segment_id
        if job.place is None and not job.opens:
            self.indexes.give_up(segment_id, now_ms)
        if isinstance(error, CorruptRemoteDataError):
            self.forget((segment_id,), now_ms)

    def forget(self, segment_ids: Iterable[UUID], now_ms: int) -> None:
        """Segments are deleted, or not to be trusted."""
        for segment_id in segment_ids:
            self.indexes.remove((segment_id,), now_ms)
            self.read_ahead.forget(segment_id)
            self.near.forget(segment_id)
            for key in [key for key in self._places if key[0] == segment_id]:
                del self._places[key]

    def expire(self, now_ms: int) -> Leftovers | None:
        """Let go of what was not used for long. What is left is to be given to `clean`, or back."""
        self.read_ahead.expire(now_ms)
        self.near.expire(now_ms)
        if not len(self.read_ahead):
            self._buffers.clear()
        paths = self.indexes.expire(now_ms)
        retired, self.near.retired = self.near.retired, []
        return Leftovers(retired, paths) if paths or retired else None

    def put_back(self, leftovers: Leftovers, now_ms: int) -> None:
        """Nobody could clean them now: the next `expire` gives them again."""
        self.near.retired += leftovers.retired
        self.indexes.put_back(leftovers.paths, now_ms)

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing that could get old."""
        indexes = self.indexes
        return not (len(self.read_ahead) or len(self.near) or len(indexes) or indexes.has_removals)

    def clear(self) -> None:
        """The end: let go of all."""
        self.near.clear()
        for handle in self.near.retired:
            handle.close()
        self.near.retired.clear()
        self.read_ahead.clear()
        self._places.clear()
        self.indexes.close()

    # ---- on a worker thread -------------------------------------------------------------------

    def load(self, job: Job) -> Loaded:
        """Do a job. Blocks; RemoteStorageError."""
        if job.opens:
            assert self._opener is not None
            return self._opener(job.segment)
        if job.place is None:
            return self.indexes.load(job.segment, self._store, with_times=job.with_times)
        return load_chunk(self._store, job.segment, job.place, self._buffers)

    def clean(self, leftovers: Leftovers) -> None:
        """Close and remove files."""
        for handle in leftovers.retired:
            handle.close()
        self.indexes.remove_files(leftovers.paths)

    # ---- in one thread ------------------------------------------------------------------------

    def run(self, steps: Steps[T], now_ms: int) -> T:
        """Drive steps to their end."""
        value: RemoteIndexes | Chunk | int | None = None
        while True:
            try:
                need = steps.send(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            value = self._satisfy(need, now_ms)

    def _satisfy(self, need: Need, now_ms: int) -> RemoteIndexes | Chunk | int | None:
        if isinstance(need, Pause):
            return None
        while isinstance(found := self.lookup(need, now_ms), Job):
            if not isinstance(need, NeedIndexes) and need.is_optional:
                return None
            self.begin(found)
            try:
                loaded = self.load(found)
            except BaseException as error:
                self.give_up(found, error, now_ms)
                raise
            self.keep(found, loaded, now_ms)
            if self.satisfies(found, need, loaded):
                return loaded  # type: ignore[return-value]
        return found
