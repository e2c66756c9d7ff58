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
from sim.test_cluster_simulation import SEEDS
from sim.test_remote_lineage import SEEDS as BRANCHES_SEEDS
from sim.test_remote_lineage import live as live_branches
from sim.test_remote_tier import live
from tidelog_storage.remote.api import RemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

SEEDS_MAX = 14
BROKERS = 3
# Where each was found the last time it was looked for; the others are looked through after these.
FOUND_AT = {
    "a-new-leader-trusts-no-metadata": 6,
    "aborted-transactions-end-with-their-segment": 9,
    "copied-before-it-is": 1,
    "deletions-are-finished-when-they-fail": 1,
    "events-are-not-read-back": 1,
    "failed-copies-count": 4,
    "files-are-ahead-of-what-they-have": 9,
    "followers-begin-with-one-epoch": 1,
    "nobody-marks": 4,
    "one-id-for-all-tries": 9,
    "open-transactions-are-copied": 9,
    "out-of-sight-is-out-of-range": 113,
    "retention-does-not-wait": 1,
    "rotten-bytes-are-served": 18,
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
    mutant: Callable[..., None],
    run: Callable[[int], Any],
    errors: tuple[type[Exception], ...],
    seeds: Iterable[int],
    fine: Container[int],
) -> bool:
    """Whether a seed that holds without the planted bug fails with it. Of the `fine` ones other
    tests say that they hold; another one has to hold here."""
    for number in dict.fromkeys(seeds):
        try:
            with planted(mutant):
                run(number)
        except errors:
            if number not in fine:
                run(number)
            return True  # anything else is a mutant that no longer fits what it changes
    return False


@pytest.mark.slow
def test_seeds_are_fine_without_one() -> None:
    for number in range(SEEDS_MAX):
        play(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", remote.MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    found = (AssertionError, RemoteStorageError)
    seeds = (FOUND_AT[name], *range(SEEDS_MAX))
    assert is_found_by(remote.MUTANTS[name], play, found, seeds, fine=range(SEEDS_MAX))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", tier.BRANCHES)
def test_a_planted_bug_is_found_in_dead_branches(name: str) -> None:
    seeds = (FOUND_AT.get(name, 0), *range(SEEDS_MAX))
    fine = range(BRANCHES_SEEDS)
    assert is_found_by(tier.BRANCHES[name], play_branches, (AssertionError,), seeds, fine)


class ViolatedError(Exception):
    """By the verdict on a seed of the mixed workload."""


def play_cluster(seed: int) -> None:
    failure = run_seed(seed, brokers=BROKERS).failure
    if failure is not None:
        assert failure.startswith("Violation:"), failure  # not by tripping over itself
        raise ViolatedError(failure)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", tier.CLUSTER)
def test_a_planted_bug_is_found_by_the_mixed_workload(name: str) -> None:
    tiered = [seed for seed in range(100) if has_tier(seed)][:SEEDS_MAX]
    fine = [seed for brokers, seed in SEEDS if brokers == BROKERS]
    seeds = (FOUND_AT[name], *tiered)
    assert is_found_by(tier.CLUSTER[name], play_cluster, (ViolatedError,), seeds, fine)
