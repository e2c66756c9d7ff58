"""The workload of a simulated cluster does all that it is there for, and bit rot is dealt with."""

from __future__ import annotations

import random

from sim.cluster.faults import ClusterFault
from sim.run import run_seed
from tidelog_storage import replicated

WORK = {
    "brokers added",
    "brokers removed",
    "committed offsets looked at",
    "group assignments",
    "offsets committed",
    "reassignments",
    "reassignments cancelled",
    "reassignments listed",
    "records deleted",
    "topics created again",
    "topics deleted",
    "topics grown",
}


def rotten(seed):
    """A plan of nothing but bit rot."""
    rng = random.Random(seed)
    return sorted(
        ClusterFault(
            rng.uniform(0.5, 9), "bit rot", rng.randint(1, 3), rng.random(), rng.uniform(1, 4)
        )
        for _ in range(3)
    )


def test_everything_is_done_within_some_seeds():
    missing = set(WORK)
    for seed in range(100, 130):
        verdict = run_seed(seed, brokers=4)
        assert verdict.failure is None, seed
        missing -= verdict.counts.keys()
        if not missing:
            return
    assert not missing


def test_bits_that_flip_are_repaired_and_go_nowhere():
    for seed in (3, 4):
        verdict = run_seed(seed, rotten(seed), 3)
        assert verdict.failure is None
        assert verdict.counts["bits flipped"] == verdict.counts["rot repaired"] > 0


def test_a_follower_that_takes_over_rot_is_found(monkeypatch):
    monkeypatch.setattr(replicated, "crc_is_valid", lambda *_: True)
    failures = (run_seed(seed, rotten(seed), 3).failure for seed in range(20))
    assert next(filter(None, failures), None) is not None
