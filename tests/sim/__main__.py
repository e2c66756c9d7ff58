"""Many seeds over the cores: `python -m sim --seeds N`, and one to look at: `--seed N`.

Unless `--brokers` says how many brokers there are, each seed does: one (in a world of its own, with
a disk that loses power at any moment) or a cluster of up to seven. With `--directories` clusters
have two log directories a broker, and replicas that move between them. `--mutants` plants the bugs
of `mutants/` one by one, and says how many seeds it took to find each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import sim.run
from sim.cluster.directories import MovingWorld
from sim.cluster.faults import brokers_of
from sim.cluster.tier_habits import has_tier
from sim.mutants import CLUSTER_MUTANTS, MUTANTS, TIER_MUTANTS, planted
from sim.run import Verdict, plan_of, run_seed, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURES_MAX = 3  # then the rest is not worth its time
MUTANT_BROKERS = 3  # where bugs of a cluster are looked for, unless it is said otherwise


def judge(seed: int, mutant: str | None, brokers: int | None) -> Verdict:
    """Run one seed, perhaps with a mutant planted (in a process of the pool).

    `brokers` None: as many as the seed says.
    """
    with planted(mutant):
        return run_seed(seed, brokers=brokers_of(seed) if brokers is None else brokers)


def verdicts(
    seeds: range, processes: int, mutant: str | None, brokers: int | None
) -> Iterator[Verdict]:
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


def run_many(seeds: range, processes: int, mutant: str | None, brokers: int | None) -> int:
    """Run the seeds, print what happened; the exit code."""
    started = time.monotonic()
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    failed: list[Verdict] = []
    virtual_s = 0.0
    done = 0
    sizes: Counter[int] = Counter()
    for verdict in verdicts(seeds, processes, mutant, brokers):
        done += 1
        sizes[verdict.brokers] += 1
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
    print("brokers: " + ", ".join(f"{sizes[size]} seeds with {size}" for size in sorted(sizes)))
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
    print(f" --brokers {best.brokers}")


def show(seed: int, faults: str | None, mutant: str | None, brokers: int | None) -> int:
    """One seed, whole or with some of its faults; the exit code."""
    brokers = brokers_of(seed) if brokers is None else brokers
    plan = plan_of(seed, brokers)
    if faults is not None:
        kept = [] if faults == "none" else [int(index) for index in faults.split(",")]
        plan = [plan[index] for index in kept]
    with planted(mutant):
        verdict = run_seed(seed, plan, brokers)
    print(f"seed {seed}: {brokers} brokers, {verdict.steps} steps", end="")
    print(f", {verdict.virtual_s:.3f} virtual seconds")
    for fault in plan:
        print(f"  {fault}")
    print("seen: " + ", ".join(f"{k} {v}" for k, v in sorted(verdict.counts.items())))
    print(f"trace {verdict.trace}")
    print(verdict.failure or "all checks held")
    if verdict.details:
        print(verdict.details)
    return 1 if verdict.failure else 0


def find(name: str, seeds: range, brokers: int) -> tuple[int, Verdict | None]:
    """Look for one planted bug: how many seeds it took, and the verdict that shows it, or None.

    One of the remote tier is looked for where there is one.
    """
    tried = [seed for seed in seeds if name not in TIER_MUTANTS or has_tier(seed)]
    for count, seed in enumerate(tried, 1):
        verdict = judge(seed, name, brokers)
        if verdict.failure is not None:
            return count, verdict
    return len(tried), None


def hunt(seeds: range, processes: int, mutant: str | None, brokers: int | None) -> int:
    """How many seeds it takes to find each planted bug (or the one); the exit code."""
    homes = [(name, 1) for name in MUTANTS] if brokers in (None, 1) else []
    if brokers != 1:
        found_by_clusters = {**CLUSTER_MUTANTS, **TIER_MUTANTS}
        homes += [(name, brokers or MUTANT_BROKERS) for name in found_by_clusters]
    homes = [(name, size) for name, size in homes if mutant in (None, name)]
    started = time.monotonic()
    survivors: list[str] = []
    with ProcessPoolExecutor(processes) as pool:
        hunts = [(name, size, pool.submit(find, name, seeds, size)) for name, size in homes]
        for name, size, hunted in hunts:
            count, verdict = hunted.result()
            if verdict is None:
                survivors.append(name)
            found = "survives" if verdict is None else "found in"
            print(f"{name:34} {size} brokers: {found} {count:3} seeds", end="")
            print(f"  {verdict.failure if verdict else ''}"[:110], flush=True)
    print(f"{len(homes) - len(survivors)} of {len(homes)} planted bugs found", end="")
    print(f" in {time.monotonic() - started:.1f} s on {processes} cores", *survivors)
    return 1 if survivors else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--brokers", type=int, help="how many brokers, 1 to 7 (by the seed)")
    parser.add_argument("--seed", type=int, help="run this one and show it")
    parser.add_argument("--faults", help="with --seed: only these of its faults, by number")
    parser.add_argument(
        "--mutant", choices=sorted({**MUTANTS, **CLUSTER_MUTANTS, **TIER_MUTANTS}), help="plant one"
    )
    parser.add_argument("--mutants", action="store_true", help="find every planted bug")
    parser.add_argument(
        "--directories", action="store_true", help="replicas move between log directories"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.directories:
        sim.run.ClusterWorld = MovingWorld  # here, and in the processes that are forked from here
    if options.seed is not None:
        return show(options.seed, options.faults, options.mutant, options.brokers)
    seeds = range(options.first, options.first + options.seeds)
    if options.mutants:
        return hunt(seeds, options.processes, options.mutant, options.brokers)
    return run_many(seeds, options.processes, options.mutant, options.brokers)


if __name__ == "__main__":
    sys.exit(main())
