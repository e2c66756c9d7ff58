"""Each planted bug of transactions is found by three brokers, within some seeds."""

from __future__ import annotations

import itertools

import pytest

from sim.cluster.transactions_habits import has_transactions
from sim.mutants import planted, transactions
from sim.run import run_seed

SEEDS_MAX = 30  # of those with transactions


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", transactions.MUTANTS)
def test_a_planted_bug_is_found(name):
    seeds = itertools.islice(filter(has_transactions, itertools.count()), SEEDS_MAX)
    with planted(name):
        failure = next(filter(None, (run_seed(seed, brokers=3).failure for seed in seeds)), None)
    assert failure is not None
    assert failure.startswith("Violation:"), failure
