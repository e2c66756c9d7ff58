"""Many seeds, of one to seven brokers as each says: every promise holds in all of them."""

from __future__ import annotations

import pytest

from sim.cluster.faults import brokers_of
from sim.run import run_seed

SEEDS = 100
SEEDS_IN_CI = 4  # five seconds of CPU each; `make nightly` runs the others, and thousands more
SEEDS_PER_TEST = 2
FIRSTS = [
    pytest.param(first, marks=[] if first < 1000 + SEEDS_IN_CI else pytest.mark.nightly)
    for first in range(1000, 1000 + SEEDS, SEEDS_PER_TEST)
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", FIRSTS)
def test_all_promises_hold(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        verdict = run_seed(seed, brokers=brokers_of(seed))
        assert verdict.failure is None, f"cd tests && python -m sim --seed {seed}"
        assert verdict.counts["records acknowledged"] > 0
