"""Bounded pools of threads for calls to a remote store, by Kafka's names (KIP-405, KIP-950).

A pool bounds how many calls run at once. A call that hangs holds one place of its own pool and
nothing else. Sizes may change at any time. Used on the loop only.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.seams import Executor

__all__ = ["Pool", "PoolFullError", "Pools"]

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX = 1000  # of one pool, whatever its size is set to

_TASKS_IDLE = Name("kafka.log.remote", "RemoteLogManager", "RemoteLogManagerTasksAvgIdlePercent")
# Kafka has the reader pool under both names until its next major version.
_READER = (
    ("kafka.log.remote", "RemoteStorageThreadPool"),
    ("org.apache.kafka.storage.internals.log", "RemoteStorageThreadPool"),
)


class PoolFullError(Exception):
    """The maximum number of calls waits for a place already."""


class Pool:
    """Runs at most `threads_max` calls at a time; the others wait in the order they came.

    Invariant: no call waits while fewer than `threads_max` run.
    """

    def __init__(
        self, executor: Executor, threads_max: int, *, pending_max: int | None = None
    ) -> None:
        """`executor` has enough threads; at most `pending_max` calls may wait for a place."""
        self._executor = executor
        self._threads_max = threads_max
        self._pending_max = pending_max
        self._waiting: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._running: dict[asyncio.Task[None], None] = {}
        self._closed = False

    @property
    def threads_max(self) -> int:
        """The number of calls that may run at a time; set it to change it."""
        return self._threads_max

    @threads_max.setter
    def threads_max(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._grant()

    @property
    def running(self) -> int:
        """The number of calls that hold a place, including abandoned ones."""
        return len(self._running)

    @property
    def pending(self) -> int:
        """The number of calls that wait for a place."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the pool accepts no call now."""
        is_busy = len(self._running) >= self._threads_max
        return is_busy and self._pending_max is not None and self.pending >= self._pending_max

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a thread when there is a place; PoolFullError if too many wait.

        If the caller is cancelled, the function runs on and holds its place until it returns.
        """
        ended = self.begin(function, *args, **kwargs)
        try:
            return await ended
        finally:
            self.withdraw(ended)

    def begin(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Begin a call like `run`; the future is done when the function has returned."""
        assert not self._closed, "the pool is closed"
        if self.is_full:
            raise PoolFullError(f"{self._pending_max} calls wait already")
        ended: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[ended] = partial(function, *args, **kwargs)
        self._grant()
        return ended

    def withdraw(self, ended: asyncio.Future[Any]) -> bool:
        """Withdraw a call that still waits for a place; return whether it did."""
        is_waiting = self._waiting.pop(ended, None) is not None
        if is_waiting:
            ended.cancel()
        return is_waiting

    def _grant(self) -> None:
        while self._waiting and len(self._running) < self._threads_max:
            ended = next(iter(self._waiting))
            call = self._call(ended, self._waiting.pop(ended))
            task = asyncio.get_running_loop().create_task(call)
            self._running[task] = None
            task.add_done_callback(self._ended)

    async def _call(self, ended: asyncio.Future[Any], function: Callable[[], Any]) -> None:
        if ended.done():
            return  # cancelled before it began
        try:
            result = await self._executor.run(function)
        except asyncio.CancelledError:
            ended.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            if not ended.done():
                ended.set_exception(error)
        else:
            if not ended.done():
                ended.set_result(result)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not self._closed:
            self._grant()

    def close(self) -> None:
        """Begin no more calls, and do not wait for running ones."""
        self._closed = True
        for ended in list(self._waiting):
            self.withdraw(ended)
        self._executor.close()
        for task in list(self._running):
            task.cancel()


class Pools:
    """The pools of one broker."""

    def __init__(
        self, new_executor: Callable[[str, int], Executor], config: BrokerConfig, meters: Meters
    ) -> None:
        def pool(name: str, pending_max: int | None = None) -> Pool:
            return Pool(new_executor(f"remote-{name}", THREADS_MAX), 1, pending_max=pending_max)

        self.copier, self.expiration = pool("copier"), pool("expiration")
        self.follower = pool("follower")
        self.reader = pool("reader", config.remote_log_reader_max_pending_tasks)
        self.resize(config)
        meters.gauge(_TASKS_IDLE, lambda: _idle(self.copier))  # only this pool, as in Kafka
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

    def close(self) -> None:
        """Close all pools without waiting for running calls."""
        for pool in (self.copier, self.expiration, self.follower, self.reader):
            pool.close()


def _idle(pool: Pool) -> list[Sample]:
    """Return the share of free places."""
    return [Sample((), max(0.0, 1 - pool.running / pool.threads_max))]
