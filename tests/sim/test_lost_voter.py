"""A voter that lost its disk does not vote before it is formatted."""

from __future__ import annotations

import pytest

from sim.history import Violation
from sim.lost_voter import run_lost_voter
from sim.mutants import VOTER_MUTANTS, planted


@pytest.mark.parametrize("seed", range(6))
def test_the_last_copy_is_not_forgotten(seed):
    run_lost_voter(seed)


@pytest.mark.parametrize("name", VOTER_MUTANTS)
def test_a_planted_bug_is_found(name):
    with planted(name):
        assert any(is_violated(seed) for seed in range(20))


def is_violated(seed):
    try:
        run_lost_voter(seed)
    except Violation:
        return True
    return False
