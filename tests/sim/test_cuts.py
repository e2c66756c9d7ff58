"""A log that is cut by processes that die inside of the cut has no hole and loses nothing else."""

from __future__ import annotations

import pytest

from sim.cuts import run_cuts
from sim.history import Violation
from sim.mutants import CUT_MUTANTS, planted

SEEDS = 60
SEEDS_FOR_A_MUTANT_MAX = 300


def test_all_promises_hold():
    deaths = sum(run_cuts(seed).deaths for seed in range(SEEDS))
    assert deaths > SEEDS


@pytest.mark.parametrize("name", CUT_MUTANTS)
def test_a_planted_bug_is_found(name):
    with planted(name):
        assert any(is_violated(seed) for seed in range(SEEDS_FOR_A_MUTANT_MAX))


def is_violated(seed):
    try:
        run_cuts(seed)
    except Violation:
        return True
    return False
