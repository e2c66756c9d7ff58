"""What remote reads wait for: indexes and chunks on their way from the store.

Owns: what is being loaded (a thing at a time, whoever wants it) and reading ahead. Called by
`reads.py` alone. Threads are the reader pool's.

What nobody waits for any more is given up before a thread has begun with it. What has begun is
finished and kept: a store slower than the readers' patience serves their next try.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.sources import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tidelog.remote.pools import Pool
    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.remote.sources import Loaded, Sources

__all__ = ["Ahead", "Loader", "LostError"]

_AHEAD_SEGMENTS_MAX = 8
_NEAR_AHEAD_BYTES = 2 << 20


class Ahead(NamedTuple):
    """Where a reader stopped, how much it asks for at a time, and how many bytes to have ready
    behind it. `following` tells the segment after one."""

    segment: RemoteSegment
    position: int
    wanted: int
    window_bytes: int
    following: Callable[[RemoteSegment], RemoteSegment | None]


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
        self.task: asyncio.Task[Loaded] | None = None
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
        self._flights: dict[tuple[UUID, int], _Flight] = {}
        self._ahead_bytes = 0  # of flights that nobody waited for when they began
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._flights)

    # ---- loading ------------------------------------------------------------------------------

    async def loaded(self, job: Job) -> Loaded:
        """Do a job, or wait for the same one of somebody else. RemoteStorageError; LostError."""
        flight = self._flights.get(job.key)
        while flight is not None and flight.is_given_up:
            assert flight.task is not None
            await asyncio.wait((flight.task,))  # its end is near: nothing of it has begun
            flight = self._flights.get(job.key)
        if flight is None:
            flight = self._take_off(job, is_ahead=False)
        assert flight.task is not None
        if flight.task.done():  # else who comes in this turn of the loop would ask again for ever
            self._land(flight, flight.task)
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

    async def _fly(self, flight: _Flight) -> Loaded:
        return await self._pool.run(self._load, flight)

    def _load(self, flight: _Flight) -> Loaded:
        """On a worker thread."""
        if not flight.claim():
            raise RemoteStorageError("nobody waits for it any more")
        return self.sources.load(flight.job)

    def _land(self, flight: _Flight, task: asyncio.Task[Loaded]) -> None:
        """Keep what came, before anybody who waits for it runs; once."""
        job = flight.job
        if self._flights.get(job.key) is not flight:
            return
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

    def make_ready(self, ahead: Ahead) -> None:
        """Have the next piece at hand if it is near, else as `fetch_ahead` within the segment; at
        its end that of the next one too, within the window."""
        segment, position, wanted, window_bytes, following = ahead
        while window_bytes > 0 and not self._is_closed:
            if position >= segment.size:
                after = following(segment)
                if after is None:
                    return
                segment, position = after, 0
            here = Ahead(segment, position, wanted, window_bytes, following)
            end = self.sources.make_ready(segment, position, wanted, self._now_ms())
            if isinstance(end, Job):
                if end.key not in self._flights and self._may_fetch_ahead(end):
                    self._take_off_ahead(end, partial(self.make_ready, here))
                return
            if end is None:
                self.fetch_ahead(here._replace(following=lambda _: None))
                end = min(position + window_bytes, segment.size)
            else:
                window_bytes = min(window_bytes, _NEAR_AHEAD_BYTES)
            if end < segment.size:
                return
            window_bytes -= end - position
            position = end

    def fetch_ahead(self, ahead: Ahead) -> None:
        """Begin to load what is missing of the next bytes, while there are idle threads and
        room."""
        segment, position, _, window_bytes, following = ahead
        for _ in range(_AHEAD_SEGMENTS_MAX):
            for job in self.sources.ahead(segment, position, window_bytes, self._now_ms()):
                if job.key not in self._flights:
                    if not self._may_fetch_ahead(job):
                        return
                    # The chunks of a segment are known when its indexes are there.
                    rest = ahead._replace(
                        segment=segment, position=position, window_bytes=window_bytes
                    )
                    self._take_off_ahead(
                        job, partial(self.fetch_ahead, rest) if job.place is None else None
                    )
                if job.place is None:
                    return
            window_bytes -= segment.size - position
            after = following(segment) if window_bytes > 0 else None
            if after is None:
                return
            segment, position = after, 0

    def _take_off_ahead(self, job: Job, go_on: Callable[[], None] | None) -> None:
        """Do a job that nobody waits for, and what comes after it."""

        def landed(task: asyncio.Task[Loaded]) -> None:
            assert go_on is not None
            if not task.cancelled() and task.exception() is None and not self._is_closed:
                go_on()

        flight = self._take_off(job, is_ahead=True)
        if go_on is not None:
            assert flight.task is not None
            flight.task.add_done_callback(landed)

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
