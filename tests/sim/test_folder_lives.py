"""A log directory over many lives keeps what is not the broker's, and mixes no topics."""

from __future__ import annotations

import pytest

from sim.folder_lives import run_folder_lives
from sim.history import Violation
from sim.mutants import FOLDER_MUTANTS, planted

SEEDS = 60
SEEDS_FOR_A_MUTANT_MAX = 300


def test_all_promises_hold():
    runs = [run_folder_lives(seed) for seed in range(SEEDS)]
    assert sum(run.deaths for run in runs) > SEEDS / 2
    assert sum(run.strays for run in runs) > SEEDS / 2


@pytest.mark.parametrize("name", FOLDER_MUTANTS)
def test_a_planted_bug_is_found(name):
    with planted(name):
        assert any(is_violated(seed) for seed in range(SEEDS_FOR_A_MUTANT_MAX))


def is_violated(seed):
    try:
        run_folder_lives(seed)
    except Violation:
        return True
    return False
