"""Each planted bug of transactions is found by three brokers, within some seeds."""

from __future__ import annotations

import itertools

import pytest

from sim.cluster.transactions_habits import has_transactions
from sim.mutants import planted, transactions
from sim.run import run_seed

SEEDS_MAX = 30  # of those with transactions
# Where each was found the last time it was looked for; the others are looked through after these.
FOUND_AT = {
    "aborted-in-the-first-segment": 1,
    "aborted-offsets-count": 1,
    "any-end-is-the-oldest": 1,
    "epoch-not-bumped": 5,
    "epochs-begin-again": 1,
    "guard-not-checked": 9,
    "markers-before-the-decision-is-committed": 1,
    "markers-forgotten-at-load": 7,
    "nothing-verified": 7,
    "pending-offsets-not-loaded": 7,
    "zombie-members-commit": 51,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", transactions.MUTANTS)
def test_a_planted_bug_is_found(name):
    many = itertools.islice(filter(has_transactions, itertools.count()), SEEDS_MAX)
    seeds = dict.fromkeys((FOUND_AT[name], *many))
    with planted(name):
        failure = next(filter(None, (run_seed(seed, brokers=3).failure for seed in seeds)), None)
    assert failure is not None
    assert failure.startswith("Violation:"), failure
