"""A log directory over many lives keeps what is not the broker's, and mixes no topics."""

from __future__ import annotations

from sim.folder_lives import run_folder_lives

SEEDS = 60


def test_all_promises_hold() -> None:
    runs = [run_folder_lives(seed) for seed in range(SEEDS)]
    assert sum(run.deaths for run in runs) > SEEDS / 2
    assert sum(run.strays for run in runs) > SEEDS / 2
