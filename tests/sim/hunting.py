"""The hunt for planted bugs: each where it may be found, over the cores.

A bug counts as found at the first seed whose run fails with it and holds without it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from sim.grounds import GROUND_OF
from sim.mutants import planted
from sim.runner import LINE_MAX, in_parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Try(NamedTuple):
    """One seed to run with one bug."""

    bug: str
    seed: int


class Tried(NamedTuple):
    """A try that has ended. `is_found` is None if the run holds, False if its failure says nothing
    about the bug."""

    job: Try
    is_found: bool | None
    failure: str
    cpu_s: float


def attempt(job: Try) -> Tried:
    """Run a seed with a bug and, if it fails, without."""
    started = time.process_time()
    run = GROUND_OF[job.bug].run
    try:
        with planted(job.bug):
            failure = run(*job)
        is_found = None if failure is None else True
        if failure is not None and (other := run(*job)) is not None:
            is_found, failure = False, f"fails without it, too: {other}"
    except Exception as error:  # noqa: BLE001 - the bug no longer fits what it changes
        is_found, failure = False, f"does not fit: {error!r}"
    return Tried(job, is_found, failure or "", time.process_time() - started)


class Hunt:
    """The search for one planted bug: its seeds in order, several at a time."""

    def __init__(self, bug: str, seeds: Iterable[int]) -> None:
        self.bug, self.ground = bug, GROUND_OF[bug]
        self.seeds = [seed for seed in seeds if self.ground.suits(seed)]
        self.begun = 0
        self.ended: dict[int, Tried] = {}

    @property
    def running(self) -> int:
        """Tries that have not ended."""
        return self.begun - len(self.ended)

    @property
    def cpu_s(self) -> float:
        """What it took so far."""
        return sum(tried.cpu_s for tried in self.ended.values())

    def is_open(self) -> bool:
        """Whether another seed is to be tried."""
        ended = any(tried.is_found is not None for tried in self.ended.values())
        return not ended and self.begun < len(self.seeds)

    def next(self) -> Try:
        """The next seed."""
        self.begun += 1
        return Try(self.bug, self.seeds[self.begun - 1])

    def is_over(self) -> bool:
        """Whether it is known how it ends."""
        return not self.is_open() and not self.running

    def result(self) -> Tried | None:
        """The first try that does not hold; None if all do."""
        tries = (self.ended[seed] for seed in self.seeds[: self.begun])
        return next((tried for tried in tries if tried.is_found is not None), None)

    def line(self) -> str:
        """Of the table: the bug, where it was looked for, the seed, CPU seconds and the failure."""
        result = self.result()
        if result is None:
            where, failure = f"survives {self.begun} seeds", ""
        else:
            where, failure = f"seed {result.job.seed}", result.failure
        return (
            f"{self.bug:43} {self.ground.name:24} {where:18} {self.cpu_s:7.1f} CPU s"
            f"  {failure[:LINE_MAX]}"
        )


def hunt(seeds: Iterable[int], processes: int, bug: str | None) -> int:
    """At which seed each planted bug (or the one) is found, and for how much; the exit code."""
    tried = list(seeds)
    hunts = {name: Hunt(name, tried) for name in GROUND_OF if bug in (None, name)}

    def jobs() -> Iterator[Try]:
        """Each process takes a bug of its own as long as there are enough of them."""
        while waiting := [one for one in hunts.values() if one.is_open()]:
            yield min(waiting, key=lambda one: one.running).next()

    logging.getLogger("tidelog").addHandler(logging.NullHandler())  # brokers warn of what is done
    started = time.monotonic()
    survivors: list[str] = []
    for done in in_parallel(attempt, jobs(), processes):
        one = hunts[done.job.bug]
        one.ended[done.job.seed] = done
        if one.is_over():
            print(one.line(), flush=True)
            result = one.result()
            if result is None or not result.is_found:
                survivors.append(one.bug)
    print(
        f"{len(hunts) - len(survivors)} of {len(hunts)} planted bugs found in"
        f" {time.monotonic() - started:.1f} s on {processes} processes,"
        f" {sum(one.cpu_s for one in hunts.values()):.1f} CPU s",
        *survivors,
    )
    return 1 if survivors else 0
