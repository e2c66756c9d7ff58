"""A coordinator or a leader killed in the middle of each step of a transaction, or cut off then:
commit or abort, never half, whether its client goes on or is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sim.cluster.transactions_steps import STEPS, VICTIMS, Case, cases, play
from sim.mutants import planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet


def by_turns(steps: Iterable[str]) -> list[ParameterSet]:
    """CI plays each with one version of transactions, by turns, the nightly run with both."""
    return [
        pytest.param(
            *(step, is_v2),
            marks=[] if is_v2 == bool(number % 2) else pytest.mark.nightly,
            id=f"{step}-{'v2' if is_v2 else 'classic'}",
        )
        for number, step in enumerate(steps)
        for is_v2 in (False, True)
    ]


@pytest.mark.parametrize(("step", "is_v2"), by_turns(STEPS))
def test_a_death_at_any_step_halves_no_transaction(step: str, is_v2: bool) -> None:
    assert [failure for failure in map(play, cases(step, is_v2=is_v2)) if failure] == []


WRITES = [
    "init is written",
    "a partition is being added",
    "offsets are being added",
    "the end is written",
    "its completion is written",
]


@pytest.mark.parametrize(("step", "is_v2"), by_turns(WRITES))
def test_what_is_committed_late_counts(step: str, is_v2: bool) -> None:
    """A client that waits has heard by then that its coordinator does not know."""
    late = [
        Case(step, "coordinator", is_v2, is_commit, is_client_gone, "late")
        for is_commit in (True, False)
        for is_client_gone in (False, True)
    ]
    assert [failure for failure in map(play, late) if failure] == []


@pytest.mark.parametrize("is_v2", [False, True], ids=["classic", "v2"])
def test_a_coordinator_that_gives_late_writes_up_is_found(is_v2: bool) -> None:
    case = Case("a partition is being added", "coordinator", is_v2, True, True, "late")
    with planted("late-writes-are-given-up"):
        assert "its log says" in (play(case) or "")


@pytest.mark.parametrize(
    ("name", "step", "victim", "is_seen_as"),
    [
        ("markers-before-the-decision-is-committed", "the end is decided", 0, "decided, and False"),
        ("markers-forgotten-at-load", "the end is decided", 0, "PREPARE_COMMIT"),
        ("pending-offsets-not-loaded", "the end is written", 2, "True, offset -1"),
    ],
)
@pytest.mark.parametrize(
    "is_v2",
    [pytest.param(False, id="classic", marks=pytest.mark.nightly), pytest.param(True, id="v2")],
)
def test_a_planted_bug_is_found(
    name: str, step: str, victim: int, is_seen_as: str, is_v2: bool
) -> None:
    case = Case(step, VICTIMS[victim], is_v2, is_client_gone=True)
    assert play(case) is None
    with planted(name):
        assert is_seen_as in (play(case) or "")
