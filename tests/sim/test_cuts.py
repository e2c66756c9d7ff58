"""A log that is cut by processes that die inside of the cut has no hole and loses nothing else."""

from __future__ import annotations

from sim.cuts import run_cuts

SEEDS = 60


def test_all_promises_hold() -> None:
    deaths = sum(run_cuts(seed).deaths for seed in range(SEEDS))
    assert deaths > SEEDS
