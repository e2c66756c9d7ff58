"""Many seeds over the cores, and the hunt for planted bugs.

Every seed is a job of its own, so that no process waits for another: results come in the order in
which the seeds end, one line each.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from sim.cluster.faults import brokers_of
from sim.cluster.tier_habits import has_tier
from sim.mutants import CLUSTER_MUTANTS, MUTANTS, TIER_MUTANTS, planted
from sim.run import Verdict, plan_of, run_seed, shrink
from sim.timeline import lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FAILURES_MAX = 3  # the run ends with the third
MUTANT_BROKERS = 3  # where a planted bug of a cluster is looked for by default
TIMELINE_LINES_MAX = 150
LINE_MAX = 120


class Job(NamedTuple):
    """One seed to run. `brokers` None: as many as the seed says."""

    seed: int
    mutant: str | None = None
    brokers: int | None = None


class Judged(NamedTuple):
    """A job that has ended."""

    job: Job
    verdict: Verdict
    cpu_s: float


def judge(seed: int, mutant: str | None, brokers: int | None) -> Verdict:
    """Run one seed, perhaps with a mutant planted."""
    with planted(mutant):
        return run_seed(seed, brokers=brokers_of(seed) if brokers is None else brokers)


def _judge(job: Job) -> Judged:
    started = time.process_time()
    verdict = judge(*job)
    return Judged(job, verdict, time.process_time() - started)


def judged(jobs: Iterator[Job], processes: int) -> Iterator[Judged]:
    """Run jobs, as many at a time as there are processes; the next job is asked for when one of
    them is free."""
    if processes == 1:
        yield from map(_judge, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        running: set[Future[Judged]] = set()
        while True:
            running |= {
                pool.submit(_judge, job) for job in itertools.islice(jobs, processes - len(running))
            }
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


class Tally:
    """Sums over all seeds of a run."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.virtual_s = self.cpu_s = 0.0
        self.failed: list[Verdict] = []

    def add(self, one: Judged) -> None:
        """One more seed."""
        verdict = one.verdict
        self.sizes[verdict.brokers] += 1
        self.faults.update(verdict.faults)
        self.counts.update(verdict.counts)
        self.virtual_s += verdict.virtual_s
        self.cpu_s += one.cpu_s
        if verdict.failure is not None:
            self.failed.append(verdict)

    def lines(self, wall_s: float) -> Iterator[str]:
        """The summary."""
        seeds, faults = self.sizes.total(), self.faults.total()
        yield (
            f"{seeds} seeds, {self.virtual_s / 3600:.2f} virtual hours, {wall_s:.1f} s,"
            f" {self.cpu_s:.1f} CPU s ({seeds / wall_s:.2f} seeds/s,"
            f" {faults / max(self.cpu_s, 0.001):.2f} faults per CPU s), {len(self.failed)} failed"
        )
        yield "brokers: " + ", ".join(f"{n} seeds with {size}" for size, n in _sorted(self.sizes))
        yield "faults: " + ", ".join(f"{name} {n}" for name, n in _sorted(self.faults))
        yield "seen: " + ", ".join(f"{name} {n}" for name, n in _sorted(self.counts))


def _sorted(table: Counter[str] | Counter[int]) -> Iterable[tuple[str | int, int]]:
    return sorted(table.items())


def run_many(
    seeds: Iterable[int], processes: int, brokers: int | None, mutant: str | None, minutes: float
) -> Tally:
    """Run the seeds, print each, and sum up; after so many minutes no more are begun."""
    started = time.monotonic()

    def jobs() -> Iterator[Job]:
        for seed in seeds:
            if time.monotonic() - started > minutes * 60 or len(tally.failed) >= FAILURES_MAX:
                return
            yield Job(seed, mutant, brokers)

    tally = Tally()
    for one in judged(jobs(), processes):
        tally.add(one)
        verdict = one.verdict
        faults = sum(verdict.faults.values())
        times = f"{verdict.virtual_s:.1f} virtual s, {one.cpu_s:.1f} CPU s"
        print(f"seed {verdict.seed}: {verdict.brokers} brokers, {faults} faults, {times}:", end=" ")
        print((verdict.failure or "holds")[:LINE_MAX], flush=True)
    for line in tally.lines(time.monotonic() - started):
        print(line)
    return tally


def report(verdict: Verdict, mutant: str | None, flags: str = "") -> None:
    """A failure: the shortest plan of faults that shows it, what happened, how to see it again."""
    with planted(mutant):
        best = shrink(verdict)
    plan = plan_of(best.seed, best.brokers)
    kept = [str(index) for index, fault in enumerate(plan) if fault in best.plan]
    told = list(lines(best.timeline))
    print(f"\nseed {best.seed}: {best.failure}")
    print(f"  shortest schedule: {len(best.plan)} of {len(verdict.plan)} faults")
    if len(told) > TIMELINE_LINES_MAX:
        print(f"  ({len(told) - TIMELINE_LINES_MAX} earlier lines are left out)")
    for line in told[-TIMELINE_LINES_MAX:]:
        print(f"  {line}")
    planting = f" --mutant {mutant}" if mutant else ""
    print(
        f"  replay: cd tests && python -m sim --seed {best.seed}"
        f" --faults {','.join(kept) or 'none'}{planting} --brokers {best.brokers}{flags}",
        flush=True,
    )


class Hunt:
    """The search for one planted bug: its seeds in order, several at a time."""

    def __init__(self, name: str, brokers: int, seeds: Iterable[int]) -> None:
        self.name, self.brokers = name, brokers
        tier = name in TIER_MUTANTS  # to be found where there is a remote tier
        self.seeds = [seed for seed in seeds if not tier or has_tier(seed)]
        self.cpu_s = 0.0
        self.begun = 0
        self.ended: dict[int, Verdict] = {}

    @property
    def running(self) -> int:
        """Jobs that have not ended."""
        return self.begun - len(self.ended)

    def is_open(self) -> bool:
        """Whether another seed is to be tried."""
        found = any(verdict.failure is not None for verdict in self.ended.values())
        return not found and self.begun < len(self.seeds)

    def next(self) -> Job:
        """The next seed."""
        self.begun += 1
        return Job(self.seeds[self.begun - 1], self.name, self.brokers)

    def result(self) -> tuple[int, Verdict | None] | None:
        """How many seeds it took and the verdict that shows the bug, None if no seed does; None
        altogether while it is not known."""
        if self.is_open() or self.running:
            return None
        for count, seed in enumerate(self.seeds[: self.begun], 1):
            if self.ended[seed].failure is not None:
                return count, self.ended[seed]
        return self.begun, None


def hunt(seeds: Iterable[int], processes: int, brokers: int | None, mutant: str | None) -> int:
    """How many seeds it takes to find each planted bug (or the one); the exit code."""
    homes = [(name, 1) for name in MUTANTS] if brokers in (None, 1) else []
    if brokers != 1:
        homes += [(name, brokers or MUTANT_BROKERS) for name in {**CLUSTER_MUTANTS, **TIER_MUTANTS}]
    tried = list(seeds)
    hunts = [Hunt(name, size, tried) for name, size in homes if mutant in (None, name)]
    by_name = {one.name: one for one in hunts}

    def jobs() -> Iterator[Job]:
        """Each process takes a bug of its own as long as there are enough of them."""
        while waiting := [one for one in hunts if one.is_open()]:
            yield min(waiting, key=lambda one: one.running).next()

    started = time.monotonic()
    survivors: list[str] = []
    cpu_s = 0.0
    for done in judged(jobs(), processes):
        assert done.job.mutant is not None
        one = by_name[done.job.mutant]
        one.ended[done.job.seed] = done.verdict
        one.cpu_s += done.cpu_s
        cpu_s += done.cpu_s
        result = one.result()
        if result is not None:
            count, verdict = result
            if verdict is None:
                survivors.append(one.name)
            found = "survives" if verdict is None else "found in"
            print(f"{one.name:34} {one.brokers} brokers: {found} {count:3} seeds", end="")
            failure = verdict.failure if verdict else None
            print(f", {one.cpu_s:6.1f} CPU s  {(failure or '')[:LINE_MAX]}", flush=True)
    print(
        f"{len(hunts) - len(survivors)} of {len(hunts)} planted bugs found in"
        f" {time.monotonic() - started:.1f} s on {processes} processes, {cpu_s:.1f} CPU s",
        *survivors,
    )
    return 1 if survivors else 0
