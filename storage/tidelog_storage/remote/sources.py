"""What reads of the remote tier are fed from: caches first, then the store.

`lookup`, `begin`, `keep` and `give_up` belong to the loop; `load` blocks and runs on a worker
thread, on frozen values. `run` drives steps to their end in one thread, for tools and tests.
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
from tidelog_storage.remote.reader import NeedIndexes, Pause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage
    from tidelog_storage.remote.index_cache import IndexCache, RemoteIndexes
    from tidelog_storage.remote.read_ahead import ReadAhead
    from tidelog_storage.remote.reader import Need, NeedChunk, Steps

__all__ = ["Job", "Sources"]

T = TypeVar("T")


class Job(NamedTuple):
    """One thing to be loaded: the indexes of a segment, or with a place a chunk of it."""

    segment: RemoteSegment
    place: ChunkPlace | None
    with_times: bool = False

    @property
    def key(self) -> tuple[bytes, int]:
        """One job of a key at a time; who asks for the same waits for it, and looks again."""
        return self.segment.segment_id, -1 if self.place is None else self.place.start

    @property
    def bytes(self) -> int:
        """How much it fetches of the log."""
        return 0 if self.place is None else self.place.end - self.place.start


class Sources:
    """The caches of one broker, in front of its remote store."""

    def __init__(self, store: RemoteStorage, indexes: IndexCache, read_ahead: ReadAhead) -> None:
        self.indexes = indexes
        self.read_ahead = read_ahead
        self._store = store
        self._buffers = Buffers()

    # ---- on the loop --------------------------------------------------------------------------

    def lookup(
        self, need: NeedIndexes | NeedChunk, now_ms: int
    ) -> RemoteIndexes | Chunk | Job | None:
        """What is needed, if it is in memory; else the job that gets it. None where that will
        do."""
        segment = need.segment
        if isinstance(need, NeedIndexes):
            if need.positions and self.read_ahead.is_whole(segment, now_ms):
                return None
            indexes = self.indexes.get(segment.segment_id, now_ms)
            if indexes is not None and (indexes.times is not None or not need.with_times):
                return indexes
            return Job(segment, None, need.with_times)
        offsets = None if need.indexes is None else need.indexes.offsets
        grid = self.read_ahead.grid(segment, offsets, now_ms)
        place = grid.place(need.position)
        if need.is_optional:
            chunk = self.read_ahead.peek(segment.segment_id, place.start)
        else:
            chunk = self.read_ahead.get(segment.segment_id, place.start, now_ms)
        return Job(segment, place) if chunk is None else chunk

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
            place = grid.place(position)
            if self.read_ahead.peek(segment.segment_id, place.start) is None:
                yield Job(segment, place)
                if not place.exact:
                    return  # where the next one begins is known when this one is there
            position = place.end

    def begin(self, job: Job) -> None:
        """The job is going to be loaded; once at a time."""
        if job.place is None:
            self.indexes.begin(job.segment.segment_id)

    def keep(
        self, job: Job, loaded: RemoteIndexes | Chunk, now_ms: int, *, ahead: bool = False
    ) -> None:
        """Take what was loaded; `ahead` if nobody waits for it yet."""
        if isinstance(loaded, Chunk):
            self.read_ahead.put(job.segment, loaded, now_ms, ahead=ahead)
        else:
            self.indexes.put(job.segment, loaded, now_ms)

    def give_up(self, job: Job, error: BaseException, now_ms: int) -> None:
        """Loading failed. After a corrupt answer nothing of the segment is trusted any more: the
        index may be what is wrong."""
        segment_id = job.segment.segment_id
        if job.place is None:
            self.indexes.give_up(segment_id, now_ms)
        if isinstance(error, CorruptRemoteDataError):
            self.forget((segment_id,), now_ms)

    def forget(self, segment_ids: Iterable[bytes], now_ms: int) -> None:
        """Segments are deleted, or not to be trusted."""
        for segment_id in segment_ids:
            self.indexes.remove((segment_id,), now_ms)
            self.read_ahead.forget(segment_id)

    def expire(self, now_ms: int) -> list[str]:
        """Let go of what was not used for long; paths of files to be removed."""
        self.read_ahead.expire(now_ms)
        if not len(self.read_ahead):
            self._buffers.clear()
        return self.indexes.expire(now_ms)

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing that could get old."""
        return not (len(self.read_ahead) or len(self.indexes) or self.indexes.has_removals)

    # ---- on a worker thread -------------------------------------------------------------------

    def load(self, job: Job) -> RemoteIndexes | Chunk:
        """Do a job. Blocks; RemoteStorageError."""
        if job.place is None:
            return self.indexes.load(job.segment, self._store, with_times=job.with_times)
        return load_chunk(self._store, job.segment, job.place, self._buffers)

    # ---- in one thread ------------------------------------------------------------------------

    def run(self, steps: Steps[T], now_ms: int) -> T:
        """Drive steps to their end."""
        value: RemoteIndexes | Chunk | None = None
        while True:
            try:
                need = steps.send(value)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            value = self._satisfy(need, now_ms)

    def _satisfy(self, need: Need, now_ms: int) -> RemoteIndexes | Chunk | None:
        if isinstance(need, Pause):
            return None
        found = self.lookup(need, now_ms)
        if not isinstance(found, Job):
            return found
        if not isinstance(need, NeedIndexes) and need.is_optional:
            return None
        self.begin(found)
        try:
            loaded = self.load(found)
        except BaseException as error:
            self.give_up(found, error, now_ms)
            raise
        self.keep(found, loaded, now_ms)
        return loaded
