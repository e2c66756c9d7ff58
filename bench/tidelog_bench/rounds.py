"""Runs cases against peers alternately, in an order shuffled each round, and keeps every figure."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tidelog_bench.page_cache import warm_up_page_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from tidelog_bench.cases import Case
    from tidelog_bench.peers.peer import Served

__all__ = ["Plan", "Samples", "Spread", "calibrate", "run_rounds"]

_CALIBRATION_LOOPS = 1_500_000


class Spread(NamedTuple):
    """The median of a figure and how far its samples lie apart."""

    median: float
    low: float
    high: float
    samples: int

    @property
    def noise(self) -> float:
        """Half the distance of the extremes, as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0


class Samples:
    """Figures by case, metric and peer."""

    def __init__(self) -> None:
        self.all: dict[str, dict[str, dict[str, list[float]]]] = {}
        self.failures: list[str] = []
        self.calibration: list[float] = []
        self.file_writes: list[float] = []  # CPU ms/MB in memory as it was found

    def add(self, case: str, peer: str, figures: Mapping[str, float]) -> None:
        """Keep one run's figures."""
        for metric, figure in figures.items():
            by_peer = self.all.setdefault(case, {}).setdefault(metric, {})
            by_peer.setdefault(peer, []).append(figure)

    def of(self, case: str, metric: str, peer: str) -> list[float]:
        """One peer's figures, in the order of rounds; empty if it was never measured."""
        return self.all.get(case, {}).get(metric, {}).get(peer, [])

    def spread(self, case: str, metric: str, peer: str) -> Spread | None:
        """Median and extremes; None if it was never measured."""
        values = self.of(case, metric, peer)
        if not values:
            return None
        return Spread(statistics.median(values), min(values), max(values), len(values))

    def ratio(self, case: str, metric: str, peer: str, to: str) -> float | None:
        """The median over rounds of one peer's figure by another's of the same round, where that is
        not 0.

        What disturbed a round disturbed both: this is steadier than the ratio of medians.
        """
        pairs = zip(self.of(case, metric, peer), self.of(case, metric, to), strict=False)
        ratios = [one / other for one, other in pairs if other]
        return statistics.median(ratios) if ratios else None


def calibrate() -> float:
    """Milliseconds of a fixed amount of Python work: how free the machine is right now."""
    started = time.perf_counter()
    total = 0
    for number in range(_CALIBRATION_LOOPS):
        total += number
    return 1e3 * (time.perf_counter() - started)


class Plan(NamedTuple):
    """What a run measures, and where its figures go."""

    folder: Path
    """Holds the peers' data."""
    samples: Samples
    say: Callable[[str], None]
    rounds: int
    scale: float = 1.0
    """Share of each case's usual work."""
    seed: int = 1
    """Of the order of cases and peers."""
    only: str = ""
    """Part of the names of the cases to run."""
    peers: Collection[str] = ()
    """Names of the peers to run; empty means all."""


def run_rounds(plan: Plan, cases: Sequence[Case], peers: Sequence[Served]) -> None:
    """Warm up (one round that is not counted, mostly of part of the work), then measure."""
    rng = random.Random(plan.seed)
    for number in range(plan.rounds + 1):
        warm_up = number == 0
        plan.say("warm-up" if warm_up else f"round {number} of {plan.rounds}")
        order = list(cases)
        rng.shuffle(order)
        for case in order:
            plan.samples.calibration.append(calibrate())
            scale = plan.scale * (case.warm_up_share if warm_up else 1.0)
            for peer in rng.sample(list(peers), len(peers)):
                if case.megabytes:
                    written = case.megabytes * scale * peer.replication_factor
                    plan.samples.file_writes.append(warm_up_page_cache(plan.folder, written))
                figures = _run_one(plan, case, peer, scale)
                if not warm_up and figures is not None:
                    plan.samples.add(case.name, peer.name, figures)


def _run_one(plan: Plan, case: Case, peer: Served, scale: float) -> Mapping[str, float] | None:
    try:
        figures = case.run(peer, scale)
    except Exception as error:  # noqa: BLE001 - one peer's trouble must not cost the others' figures
        plan.samples.failures.append(f"{case.name}, {peer.name}: {error}")
        plan.say(f"  {case.name}: {peer.name} FAILED: {error}")
        return None
    shown = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
    plan.say(f"  {case.name}: {peer.name}: {shown}")
    return figures
