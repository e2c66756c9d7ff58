"""Planted bugs of the remote tier: each is found by the play of `test_remote_tier.py`, in one of
some seeds that are fine without it."""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest

from sim.loop import simulate
from sim.mutants.remote import MUTANTS
from sim.test_remote_tier import live
from tidelog_storage.remote.api import RemoteStorageError

SEEDS_MAX = 14  # all fine without a planted bug: `test_seeds_are_fine_without_one`


def play(number: int) -> None:
    seed = f"tier-{number}"
    simulate(seed, lambda loop: live(loop, seed, 1 + number % 3, 6))


@pytest.mark.slow
def test_seeds_are_fine_without_one() -> None:
    for number in range(SEEDS_MAX):
        play(number)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    with contextlib.ExitStack() as stack:
        MUTANTS[name](
            lambda owner, attribute, value: stack.enter_context(
                mock.patch.object(owner, attribute, value)
            )
        )
        for number in range(SEEDS_MAX):
            try:
                play(number)
            except (AssertionError, RemoteStorageError):
                return  # anything else is a mutant that no longer fits what it changes
    pytest.fail(f"{name} survived {SEEDS_MAX} seeds")
