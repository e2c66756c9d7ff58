"""Groups of KIP-848 alone: what is promised holds while members and brokers come and go.

Seeds 1017, 1020 and 1023 of `test_many_seeds.py` have such a group beside all other work.
"""

from __future__ import annotations

import pytest

from sim.consumer_groups import KINDS, draw_plan, run_consumer_groups


@pytest.mark.parametrize("seed", [2, 3, 8, 12])  # in the last two members change their protocol
def test_all_promises_hold(seed: int) -> None:
    counts = run_consumer_groups(seed)
    assert counts["heartbeats of KIP-848"] > 0
    assert counts["offsets committed"] > 0


@pytest.mark.nightly
def test_everything_is_done_within_some_seeds() -> None:
    missing = {
        "answers not waited for",
        "classic members in a mixed group",
        "instances not released",
        "late commits refused",
        "members answered FENCED_MEMBER_EPOCH",
        "members answered UNKNOWN_MEMBER_ID",
        "members of KIP-848 that come back",
        "members that sleep",
    }
    for seed in (6, 308, *range(309, 330)):  # the first ones are enough, until schedules shift
        missing -= run_consumer_groups(seed).keys()
        if not missing:
            return
    assert not missing


def test_plans_hold_every_fault() -> None:
    assert {fault.kind for seed in range(60) for fault in draw_plan(seed)} == KINDS


def test_a_seed_gives_the_same_run_twice() -> None:
    assert run_consumer_groups(3) == run_consumer_groups(3)
