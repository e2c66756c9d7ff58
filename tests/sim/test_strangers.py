"""Second processes, claimed epochs, quorum requests out of range, rotten votes: they do nothing,
and planted bugs that believe them are found."""

from __future__ import annotations

import pytest

from sim.cluster.copied_disks import COPIED_DISK
from sim.cluster.faults import ClusterFault
from sim.cluster.strangers import STRANGERS
from sim.mutants import planted, strangers
from sim.run import run_seed

COUNTS = {
    "second process": "second processes",
    "broker replaced": "brokers replaced",
    "replica epoch claimed": "replica epochs claimed",
    "quorum out of range": "quorum requests out of range",
    "vote rots": "votes rotted",
}


def test_strangers_are_not_believed() -> None:
    plan = [ClusterFault(1.5 + 3 * at, kind, 2, 0, 0) for at, kind in enumerate(STRANGERS)]
    verdict = run_seed(1, plan, brokers=3)
    assert verdict.failure is None
    assert all(verdict.counts[COUNTS[kind]] for kind in STRANGERS), verdict.counts


def test_a_process_on_a_copied_disk_does_not_start() -> None:
    verdict = run_seed(1, [ClusterFault(0.5, COPIED_DISK, 1, 0, 0)], brokers=3)
    assert verdict.failure is None
    assert verdict.counts["copies refused"] == verdict.counts["copied disks"] > 0


@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [
        ("known-directory-overrides-a-session", "second process", 1),
        ("known-directory-overrides-a-session", "copied disk", 1),
        ("no-sessions-after-an-election", "second process", 1),
        ("follow-the-image-of-another-life", "broker replaced", 4),
        ("believe-any-quorum-epoch", "quorum out of range", 1),
        ("rotten-vote-is-no-vote", "vote rots", 1),
    ],
)
def test_a_planted_bug_that_believes_it_is_found(name: str, kind: str, seed: int) -> None:
    """A claimed replica epoch is found by a liveness check, ten CPU seconds later."""
    assert name in strangers.MUTANTS
    with planted(name):
        failure = run_seed(seed, [ClusterFault(1.5, kind, 2, 0, 0)], brokers=3).failure
    assert failure is not None
    assert failure.startswith("Violation:"), failure
