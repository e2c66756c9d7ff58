"""Rot in sealed segments is found and repaired, whatever dies on the way."""

from __future__ import annotations

import pytest

from sim.history import Violation
from sim.mutants import SCRUB_MUTANTS, planted
from sim.scrubs import run_scrubs

SEEDS = 150
SEEDS_FOR_A_MUTANT_MAX = 300


def test_all_promises_hold():
    plays = [run_scrubs(seed) for seed in range(SEEDS)]
    assert sum(play.deaths for play in plays) > SEEDS / 10
    assert sum(play.damaged for play in plays) > SEEDS


@pytest.mark.parametrize("name", SCRUB_MUTANTS)
def test_a_planted_bug_is_found(name):
    with planted(name):
        assert any(is_violated(seed) for seed in range(SEEDS_FOR_A_MUTANT_MAX))


def is_violated(seed):
    try:
        run_scrubs(seed)
    except Violation:
        return True
    return False
