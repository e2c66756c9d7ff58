"""Runs a partition's task again and again: how often, and what a failure changes.

A task runs once an interval, and at once when it is woken; one run at a time. After a retriable
failure the pauses grow. After any other failure the next run is an interval later, as in Kafka,
because each attempt may cost a copy and three events.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_storage.remote.api import (
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Rng, Runtime

__all__ = ["Pace", "Repeated"]

log = logging.getLogger("tidelog.tiered")


class Pace(NamedTuple):
    """How often tasks run, in seconds: the interval, and the pauses after failures."""

    interval_s: float
    backoff_s: float
    backoff_s_max: float
    jitter: float

    @classmethod
    def of(cls, config: BrokerConfig) -> Pace:
        """Kafka's remote.log.manager.task.* settings."""
        return cls(
            config.remote_log_manager_task_interval_ms / 1000,
            config.remote_log_manager_task_retry_backoff_ms / 1000,
            config.remote_log_manager_task_retry_backoff_max_ms / 1000,
            config.remote_log_manager_task_retry_jitter,
        )

    def pause_s(self, failures: int, rng: Rng) -> float:
        """Return the pause after so many failures in a row, with jitter."""
        pause_s: float = min(self.backoff_s * 2 ** min(failures - 1, 32), self.backoff_s_max)
        return pause_s * rng.uniform(1 - self.jitter, 1 + self.jitter)


class Repeated:
    """Repeats work in one asyncio task."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], pace: Pace, runtime: Runtime
    ) -> None:
        """`work` raises RetriableRemoteStorageError for a failure that may pass soon."""
        self._name = name
        self._work = work
        self._pace = pace
        self._rng, self._time = runtime.rng, runtime.work
        self._wake = asyncio.Event()
        self._is_restarted = False
        self._is_ending = False
        self._awaited: list[asyncio.Future[Exception | None]] = []
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def wake(self) -> None:
        """Run now, or after the current run. A pause after a failure is kept."""
        self._wake.set()

    def restart(self) -> None:
        """Run now, without a pause: the role is new. Kafka makes a new task then."""
        self._is_restarted = True
        self._wake.set()

    async def run_now(self) -> None:
        """Run now, without a pause; return when a run that began after this call has ended. Raises
        its failure."""
        if self._task.done():
            raise RemoteStorageNotReady(f"{self._name}: the task has ended")
        ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._awaited.append(ended)
        self.restart()
        either: list[asyncio.Future[Any]] = [ended, self._task]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        failure = ended.result() if ended.done() else RemoteStorageNotReady(f"{self._name}: ended")
        if failure is not None:
            raise failure

    async def end(self) -> None:
        """Wait for the current run, and begin no other."""
        self._is_ending = True
        self._wake.set()
        await asyncio.wait([self._task])

    async def cancel(self) -> None:
        """Cancel the current run."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while not self._is_ending:
            self._wake.clear()
            self._is_restarted = False
            pause_s = 0.0
            awaited, self._awaited = self._awaited, []
            failure: Exception | None = None
            try:
                await self._work()
                failures = 0
            except RemoteStorageNotReady as error:
                failure = error  # the metadata wakes the task when it is ready
            except RetriableRemoteStorageError as error:
                failure, failures = error, failures + 1
                log.info("%s: %s", self._name, error)
            except Exception as error:
                failure, failures, pause_s = error, 0, self._pace.interval_s
                if isinstance(error, RemoteStorageError):
                    log.warning("%s: %s", self._name, error)
                else:
                    log.exception("%s failed", self._name)
            for ended in awaited:
                if not ended.done():
                    ended.set_result(failure)
            if failures:
                pause_s = self._pace.pause_s(failures, self._rng)
            await (self._pause(pause_s) if pause_s else self._rest())

    async def _pause(self, seconds: float) -> None:
        """Wait, also if woken: a roll does not call a store that fails."""
        until = self._time.time() + seconds
        while not (self._is_ending or self._is_restarted) and self._time.time() < until:
            self._wake.clear()
            await self._time.wait_until(self._wake, until)

    async def _rest(self) -> None:
        await self._time.wait_until(self._wake, self._time.time() + self._pace.interval_s)
