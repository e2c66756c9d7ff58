"""Each check of groups with member epochs finds its anomaly, and nothing in a sound history."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from histories.calls import Beat, ClientHistory, Commit, Outcome, Span
from histories.judge import anomalies
from histories.tenures import Tenure, overlaps

P, Q = ("t", 0), ("t", 1)
SESSION_S, REBALANCE_S = 10.0, 4.0
GROUP, TERM = "g", (1, 1)


def beat(member: str, at: float, epochs: tuple[int, int], owned: str = "", **more) -> Beat:
    """A heartbeat that is answered 0.1 s later; `owned` and `assigned` by letters, "" for null and
    "-" for none."""
    assigned = places(more.pop("assigned", ""))
    return Beat(
        GROUP,
        member,
        epochs[0],
        Span(at, at + 0.1),
        more.pop("outcome", Outcome.OK),
        owned=places(owned),
        answered_epoch=epochs[1],
        assigned=assigned,
        rebalance_s=REBALANCE_S,
        term=more.pop("term", TERM),
        **more,
    )


def places(letters: str) -> frozenset[tuple[str, int]] | None:
    known = {"p": P, "q": Q}
    return frozenset(known[each] for each in letters if each in known) if letters else None


def lost(member: str, at: float, epoch: int, owned: str = "") -> Beat:
    one = beat(member, at, (epoch, -1), owned, outcome=Outcome.UNKNOWN, term=None)
    one.span = Span(at)
    return one


def refused(member: str, at: float, epoch: int, error: str, owned: str = "") -> Beat:
    return beat(member, at, (epoch, -1), owned, outcome=Outcome.FAILED, error=error)


def kinds(beats: list[Beat], *commits: Commit) -> list[str]:
    beats.sort(key=lambda one: one.span.invoked)
    history = ClientHistory(beats=beats, commits=list(commits), sessions={GROUP: SESSION_S})
    return [anomaly.kind for anomaly in anomalies(history)]


# m has p and q; n joins, m gives q up when it is told to, and n gets it.
FIRST = [beat("m", 0, (0, 1), "-", assigned="pq"), beat("m", 1, (1, 1), "pq")]
TOLD = [beat("n", 2, (0, 2), "-", assigned="-"), beat("m", 3, (1, 1), assigned="p")]
MOVED = [beat("m", 4, (1, 2), "p"), beat("n", 5, (2, 2), assigned="q")]


def test_a_partition_moves() -> None:
    assert kinds([*FIRST, *TOLD, *MOVED]) == []


def test_a_partition_that_its_owner_still_has_is_given_away() -> None:
    assert kinds([*FIRST, *TOLD, beat("n", 3.5, (2, 2), assigned="q")]) == ["two owners at a time"]


def test_only_an_answer_of_the_coordinator_is_certain() -> None:
    beats = [*FIRST, *TOLD, beat("n", 3.5, (2, 2), assigned="q", term=None)]
    assert kinds(beats) == []


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([beat("m", 3.2, (-1, -1))], id="it has left"),
        pytest.param([lost("m", 3.2, -1)], id="it may have left"),
        pytest.param([lost("m", 3.2, 1, "p")], id="it may have said that it has it no more"),
        pytest.param([lost("m", 3.2, 0, "-")], id="it may have joined again"),
    ],
)
def test_a_member_that_may_have_given_it_up(between: list[Beat]) -> None:
    assert kinds([*FIRST, *TOLD, *between, beat("n", 3.5, (3, 3), assigned="q")]) == []


def test_what_a_late_request_does_not_name_is_in_doubt() -> None:
    """The lost heartbeat may be done after those that follow it."""
    doubt = [beat("m", 0, (0, 1), "-", assigned="p"), lost("m", 1, 1, "p")]
    gets = [beat("m", 2, (1, 2), "p", assigned="pq"), beat("n", 3, (0, 3), "-", assigned="q")]
    assert kinds([*doubt, *gets]) == []
    gets[1].assigned = frozenset({P})
    assert kinds([*doubt, *gets]) == ["two owners at a time"]


@pytest.mark.parametrize(
    ("at", "found"), [(10.0, ["two owners at a time"]), (11.0, []), (30.0, [])]
)
def test_a_member_is_certain_for_a_session(at: float, found: list[str]) -> None:
    assert kinds([*FIRST, beat("n", at, (0, 2), "-", assigned="q")]) == found


@pytest.mark.parametrize(("at", "found"), [(6.0, ["two owners at a time"]), (7.0, [])])
def test_a_member_has_its_rebalance_timeout_to_give_up(at: float, found: list[str]) -> None:
    assert kinds([*FIRST, *TOLD, beat("n", at, (2, 3), assigned="q")]) == found


def test_one_owner_in_an_epoch() -> None:
    beats = [*FIRST, beat("m", 2, (-1, -1)), beat("n", 3, (0, 1), "-", assigned="p")]
    assert kinds(beats) == ["two owners"]
    one_instance = [replace(one, instance="i") for one in beats]
    assert kinds(one_instance) == [], "two processes of an instance are one owner"


def test_a_member_that_says_all_is_told_what_it_has() -> None:
    again = beat("m", 2, (1, 1), "pq", says_all=True)
    assert kinds([*FIRST, again]) == ["assignment not told"]
    again.assigned = frozenset({P, Q})
    assert kinds([*FIRST, again]) == []


def of_instance(*beats: Beat) -> list[Beat]:
    return [replace(one, instance="i") for one in beats]


@pytest.mark.parametrize(
    ("at", "found"), [(3, ["two owners at a time"]), (10.7, ["two owners at a time"]), (11, [])]
)
def test_the_place_of_an_instance_is_kept_for_a_session(at: float, found: list[str]) -> None:
    away = of_instance(*FIRST, beat("m", 2, (-2, -2)))
    assert kinds([*away, beat("n", at, (0, 2), "-", assigned="q")]) == found


def test_the_next_process_of_an_instance_has_its_place() -> None:
    away = of_instance(*FIRST, beat("m", 2, (-2, -2)), beat("k", 3, (0, 2), "-", assigned="p"))
    assert kinds([*away, beat("n", 4, (0, 2), "-", assigned="q")]) == []
    away[-1].assigned = frozenset({Q})
    assert kinds([*away, beat("n", 4, (0, 3), "-", assigned="q")]) == ["two owners at a time"]


@pytest.mark.parametrize(
    ("at", "found"), [(2, ["two processes of an instance"]), (10.9, []), (20, [])]
)
def test_an_instance_has_one_process(at: float, found: list[str]) -> None:
    assert kinds(of_instance(*FIRST, beat("k", at, (0, 2), "-"))) == found


def test_a_process_that_was_replaced_is_not_answered() -> None:
    """Its session has ended, and another process of the instance has come."""
    replaced = of_instance(*FIRST, beat("k", 12, (0, 2), "-"))
    late = of_instance(beat("m", 13, (1, 1)))
    assert kinds([*replaced, *late]) == ["two processes of an instance"]
    by_epoch = of_instance(refused("m", 13, 1, "FENCED_MEMBER_EPOCH"))
    assert kinds([*replaced, *by_epoch]) == ["two processes of an instance"]
    assert kinds([*replaced, *of_instance(refused("m", 13, 1, "FENCED_INSTANCE_ID"))]) == []
    assert kinds([*replaced, *of_instance(beat("m", 23, (0, 3), "-"), beat("m", 24, (3, 3)))]) == []


def test_what_a_member_has_in_doubt_is_to_be_given_up_in_time() -> None:
    """The answer to its join is lost, and with it what it was given then."""
    joined = [lost("m", 0, 0, "-"), beat("m", 0.5, (0, 1), "-", assigned="pq")]
    told = [beat("m", 1, (1, 1), "pq", assigned="p"), beat("m", 2, (1, 1))]
    out = refused("m", 5.2, 1, "UNKNOWN_MEMBER_ID", "-")
    assert kinds([*joined, *told, out]) == []


@pytest.mark.parametrize(("epochs", "found"), [((1, 2), []), ((2, 3), ["needless fence"])])
def test_a_lost_heartbeat_of_old_is_forgotten(epochs: tuple[int, int], found: list[str]) -> None:
    """Two have moved its epoch since: what it asked before is refused, whenever it arrives."""
    first = [*FIRST, lost("m", 2, 1, "pq"), beat("m", 3, (1, 2), "pq", assigned="pq")]
    moved = [*first, beat("m", 4, epochs, "pq")] if epochs[0] > 1 else first
    again = lost("m", 5, epochs[1], "pq")
    out = refused("m", 6, epochs[1], "FENCED_MEMBER_EPOCH", "pq")
    assert kinds([*moved, again, out]) == found


def test_epochs_do_not_go_back() -> None:
    assert kinds([*FIRST, beat("m", 2, (2, 1))]) == ["epoch went back"]
    other = [beat("m", 0, (0, 7), "-"), beat("n", 2, (0, 6), "-")]
    assert kinds(other) == ["epoch went back"]
    assert kinds([other[0], beat("n", 0.05, (0, 6), "-")]) == []


@pytest.mark.parametrize(
    ("beats", "found"),
    [
        pytest.param([refused("m", 2, 1, "UNKNOWN_MEMBER_ID")], ["needless fence"], id="in time"),
        pytest.param([refused("m", 12, 1, "UNKNOWN_MEMBER_ID")], [], id="late"),
        pytest.param([refused("m", 2, 0, "UNKNOWN_MEMBER_ID")], [], id="an old epoch"),
        pytest.param([refused("m", 2, 1, "NOT_COORDINATOR")], [], id="of another"),
        pytest.param(
            [lost("m", 2, 1), refused("m", 3, 1, "FENCED_MEMBER_EPOCH", "pq")],
            ["needless fence"],
            id="after one lost answer, with all it has",
        ),
        pytest.param(
            [lost("m", 2, 1), refused("m", 3, 1, "FENCED_MEMBER_EPOCH")], [], id="without"
        ),
        pytest.param(
            [lost("m", 2, 1), lost("m", 3, 1), refused("m", 4, 1, "FENCED_MEMBER_EPOCH", "pq")],
            [],
            id="after two",
        ),
    ],
)
def test_a_member_is_put_out_with_a_reason(beats: list[Beat], found: list[str]) -> None:
    assert kinds([*FIRST, *beats]) == found


def commit(member: str, epoch: int, at: float, place: tuple[str, int] = Q) -> Commit:
    return Commit("c", GROUP, place, 1, Span(at, at + 0.1), Outcome.OK, member, epoch)


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (commit("m", 1, 16), ["fenced member"]),  # n may have gone
        (commit("m", 1, 6), ["fenced member"] * 2),
        (commit("m", 1, 6, P), []),
        (commit("m", 1, 5), []),  # n's answer is on its way
        (commit("m", 2, 6), ["fenced member"]),  # n has it
        (commit("m", 2, 16), []),
        (commit("n", 2, 6), []),
        (commit("", -1, 6), []),
    ],
)
def test_a_member_of_an_older_epoch_commits_nothing(one: Commit, found: list[str]) -> None:
    assert kinds([*FIRST, *TOLD, *MOVED], one) == found


def classic(member: str, at: float, epochs: tuple[int, int], assigned: str = "") -> Beat:
    return beat(member, at, epochs, assigned=assigned, is_classic=True)


# m joins and syncs, and beats; n joins and syncs.
CLASSIC = [classic("m", 0, (0, 1)), classic("m", 1, (1, 1), "pq"), classic("m", 2, (1, 1))]


def other_at(at: float) -> list[Beat]:
    return [classic("n", at, (0, 2)), classic("n", at + 0.2, (2, 2), "q")]


def test_a_classic_member_has_its_rebalance_timeout_after_each_heartbeat() -> None:
    assert kinds([*CLASSIC, *other_at(5)]) == ["two owners at a time"]
    assert kinds([*CLASSIC, *other_at(6)]) == []


def test_a_classic_member_that_joins_has_nothing() -> None:
    assert kinds([*CLASSIC, classic("m", 3, (0, 2)), *other_at(4)]) == []


@pytest.mark.parametrize(
    ("at", "place", "found"),
    [
        (3.05, "q", ["two owners at a time"]),
        (3.5, "q", []),
        (3.5, "p", ["two owners at a time"]),
    ],
)
def test_a_cooperative_member_keeps_what_it_is_assigned_again(
    at: float, place: str, found: list[str]
) -> None:
    joins = beat("m", 3, (0, 2), "pq", is_classic=True)
    syncs = classic("m", 4, (2, 2), "p")
    other = [classic("n", at - 0.4, (0, 2)), classic("n", at - 0.1, (2, 2), place)]
    assert kinds([*CLASSIC, joins, syncs, *other]) == found


def test_generations_may_begin_again() -> None:
    """An empty group that changes its protocol is a new one."""
    assert (
        kinds([*CLASSIC, classic("m", 3, (-1, -1)), beat("n", 4, (0, 1), "-", assigned="p")]) == []
    )


def test_a_classic_member_that_has_only_joined_may_be_forgotten() -> None:
    out = refused("m", 0.5, 1, "UNKNOWN_MEMBER_ID")
    out.is_classic = True
    assert kinds([CLASSIC[0], out]) == []
    out.span = Span(3, 3.1)
    assert kinds([*CLASSIC, out]) == ["needless fence"]


def test_a_member_that_has_left_commits_nothing() -> None:
    beats = [*FIRST, beat("m", 2, (-1, -1))]
    assert kinds(beats, commit("m", 1, 3)) == ["fenced member"]
    assert kinds([*beats, beat("m", 2.5, (0, 2), "-")], commit("m", 2, 3)) == []


def test_tenures_of_different_owners_may_touch() -> None:
    first, second = Tenure("x", "m", 0, 2), Tenure("x", "n", 2, math.inf)
    assert list(overlaps([second, first])) == []
    third = Tenure("x", "m", 5, 6)
    assert list(overlaps([first, second, third])) == [(second, third)]
    assert list(overlaps([second, third._replace(thing="y")])) == []
    assert list(overlaps([second, third._replace(owner="n")])) == []
    assert list(overlaps([second, third._replace(end=5)])) == [], "it never had it"
