"""Loads indexes and chunks from the store, for reads that wait and for reading ahead.

Owns the flights: one for each load, shared by all reads that wait for it. The reader pool has the
threads. A flight without waiting reads is given up while it waits for a thread. Once it has a
thread it is finished and kept, so that a slow store serves the next attempt of its readers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import RemoteResourceNotFound
from tidelog_storage.remote.chunks import Chunk, CorruptRemoteDataError
from tidelog_storage.remote.index_cache import RemoteIndexes
from tidelog_storage.remote.sources import Load

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tidelog.tiered.pools import Pool
    from tidelog_storage.remote.api import RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.sources import Loaded, Sources

    Following = Callable[[RemoteSegment], RemoteSegment | None]

__all__ = ["Loader", "LostError"]

_AHEAD_SEGMENTS_MAX = 8
_PIECES_BYTES_MAX = 2 << 20  # of small segments, for one reader at a time


class LostError(Exception):
    """The store does not have what the metadata says it has."""

    def __init__(self, segment: RemoteSegment, text: str) -> None:
        super().__init__(text)
        self.segment = segment


@dataclass(slots=True, eq=False)
class _Flight:
    """A load in progress, and the number of reads that wait for it."""

    load: Load
    ended: asyncio.Future[Loaded]
    is_ahead: bool
    waiters: int = 0


class _Ahead(NamedTuple):
    """Where a reader stopped, how many bytes it asks for at a time, and how many to load behind
    it. `following` returns the segment after one."""

    segment: RemoteSegment
    position: int
    wanted: int
    window_bytes: int
    following: Following


class Loader:
    """The loads of one broker's remote reads. `on_damage` is called with segments that are damaged
    or lost."""

    def __init__(self, sources: Sources, pool: Pool, now_ms: Callable[[], int]) -> None:
        self.sources = sources
        self._pool = pool
        self._now_ms = now_ms
        self._flights: dict[tuple[UUID, int], _Flight] = {}
        self._ahead_bytes = 0  # of flights that no read waited for when they began
        self._is_closed = False
        self.on_damage: Callable[[RemoteSegment], None] | None = None

    def __len__(self) -> int:
        return len(self._flights)

    # ---- for a read ---------------------------------------------------------------------------

    def find(self, segment: RemoteSegment, offset: int, position: int) -> Chunk | None:
        """Return the chunk in memory with this offset, or with this byte."""
        return self.sources.find(segment, offset, position, self._now_ms())

    async def chunk(
        self, segment: RemoteSegment, offset: int, wanted: int, *, position: int | None = None
    ) -> Chunk:
        """Return the chunk to read an offset from, from memory or loaded; a batch begins at
        `position` if it is given. RemoteStorageError; LostError; PoolFullError."""
        while True:
            found = self.sources.chunk(segment, offset, wanted, self._now_ms(), position=position)
            loaded = found if isinstance(found, Chunk) else await self._loaded(found)
            if isinstance(loaded, Chunk):
                return loaded

    async def indexes(self, segment: RemoteSegment, *, with_times: bool = False) -> RemoteIndexes:
        """Return the segment's indexes; `times` only with `with_times`. Raises like `chunk`."""
        while True:
            found = self.sources.find_indexes(segment, self._now_ms(), with_times=with_times)
            loaded = found or await self._loaded(Load(segment, with_times=with_times))
            assert isinstance(loaded, RemoteIndexes)
            if not with_times or loaded.times is not None:
                return loaded

    async def _loaded(self, load: Load) -> Loaded:
        flight = self._flights.get(load.key) or self._take_off(load)
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.ended)
        except RemoteResourceNotFound as error:
            raise LostError(load.segment, str(error)) from error
        except CorruptRemoteDataError:
            if self.on_damage is not None:
                self.on_damage(load.segment)
            raise
        finally:
            if flight.ended.done():
                self._land(flight)
            flight.waiters -= 1
            if not flight.waiters and self._pool.withdraw(flight.ended):
                self._land(flight)

    # ---- flights ------------------------------------------------------------------------------

    def _take_off(self, load: Load, *, is_ahead: bool = False) -> _Flight:
        flight = _Flight(load, self._pool.begin(self.sources.load, load), is_ahead)
        self._flights[load.key] = flight
        self.sources.begin(load)
        if is_ahead:
            self._ahead_bytes += load.bytes
        flight.ended.add_done_callback(lambda _: self._land(flight))
        return flight

    def _land(self, flight: _Flight) -> None:
        """Keep the result; once, before any read continues with it."""
        load, ended = flight.load, flight.ended
        error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
        if self._flights.get(load.key) is not flight:
            return
        del self._flights[load.key]
        if flight.is_ahead:
            self._ahead_bytes -= load.bytes
        if error is None:
            is_ahead = flight.is_ahead and not flight.waiters
            self.sources.keep(load, ended.result(), self._now_ms(), ahead=is_ahead)
        else:
            self.sources.give_up(load, error, self._now_ms())

    def close(self) -> None:
        """Give up all flights; threads finish what they have begun."""
        self._is_closed = True
        for flight in list(self._flights.values()):
            if not self._pool.withdraw(flight.ended):
                flight.ended.cancel()
            self._land(flight)

    # ---- reading ahead ------------------------------------------------------------------------

    def read_on(
        self,
        partition: TopicIdPartition,
        offsets: tuple[int, int],
        place: tuple[RemoteSegment, int],
        wanted: int,
        following: Following,
    ) -> None:
        """Load ahead for a consumer that was served the offsets [first, next) up to a place, in
        case it reads on."""
        if self._is_closed:
            return
        sources, now_ms = self.sources, self._now_ms()
        window_bytes = sources.chunks.read_on(partition, *offsets, now_ms)
        segment, position = place
        sources.chunks.passed(segment.segment_id, position, now_ms)
        self._go_ahead(_Ahead(segment, position, wanted, window_bytes, following))

    def _go_ahead(self, ahead: _Ahead) -> None:
        """Begin to load the next bytes while there are idle threads and room. From the page cache
        only the next piece is read, and some more behind a segment's end, because each costs time
        on the loop."""
        segment, position, wanted, left_bytes, following = ahead
        segments = 1
        while left_bytes > 0 and not self._is_closed:
            if position >= segment.size:
                after = following(segment)
                if after is None or segments == _AHEAD_SEGMENTS_MAX:
                    return
                segment, position, segments = after, 0, segments + 1
            found = self.sources.ahead(segment, position, wanted, self._now_ms())
            if isinstance(found, Load):
                rest = _Ahead(segment, position, wanted, left_bytes, following)
                end = self._load_ahead(found, rest)
            else:
                end = None if found is None else found.end
            if end is None:
                return
            if isinstance(found, Chunk) and found.is_piece:
                if end < segment.size:
                    return
                left_bytes = min(left_bytes, _PIECES_BYTES_MAX)
            left_bytes -= end - position
            position = end

    def _load_ahead(self, load: Load, ahead: _Ahead) -> int | None:
        """Begin a load without a waiting read; return where the next one begins. None if only this
        load shows that; its end then continues."""
        if load.key not in self._flights:
            if not self._may_load_ahead(load):
                return None
            flight = self._take_off(load, is_ahead=True)
            if load.place is None:
                flight.ended.add_done_callback(partial(self._go_on, ahead))
        return load.place.end if load.place is not None and load.place.exact else None

    def _go_on(self, ahead: _Ahead, ended: asyncio.Future[Loaded]) -> None:
        if not ended.cancelled() and ended.exception() is None:
            self._go_ahead(ahead)

    def _may_load_ahead(self, load: Load) -> bool:
        """Return whether to load ahead: with at most half of the threads, if no read waits."""
        pool = self._pool
        is_idle = not pool.pending and 2 * pool.running < pool.threads_max
        wanted = self._ahead_bytes + load.bytes
        return is_idle and self.sources.chunks.has_room_ahead(wanted, self._now_ms())
