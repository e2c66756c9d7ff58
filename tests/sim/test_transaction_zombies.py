"""The group's coordinator under failover: offsets never go back, zombies commit nothing."""

from __future__ import annotations

import pytest

from sim.cluster.transactions_zombies import STORIES, tell
from sim.mutants import planted


@pytest.mark.parametrize("is_v2", [False, True], ids=["classic", "v2"])
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2))])
def test_a_story_ends_well(story: str, is_v2: bool, seed: int) -> None:
    assert tell(story, is_v2=is_v2, seed=seed) is None


@pytest.mark.parametrize(
    ("name", "story"),
    [
        ("pending-offsets-not-loaded", "offsets never go back"),
        ("open-offsets-are-stable", "offsets that are open"),
        ("stable-offsets-looked-at-late", "offsets that are open"),
        ("zombie-members-commit", "a member that was replaced"),
        ("aborted-offsets-count", "a producer that was replaced"),
    ],
)
def test_a_planted_bug_is_found(name: str, story: str) -> None:
    with planted(name):
        failures = [tell(story, is_v2=is_v2, seed=0) for is_v2 in (False, True)]
    assert any(failure and failure.startswith("Violation:") for failure in failures), failures
