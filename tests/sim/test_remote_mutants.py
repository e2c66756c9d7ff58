"""Planted bugs of the remote tier, each found in one of some seeds that are fine without it: by the
play of `test_remote_tier.py`, by that of `test_remote_lineage.py`, or by the mixed workload."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from sim.cluster.tier_habits import has_tier
from sim.loop import simulate
from sim.mutants import remote, tier
from sim.run import run_seed
from sim.test_remote_lineage import live as live_branches
from sim.test_remote_tier import live
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEEDS_MAX = 14  # all fine without a planted bug: `test_seeds_are_fine_without_one`
BROKERS = 3
# Where each was found the last time it was looked for; the others are looked through after these.
FOUND_AT = {
    "a-new-leader-trusts-no-metadata": 1,
    "aborted-transactions-end-with-their-segment": 9,
    "copied-before-it-is": 2,
    "deletions-are-finished-when-they-fail": 1,
    "events-are-not-read-back": 1,
    "failed-copies-count": 4,
    "files-are-ahead-of-what-they-have": 9,
    "followers-begin-with-one-epoch": 1,
    "nobody-marks": 4,
    "one-id-for-all-tries": 9,
    "open-transactions-are-copied": 9,
    "out-of-sight-is-out-of-range": 9,
    "retention-does-not-wait": 1,
    "rotten-bytes-are-served": 12,
    "segments-are-found-by-offset-alone": 2,
    "segments-go-before-the-log-start-moves": 27,
    "the-log-start-stays-when-the-tier-goes": 19,
    "the-segment-of-the-log-start-goes": 9,
    "the-store-before-the-metadata": 9,
    "unfinished-segments-are-read": 12,
}


def play(number: int) -> None:
    seed = f"tier-{number}"
    simulate(seed, lambda loop: live(loop, seed, 1 + number % 3, 6))


def play_branches(number: int) -> None:
    seed = f"branches-{number}"
    simulate(seed, lambda loop: live_branches(loop, seed, 3))


@contextlib.contextmanager
def planted(mutant: Callable[..., None]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        mutant(
            lambda owner, attribute, value: stack.enter_context(
                mock.patch.object(owner, attribute, value)
            )
        )
        yield


def is_found_by(
    run: Callable[[int], Any], errors: tuple[type[Exception], ...], first: int = 0
) -> bool:
    for number in dict.fromkeys((first, *range(SEEDS_MAX))):
        try:
            run(number)
        except errors:
            return True  # anything else is a mutant that no longer fits what it changes
    return False


@pytest.mark.slow
def test_seeds_are_fine_without_one() -> None:
    for number in range(SEEDS_MAX):
        play(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", remote.MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(remote.MUTANTS[name]):
        found = (AssertionError, RemoteStorageError)
        assert is_found_by(play, found, FOUND_AT[name])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", tier.BRANCHES)
def test_a_planted_bug_is_found_in_dead_branches(name: str) -> None:
    with planted(tier.BRANCHES[name]):
        assert is_found_by(play_branches, (AssertionError,), FOUND_AT.get(name, 0))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", tier.CLUSTER)
def test_a_planted_bug_is_found_by_the_mixed_workload(name: str) -> None:
    tiered = [seed for seed in range(100) if has_tier(seed)][:SEEDS_MAX]
    with planted(tier.CLUSTER[name]):
        for seed in dict.fromkeys((FOUND_AT[name], *tiered)):
            failure = run_seed(seed, brokers=BROKERS).failure
            if failure is not None:
                assert failure.startswith("Violation:"), failure  # not by tripping over itself
                return
    pytest.fail(f"{name} survived {SEEDS_MAX} seeds")
