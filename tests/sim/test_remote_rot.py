"""Objects of the remote store that rot are copied again."""

from __future__ import annotations

from sim.cluster.remote_rot import has_remote_rot
from sim.run import run_seed

SEED = 40


def test_rotten_objects_of_the_store_are_copied_again() -> None:
    assert has_remote_rot(SEED)
    verdict = run_seed(SEED, brokers=3)
    assert verdict.failure is None
    assert verdict.counts["remote objects copied again"] > 0
