"""A few hundred seeds, of one to seven brokers as each says: every promise holds in all of them."""

from __future__ import annotations

import pytest

from sim.cluster.faults import brokers_of
from sim.run import run_seed

SEEDS = 100
SEEDS_PER_TEST = 5  # some seconds each, on a quiet machine


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1000, 1000 + SEEDS, SEEDS_PER_TEST))
def test_all_promises_hold(first):
    for seed in range(first, first + SEEDS_PER_TEST):
        verdict = run_seed(seed, brokers=brokers_of(seed))
        assert verdict.failure is None, f"cd tests && python -m sim --seed {seed}"
        assert verdict.counts["records acknowledged"] > 0
