"""A progress bar on a terminal, while one Spark job after the other runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["Progress"]

_WIDTH = 30
_SECONDS = 0.5

T = TypeVar("T")


class Progress:
    """Prints `what [####    ] 40 %` over itself; nothing if standard error is no terminal."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(total, 1)
        self._done = self._most = 0
        self._is_shown = sys.stderr.isatty()

    def add(self, amount: int) -> None:
        """Count this much as done."""
        self._done += amount
        self._show(self._done)

    def run(self, spark: SparkSession, amount: int, job: Callable[[], T]) -> T:
        """Return a job's result; what it has of its tasks done counts as parts of an amount."""
        if not self._is_shown:
            found = job()
        else:
            found = self.watch(job, lambda: int(amount * _share_done(spark)))
        self.add(amount)
        return found

    def watch(self, job: Callable[[], T], done: Callable[[], int]) -> T:
        """Return a job's result; show beside it what `done` says. An interrupt does not wait for
        the job."""
        pool = ThreadPoolExecutor(1)
        running = pool.submit(job)
        try:
            while not wait([running], timeout=_SECONDS).done:
                self._show(self._done + done())
            return running.result()
        finally:
            pool.shutdown(wait=running.done())

    def end(self) -> None:
        """Leave the line."""
        if self._is_shown:
            print(file=sys.stderr)

    def _show(self, done: int) -> None:
        self._most = max(self._most, done)  # between two stages no task runs
        if self._is_shown:
            share = min(self._most / self._total, 1.0)
            bar = "#" * int(_WIDTH * share)
            print(f"\r{self._what} [{bar:<{_WIDTH}}] {share:4.0%}", end="", file=sys.stderr)
            sys.stderr.flush()


def _share_done(spark: SparkSession) -> float:
    """Of the tasks of the stages that run now, from 0 to 1."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    counts = [(each.numCompletedTasks, each.numTasks) for each in stages if each is not None]
    return sum(done for done, _ in counts) / max(sum(tasks for _, tasks in counts), 1)
