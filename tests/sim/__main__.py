"""Many seeds over the cores: `python -m sim --seeds N` or `--minutes M`, and one to look at:
`--seed N`.

Unless `--brokers` says how many brokers there are, each seed does: one (in a world of its own, with
a disk that loses power at any moment) or a cluster of up to seven. With `--directories` clusters
have two log directories a broker, and replicas that move between them. `--mutants` plants the bugs
of `mutants/` one by one, each where it may be found (`grounds.py`), and says at which seed it is.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from typing import TYPE_CHECKING

import sim.run
from sim.cluster.directories import MovingWorld
from sim.cluster.faults import brokers_of
from sim.hunting import hunt
from sim.mutants import ALL, planted
from sim.run import plan_of, run_seed
from sim.runner import judge, report, run_many
from tidelog.simulation.timeline import lines

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["judge"]

SEEDS = 200


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
    for line in lines(verdict.timeline):
        print(line)
    print("seen: " + ", ".join(f"{k} {v}" for k, v in sorted(verdict.counts.items())))
    print(f"trace {verdict.trace}")
    print(verdict.failure or "all checks held")
    if verdict.details:
        print(verdict.details)
    return 1 if verdict.failure else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seeds", type=int, help=f"how many seeds ({SEEDS}, or what time allows)")
    parser.add_argument("--minutes", type=float, help="begin no more seeds after so many minutes")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--brokers", type=int, help="how many brokers, 1 to 7 (by the seed)")
    parser.add_argument("--seed", type=int, help="run this one and show it")
    parser.add_argument("--faults", help="with --seed: only these of its faults, by number")
    parser.add_argument("--mutant", metavar="BUG", choices=sorted(ALL), help="plant one")
    parser.add_argument("--mutants", action="store_true", help="find every planted bug")
    parser.add_argument(
        "--directories", action="store_true", help="replicas move between log directories"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser


def main() -> int:
    """The command line."""
    options = _parser().parse_args()
    flags = ""
    if options.directories:
        sim.run.ClusterWorld = MovingWorld  # here, and in the processes that are forked from here
        flags = " --directories"
    if options.seed is not None:
        return show(options.seed, options.faults, options.mutant, options.brokers)
    seeds: Iterable[int] = itertools.count(options.first)
    if options.seeds is not None or options.minutes is None or options.mutants:
        seeds = range(options.first, options.first + (options.seeds or SEEDS))
    if options.mutants:
        return hunt(seeds, options.processes, options.mutant)
    minutes = math.inf if options.minutes is None else options.minutes
    tally = run_many(seeds, options.processes, options.brokers, options.mutant, minutes)
    for verdict in tally.failed:
        report(verdict, options.mutant, flags)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
