"""What remote reads wait for: indexes and chunks on their way from the store, and reading ahead.

Owns the flights: one for each thing that is being loaded, shared by all reads that wait for it.
Threads are the reader pool's. A flight that no read waits for any more is given up while it waits
for a thread. After that it is finished and kept: a store slower than the readers' patience serves
their next try.
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
    from tidelog.tiered.reads.reader import RemoteRead, RemoteRecords
    from tidelog_storage.remote.api import RemoteSegment
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
    """A load on its way, and how many reads wait for it."""

    load: Load
    ended: asyncio.Future[Loaded]
    is_ahead: bool
    waiters: int = 0


class _Ahead(NamedTuple):
    """Where a reader stopped, how much it asks for at a time, and how many bytes to have ready
    behind it. `following` tells the segment after one."""

    segment: RemoteSegment
    position: int
    wanted: int
    window_bytes: int
    following: Following


class Loader:
    """The `Source` of one broker's remote reads. `on_damage` hears of segments whose bytes cannot
    be right, or are gone."""

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

    # ---- for a read (see `reader.Source`) ------------------------------------------------------

    def find(self, segment: RemoteSegment, offset: int, position: int) -> Chunk | None:
        """From memory."""
        return self.sources.find(segment, offset, position, self._now_ms())

    async def chunk(
        self, segment: RemoteSegment, offset: int, wanted: int, *, position: int | None = None
    ) -> Chunk:
        """From memory, or loaded. RemoteStorageError; LostError; PoolFullError."""
        while True:
            found = self.sources.chunk(segment, offset, wanted, self._now_ms(), position=position)
            loaded = found if isinstance(found, Chunk) else await self._loaded(found)
            if isinstance(loaded, Chunk):
                return loaded

    async def indexes(self, segment: RemoteSegment, *, with_times: bool = False) -> RemoteIndexes:
        """As `chunk`."""
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
        """Keep what came; once, before any read goes on with it."""
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
        """Give up everything; what a thread has begun is left to it."""
        self._is_closed = True
        for flight in list(self._flights.values()):
            if not self._pool.withdraw(flight.ended):
                flight.ended.cancel()
            self._land(flight)

    # ---- reading ahead ------------------------------------------------------------------------

    def read_on(self, request: RemoteRead, records: RemoteRecords, following: Following) -> None:
        """A consumer was served: have ready what it asks for next, if it goes on like that."""
        if self._is_closed or records.place is None:
            return
        sources, now_ms = self.sources, self._now_ms()
        window_bytes = sources.chunks.read_on(
            request.partition, request.offset, records.next_offset, now_ms
        )
        segment, position = records.place
        sources.chunks.passed(segment.segment_id, position, now_ms)
        self._go_ahead(_Ahead(segment, position, request.max_bytes, window_bytes, following))

    def _go_ahead(self, ahead: _Ahead) -> None:
        """Begin to load what is missing of the next bytes, while there are idle threads and room.
        Of what is near only the next piece, and behind a segment's end some more: each costs the
        loop time."""
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
        """Do a load that no read waits for; where the next one begins. None if that is known only
        when this one is there, which then goes on."""
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
        """Half of the threads at most, and none that a read waits for."""
        pool = self._pool
        is_idle = not pool.pending and 2 * pool.running < pool.threads_max
        wanted = self._ahead_bytes + load.bytes
        return is_idle and self.sources.chunks.has_room_ahead(wanted, self._now_ms())
