"""Long pauses and lacks of descriptors in a cluster: a planted bug that each alone shows."""

from __future__ import annotations

import pytest

from sim.cluster.faults import ClusterFault
from sim.mutants import planted
from sim.run import run_seed


@pytest.mark.parametrize(
    ("bug", "fault", "seed"),
    [
        ("any-partition-epoch", ClusterFault(2.0, "long pause", 1, 0, 4.0), 13),
        (
            "take-no-descriptors-for-a-broken-disk",
            ClusterFault(1.0, "no descriptors", 2, 1, 1.2),
            1,
        ),
    ],
)
def test_a_planted_bug_is_found(bug: str, seed: int, fault: ClusterFault) -> None:
    assert run_seed(seed, [fault], brokers=3).failure is None
    with planted(bug):
        failure = run_seed(seed, [fault], brokers=3).failure
    assert failure is not None
    assert failure.startswith("Violation:"), failure
