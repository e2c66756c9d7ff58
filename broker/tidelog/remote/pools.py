"""Bounded pools of threads for calls to a remote store, by Kafka's names (KIP-405, KIP-950).

A pool bounds how many calls run at once, whoever asks; a call that hangs holds one place of its own
pool and nothing else. Sizes may change at any time. Used on the loop alone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.seams import Executor

__all__ = ["Pool", "PoolFullError", "Pools"]

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX = 1000  # of one pool, whatever its size is set to

_TASKS_IDLE = Name("kafka.log.remote", "RemoteLogManager", "RemoteLogManagerTasksAvgIdlePercent")
# Kafka tells the reader pool under both names until its next major version.
_READER = (
    ("kafka.log.remote", "RemoteStorageThreadPool"),
    ("org.apache.kafka.storage.internals.log", "RemoteStorageThreadPool"),
)


class PoolFullError(Exception):
    """As many calls wait for a place as may."""


class Pool:
    """Runs at most `threads_max` calls at a time; the others wait in the order they came.

    Invariant: nobody waits while fewer than `threads_max` run.
    """

    def __init__(
        self, executor: Executor, threads_max: int, *, pending_max: int | None = None
    ) -> None:
        """`executor` has threads enough; `pending_max`: how many calls may wait for a place."""
        self._executor = executor
        self._threads_max = threads_max
        self._pending_max = pending_max
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._running = 0
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def threads_max(self) -> int:
        """How many calls may run at a time; set it to change it."""
        return self._threads_max

    @threads_max.setter
    def threads_max(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._grant()

    @property
    def running(self) -> int:
        """Calls that hold a place, those that nobody waits for any more included."""
        return self._running

    @property
    def pending(self) -> int:
        """Calls that wait for a place."""
        return len(self._waiting)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a thread when there is a place; PoolFullError if too many wait.

        Who is cancelled while the function runs leaves it to itself: its place is taken until it
        returns.
        """
        assert not self._closed, "the pool is closed"
        if self._running < self._threads_max:
            self._running += 1
        else:
            if self._pending_max is not None and len(self._waiting) >= self._pending_max:
                raise PoolFullError(f"{self._pending_max} calls wait already")
            await self._place()
        call = asyncio.get_running_loop().create_task(self._executor.run(function, *args, **kwargs))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        return await asyncio.shield(call)

    async def _place(self) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[granted] = None
        try:
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(granted, granted) is granted and not granted.cancelled():
                self._release()  # it was granted in the same turn of the loop
            raise

    def _grant(self) -> None:
        while self._waiting and self._running < self._threads_max:
            granted = next(iter(self._waiting))
            del self._waiting[granted]
            if not granted.done():
                self._running += 1
                granted.set_result(None)

    def _release(self) -> None:
        self._running -= 1
        self._grant()

    def _ended(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # who waited may have gone: nobody else looks at it
        self._release()

    def close(self) -> None:
        """Begin nothing any more, and wait for nothing."""
        self._closed = True
        for granted in list(self._waiting):
            granted.cancel()
        self._waiting.clear()
        self._executor.close()
        for call in list(self._calls):
            call.cancel()


class Pools:
    """The pools of one broker."""

    def __init__(
        self,
        new_executor: Callable[[str, int], Executor],
        config: BrokerConfig,
        meters: Meters | None = None,
    ) -> None:
        def pool(name: str, threads_max: int, pending_max: int | None = None) -> Pool:
            return Pool(new_executor(name, THREADS_MAX), threads_max, pending_max=pending_max)

        self.copier = pool("remote-copier", config.remote_log_manager_copier_thread_pool_size)
        self.expiration = pool(
            "remote-expiration", config.remote_log_manager_expiration_thread_pool_size
        )
        self.follower = pool("remote-follower", config.remote_log_manager_follower_thread_pool_size)
        self.reader = pool(
            "remote-reader",
            config.remote_log_reader_threads,
            config.remote_log_reader_max_pending_tasks,
        )
        if meters is not None:
            self._tell(meters)

    def _tell(self, meters: Meters) -> None:
        meters.gauge(_TASKS_IDLE, lambda: _idle(self.copier))  # of this pool alone, as in Kafka
        for place in _READER:
            meters.gauge(Name(*place, "RemoteLogReaderAvgIdlePercent"), lambda: _idle(self.reader))
            meters.gauge(
                Name(*place, "RemoteLogReaderTaskQueueSize"),
                lambda: [Sample((), self.reader.pending)],
            )

    def resize(self, config: BrokerConfig) -> None:
        """Follow dynamic settings."""
        self.copier.threads_max = config.remote_log_manager_copier_thread_pool_size
        self.expiration.threads_max = config.remote_log_manager_expiration_thread_pool_size
        self.follower.threads_max = config.remote_log_manager_follower_thread_pool_size
        self.reader.threads_max = config.remote_log_reader_threads

    def by_name(self) -> Mapping[str, Pool]:
        """All of them."""
        return {
            "copier": self.copier,
            "expiration": self.expiration,
            "follower": self.follower,
            "reader": self.reader,
        }

    def close(self) -> None:
        """Wait for nothing that runs."""
        for pool in self.by_name().values():
            pool.close()


def _idle(pool: Pool) -> list[Sample]:
    """The part of its places that nobody has."""
    return [Sample((), max(0.0, 1 - pool.running / pool.threads_max))]
