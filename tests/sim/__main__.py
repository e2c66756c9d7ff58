"""Many seeds over the cores: `python -m sim --seeds N`, and one to look at: `--seed N`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from sim.mutants import CLUSTER_MUTANTS, MUTANTS, planted
from sim.run import Verdict, plan_of, run_seed, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURES_MAX = 3  # then the rest is not worth its time


def judge(seed: int, mutant: str | None, brokers: int = 1) -> Verdict:
    """Run one seed, perhaps with a mutant planted (in a process of the pool)."""
    with planted(mutant):
        return run_seed(seed, brokers=brokers)


def verdicts(seeds: range, processes: int, mutant: str | None, brokers: int) -> Iterator[Verdict]:
    """The verdicts of all seeds, in order, from as many processes as there are cores."""
    if processes == 1:
        for seed in seeds:
            yield judge(seed, mutant, brokers)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(
            judge, seeds, [mutant] * len(seeds), [brokers] * len(seeds), chunksize=4
        )
        pool.shutdown(cancel_futures=True)


def run_many(seeds: range, processes: int, mutant: str | None, brokers: int) -> int:
    """Run the seeds, print what happened; the exit code."""
    started = time.monotonic()
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    failed: list[Verdict] = []
    virtual_s = 0.0
    done = 0
    for verdict in verdicts(seeds, processes, mutant, brokers):
        done += 1
        faults.update(verdict.faults)
        counts.update(verdict.counts)
        virtual_s += verdict.virtual_s
        if verdict.failure is not None:
            failed.append(verdict)
        _progress(done, len(seeds), len(failed), started)
        if len(failed) >= FAILURES_MAX:
            break
    wall_s = time.monotonic() - started
    print(f"\r\033[K{done} seeds, {virtual_s / 3600:.2f} virtual hours, {wall_s:.1f} s", end="")
    print(f" ({done / wall_s:.1f} seeds/s on {processes} cores), {len(failed)} failed")
    for title, table in (("faults", faults), ("seen", counts)):
        print(f"{title}: " + ", ".join(f"{name} {table[name]}" for name in sorted(table)))
    for verdict in failed:
        report(verdict, mutant)
    return 1 if failed else 0


def _progress(done: int, total: int, failed: int, started: float) -> None:
    if not sys.stdout.isatty():
        return
    filled = 30 * done // total
    rate = done / max(time.monotonic() - started, 0.001)
    bar = "█" * filled + "·" * (30 - filled)
    print(f"\r{bar} {done}/{total}, {rate:.1f} seeds/s, {failed} failed", end="", flush=True)


def report(verdict: Verdict, mutant: str | None) -> None:
    """A failure, the shortest plan of faults that shows it, and how to see it again."""
    with planted(mutant):
        best = shrink(verdict)
    kept = [
        str(index)
        for index, fault in enumerate(plan_of(best.seed, best.brokers))
        if fault in best.plan
    ]
    print(f"\nseed {best.seed}: {best.failure}")
    print(f"  shortest schedule ({len(best.plan)} of {len(verdict.plan)} faults):")
    for fault in best.plan:
        print(f"    {fault}")
    planting = f" --mutant {mutant}" if mutant else ""
    print(f"  replay: cd tests && python -m sim --seed {best.seed}", end="")
    print(f" --faults {','.join(kept) or 'none'}{planting}", end="")
    print(f" --brokers {best.brokers}" if best.brokers > 1 else "")


def show(seed: int, faults: str | None, mutant: str | None, brokers: int) -> int:
    """One seed, whole or with some of its faults; the exit code."""
    plan = plan_of(seed, brokers)
    if faults is not None:
        kept = [] if faults == "none" else [int(index) for index in faults.split(",")]
        plan = [plan[index] for index in kept]
    with planted(mutant):
        verdict = run_seed(seed, plan, brokers)
    print(f"seed {seed}: {verdict.steps} steps, {verdict.virtual_s:.3f} virtual seconds")
    for fault in plan:
        print(f"  {fault}")
    print("seen: " + ", ".join(f"{k} {v}" for k, v in sorted(verdict.counts.items())))
    print(f"trace {verdict.trace}")
    print(verdict.failure or "all checks held")
    if verdict.details:
        print(verdict.details)
    return 1 if verdict.failure else 0


def hunt(seeds: range, brokers: int) -> int:
    """How many seeds it takes to find each planted bug; the exit code."""
    survivors = 0
    for name in MUTANTS if brokers == 1 else CLUSTER_MUTANTS:
        runs = (judge(seed, name, brokers) for seed in seeds)
        verdict = next((v for v in runs if v.failure), None)
        survivors += verdict is None
        found = "survives" if verdict is None else f"{verdict.seed - seeds.start + 1:3} seeds"
        print(f"{name:32} {found}  {verdict.failure if verdict else ''}"[:150], flush=True)
    return 1 if survivors else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers, 1 to 7 (1)")
    parser.add_argument("--seed", type=int, help="run this one and show it")
    parser.add_argument("--faults", help="with --seed: only these of its faults, by number")
    parser.add_argument(
        "--mutant", choices=sorted({**MUTANTS, **CLUSTER_MUTANTS}), help="plant a bug first"
    )
    parser.add_argument("--mutants", action="store_true", help="find every planted bug")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed, options.faults, options.mutant, options.brokers)
    seeds = range(options.first, options.first + options.seeds)
    if options.mutants:
        return hunt(seeds, options.brokers)
    return run_many(seeds, options.processes, options.mutant, options.brokers)


if __name__ == "__main__":
    sys.exit(main())
