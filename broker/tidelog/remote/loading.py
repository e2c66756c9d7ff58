"""What remote reads wait for: indexes and chunks on their way from the store.

Owns: what is being loaded (a thing at a time, whoever wants it) and reading ahead. Called by
`reads.py` alone. Threads are the reader pool's.

What nobody waits for any more is given up before a thread has begun with it. What has begun is
finished and kept: a store slower than the readers' patience serves their next try.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog_storage.remote.api import RemoteResourceNotFound, RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.remote.pools import Pool
    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.remote.chunks import Chunk
    from tidelog_storage.remote.index_cache import RemoteIndexes
    from tidelog_storage.remote.sources import Job, Sources

__all__ = ["Loader", "LostError"]

_AHEAD_SEGMENTS_MAX = 8


class LostError(Exception):
    """The store does not have what the metadata says it has."""


class _Flight:
    """A job on its way, and how many reads wait for it.

    `is_given_up` is set if nobody waits any more before a thread has begun with it.
    """

    __slots__ = ("_ticket", "is_ahead", "is_given_up", "job", "task", "waiters")

    def __init__(self, job: Job, *, is_ahead: bool) -> None:
        self.job = job
        self.is_ahead = is_ahead
        self.waiters = 0
        self.is_given_up = False
        self.task: asyncio.Task[Chunk | RemoteIndexes] | None = None
        self._ticket = [None]

    def claim(self) -> bool:
        """Whether the caller is the first: a thread that does the job or the loop that gives it up.

        Taking something out of a list is atomic.
        """
        try:
            self._ticket.pop()
        except IndexError:
            return False
        return True


class Loader:
    """The jobs of one broker's remote reads, by what they load."""

    def __init__(self, sources: Sources, pool: Pool, now_ms: Callable[[], int]) -> None:
        self.sources = sources
        self._pool = pool
        self._now_ms = now_ms
        self._flights: dict[tuple[bytes, int], _Flight] = {}
        self._ahead_bytes = 0  # of flights that nobody waited for when they began
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._flights)

    # ---- loading ------------------------------------------------------------------------------

    async def loaded(self, job: Job) -> Chunk | RemoteIndexes:
        """Do a job, or wait for the same one of somebody else. RemoteStorageError; LostError."""
        flight = self._flights.get(job.key)
        while flight is not None and flight.is_given_up:
            assert flight.task is not None
            await asyncio.wait((flight.task,))  # its end is near: nothing of it has begun
            flight = self._flights.get(job.key)
        if flight is None:
            flight = self._take_off(job, is_ahead=False)
        assert flight.task is not None
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        except RemoteResourceNotFound as error:
            raise LostError(str(error)) from error
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done() and flight.claim():
                flight.is_given_up = True
                flight.task.cancel()

    def _take_off(self, job: Job, *, is_ahead: bool) -> _Flight:
        flight = _Flight(job, is_ahead=is_ahead)
        self._flights[job.key] = flight
        self.sources.begin(job)
        if is_ahead:
            self._ahead_bytes += job.bytes
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight))
        flight.task.add_done_callback(lambda task: self._land(flight, task))
        return flight

    async def _fly(self, flight: _Flight) -> Chunk | RemoteIndexes:
        return await self._pool.run(self._load, flight)

    def _load(self, flight: _Flight) -> Chunk | RemoteIndexes:
        """On a worker thread."""
        if not flight.claim():
            raise RemoteStorageError("nobody waits for it any more")
        return self.sources.load(flight.job)

    def _land(self, flight: _Flight, task: asyncio.Task[Chunk | RemoteIndexes]) -> None:
        """Keep what came, before anybody who waits for it runs."""
        job = flight.job
        del self._flights[job.key]
        if flight.is_ahead:
            self._ahead_bytes -= job.bytes
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            is_ahead = flight.is_ahead and not flight.waiters
            self.sources.keep(job, task.result(), self._now_ms(), ahead=is_ahead)
        else:
            self.sources.give_up(job, error, self._now_ms())

    # ---- reading ahead ------------------------------------------------------------------------

    def fetch_ahead(
        self,
        segment: RemoteSegment,
        position: int,
        window_bytes: int,
        following: Callable[[RemoteSegment], RemoteSegment | None],
    ) -> None:
        """Begin to load what is missing of the next bytes behind a place, while there are idle
        threads and room. `following` tells the segment after one."""
        for _ in range(_AHEAD_SEGMENTS_MAX):
            for job in self.sources.ahead(segment, position, window_bytes, self._now_ms()):
                if job.key not in self._flights:
                    if not self._may_fetch_ahead(job):
                        return
                    flight = self._take_off(job, is_ahead=True)
                    if job.place is None:
                        assert flight.task is not None
                        flight.task.add_done_callback(
                            self._go_on(segment, position, window_bytes, following)
                        )
                if job.place is None:
                    return  # its chunks are known when it is there
            window_bytes -= segment.size - position
            after = following(segment) if window_bytes > 0 else None
            if after is None:
                return
            segment, position = after, 0

    def _go_on(
        self,
        segment: RemoteSegment,
        position: int,
        window_bytes: int,
        following: Callable[[RemoteSegment], RemoteSegment | None],
    ) -> Callable[[asyncio.Task[Any]], None]:
        def go_on(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and task.exception() is None and not self._is_closed:
                self.fetch_ahead(segment, position, window_bytes, following)

        return go_on

    def _may_fetch_ahead(self, job: Job) -> bool:
        """Half of the threads at most, and none that somebody waits for."""
        pool = self._pool
        is_idle = not pool.pending and 2 * pool.running < pool.threads_max
        wanted = self._ahead_bytes + job.bytes
        return is_idle and self.sources.read_ahead.has_room_ahead(wanted, self._now_ms())

    async def close(self) -> None:
        """Give up all; what a thread has begun is left to it."""
        self._is_closed = True
        tasks = [flight.task for flight in self._flights.values() if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
