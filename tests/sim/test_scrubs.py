"""Rot in sealed segments is found and repaired, whatever dies on the way."""

from __future__ import annotations

from sim.scrubs import run_scrubs

SEEDS = 150


def test_all_promises_hold() -> None:
    plays = [run_scrubs(seed) for seed in range(SEEDS)]
    assert sum(play.deaths for play in plays) > SEEDS / 10
    assert sum(play.damaged for play in plays) > SEEDS
