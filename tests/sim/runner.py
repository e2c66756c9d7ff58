"""Many seeds over the cores.

Every seed is a job of its own, so that no process waits for another: results come in the order in
which the seeds end, one line each.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sim.cluster.faults import brokers_of
from sim.mutants import planted
from sim.run import Verdict, plan_of, run_seed, shrink
from tidelog.simulation.timeline import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
U = TypeVar("U")
FAILURES_MAX = 3  # the run ends with the third
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


def collect_seldom() -> None:
    """Python's usual thresholds spend a seventh of a run on the garbage collector."""
    gc.set_threshold(20_000, 4, 1)


def in_parallel(work: Callable[[T], U], jobs: Iterator[T], processes: int) -> Iterator[U]:
    """Do jobs, as many at a time as there are processes; the next job is asked for when one of
    them is free."""
    if processes == 1:
        collect_seldom()
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(processes, initializer=collect_seldom) as pool:
        running: set[Future[U]] = set()
        while True:
            running |= {
                pool.submit(work, job) for job in itertools.islice(jobs, processes - len(running))
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
    for one in in_parallel(_judge, jobs(), processes):
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
