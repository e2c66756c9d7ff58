"""Runs cases against peers alternately, in an order shuffled each round, and keeps every figure."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from tidelog_bench.page_cache import warm_up_page_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tidelog_bench.cases import Case
    from tidelog_bench.peers.peer import Served

__all__ = ["Samples", "Spread", "calibrate", "run_rounds"]

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
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


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


def run_rounds(
    cases: Sequence[Case],
    peers: Sequence[Served],
    samples: Samples,
    folder: Path,
    *,
    rounds: int,
    scale: float,
    seed: int,
    say: Callable[[str], None],
) -> None:
    """Warm up (a round, mostly of part of the work, that counts for nothing), then measure.

    `folder` is where the peers' data is.
    """
    rng = random.Random(seed)
    for number in range(rounds + 1):
        warm_up = number == 0
        say("warm-up" if warm_up else f"round {number} of {rounds}")
        order = list(cases)
        rng.shuffle(order)
        for case in order:
            samples.calibration.append(calibrate())
            share = case.warm_up_share if warm_up else 1.0
            for peer in rng.sample(list(peers), len(peers)):
                if case.megabytes:
                    written = case.megabytes * scale * share * peer.replication_factor
                    samples.file_writes.append(warm_up_page_cache(folder, written))
                _run_one(case, peer, samples, scale * share, warm_up, say)


def _run_one(
    case: Case,
    peer: Served,
    samples: Samples,
    scale: float,
    warm_up: bool,
    say: Callable[[str], None],
) -> None:
    try:
        figures = case.run(peer, scale)
    except Exception as error:  # noqa: BLE001 - one peer's trouble must not cost the others' figures
        samples.failures.append(f"{case.name}, {peer.name}: {error}")
        say(f"  {case.name}: {peer.name} FAILED: {error}")
        return
    shown = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
    say(f"  {case.name}: {peer.name}: {shown}")
    if not warm_up:
        samples.add(case.name, peer.name, figures)
