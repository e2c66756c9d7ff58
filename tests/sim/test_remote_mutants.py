"""Planted bugs of the remote tier: each is found by the play of `test_remote_tier.py`, in a seed
that is fine without it."""

from __future__ import annotations

import contextlib
from unittest import mock

import pytest

from sim.loop import simulate
from sim.mutants.remote import MUTANTS
from sim.test_remote_tier import live

FOUND_BY = {
    "copied-before-it-is": 1,
    "failed-copies-count": 1,
    "deletions-are-finished-when-they-fail": 0,
    "nobody-marks": 1,
    "one-id-for-all-tries": 2,
    "a-new-leader-trusts-no-metadata": 6,
    "events-are-not-read-back": 1,
    "unfinished-segments-are-read": 3,
    "retention-does-not-wait": 1,
}


def test_every_planted_bug_is_tried() -> None:
    assert FOUND_BY.keys() == MUTANTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    seed = f"tier-{FOUND_BY[name]}"
    with contextlib.ExitStack() as stack:
        MUTANTS[name](
            lambda owner, attribute, value: stack.enter_context(
                mock.patch.object(owner, attribute, value)
            )
        )
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever breaks first
            simulate(seed, lambda loop: live(loop, seed, 1 + FOUND_BY[name] % 3, 6))
