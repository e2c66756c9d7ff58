"""Each check finds its anomaly in a history of a few calls, and nothing in a sound one."""

from __future__ import annotations

import math

import pytest

from histories.calls import (
    ClientHistory,
    Commit,
    Committed,
    Led,
    Listed,
    Loss,
    MemberCall,
    Outcome,
    Poll,
    Send,
    Span,
    Stamp,
    Transaction,
)
from histories.judge import anomalies
from histories.transactions import find_cycles

PLACE, OTHER = ("t", 0), ("t", 1)
OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def send(value: str, offset: int | None, at: float, outcome: Outcome = OK, **more) -> Send:
    """A record sent at `at` and answered 1 s later."""
    place = more.pop("place", PLACE)
    return Send("p", place, value.encode(), Span(at, at + 1), outcome, offset, **more)


def poll(start: int, values: str, at: float, **more) -> Poll:
    """A read of one-letter values from `start` on; a dot is an offset without a record."""
    records = tuple(
        (start + index, letter.encode()) for index, letter in enumerate(values) if letter != "."
    )
    place, client = more.pop("place", PLACE), more.pop("client", "c")
    return Poll(client, place, start, start + len(values), records, Span(at, at + 1), **more)


def kinds(history: ClientHistory) -> list[str]:
    return [anomaly.kind for anomaly in anomalies(history)]


THREE = [send("a", 0, 0), send("b", 1, 2), send("c", 2, 4)]


def test_a_history_as_it_should_be() -> None:
    history = ClientHistory(sends=THREE, polls=[poll(0, "ab", 3), poll(2, "c", 6)])
    assert kinds(history) == []


@pytest.mark.parametrize(
    ("sends", "polls", "wanted"),
    [
        (THREE, [poll(0, "a.c", 6)], ["lost"]),
        (THREE, [poll(0, "axc", 6)], ["inconsistent offset"]),
        (THREE, [poll(0, "abcx", 6)], ["phantom"]),
        (THREE, [poll(0, "ab", 6), poll(3, "", 8)], ["poll skip"]),
        (THREE, [poll(0, "abc", 6), poll(1, "bc", 8)], ["nonmonotonic poll"]),
        ([*THREE, send("d", None, 6)], [poll(0, "abc", 8)], ["unseen"]),
        ([*THREE, send("d", None, 6)], [poll(0, "abcd", 8)], []),
        ([send("a", 1, 0), send("b", 0, 2)], [poll(0, "ba", 4)], ["reordered"]),
        ([send("a", 1, 0), send("b", 0, 0.5)], [poll(0, "ba", 4)], []),  # sent together
        ([send("a", 0, 0, is_once=True)], [poll(0, "aa", 4)], ["duplicate"]),
        (
            [send("a", 1, 0, is_once=True), send("b", 0, 0, is_once=True)],
            [poll(0, "ba", 4)],
            ["out of order"],
        ),
        ([send("a", 0, 0)], [poll(0, "aa", 4)], []),  # a retry without sequences may double
        ([send("a", 0, 0, is_all=False)], [poll(0, ".", 4)], []),  # acks=1 promises less
        ([send("a", None, 0, UNKNOWN)], [poll(0, "", 4)], []),
        ([send("a", None, 0, UNKNOWN)], [poll(0, "a", 4), poll(0, ".", 6, client="d")], ["lost"]),
    ],
)
def test_records(sends: list[Send], polls: list[Poll], wanted: list[str]) -> None:
    assert kinds(ClientHistory(sends=sends, polls=polls)) == wanted


def test_what_was_deleted_compacted_or_lost_with_leave_is_excused() -> None:
    polls = [poll(0, "a.c", 6)]
    assert kinds(ClientHistory(sends=THREE, polls=polls, deleted={PLACE: 2})) == []
    assert kinds(ClientHistory(sends=THREE, polls=polls, deleted={PLACE: 1})) == ["lost"]
    assert kinds(ClientHistory(sends=THREE, polls=polls, compacted={"t"})) == []
    loss = Loss(5, PLACE, 1)
    assert kinds(ClientHistory(sends=THREE, polls=polls, losses=[loss])) == []
    early, elsewhere = Loss(1, PLACE, 1), Loss(5, OTHER, 0)
    assert kinds(ClientHistory(sends=THREE, polls=polls, losses=[early, elsewhere])) == ["lost"]


def test_the_last_record_of_a_key_stays() -> None:
    sends = [send("a", 0, 0, key=b"1"), send("b", 1, 2, key=b"2"), send("c", 2, 4, key=b"1")]
    history = ClientHistory(sends=sends, polls=[poll(0, ".bc", 6)], compacted={"t"})
    assert kinds(history) == []
    history.polls = [poll(0, "a.c", 6)]
    assert kinds(history) == ["lost"]
    history.sends.append(send("d", None, 6, UNKNOWN, key=b"2"))  # perhaps behind what was read
    assert kinds(history) == []


def test_a_deletion_may_go_with_all_that_it_deletes() -> None:
    sends = [send("a", 0, 0, key=b"1"), send("b", 1, 2, key=b"2")]
    sends.append(send("c", 2, 4, key=b"1", is_deletion=True))
    history = ClientHistory(sends=sends, polls=[poll(0, ".b.", 6)], compacted={"t"})
    history.together = {"t": 0}
    assert kinds(history) == []
    history.polls = [poll(0, "ab.", 6)]
    assert kinds(history) == ["outlived"]
    history.polls = [poll(0, "ab", 6), poll(2, ".", 8)]  # it went after the first read
    assert kinds(history) == []
    history.polls, history.together = [poll(0, "ab.", 6)], {"t": 1}  # from a replica that was away
    assert kinds(history) == []


def test_a_loss_may_last() -> None:
    polls = [poll(0, "abc", 6), poll(0, "ax", 7, client="d")]  # from a leader that was forgotten
    sends = [*THREE, send("x", None, 6, UNKNOWN)]
    history = ClientHistory(sends=sends, polls=polls, losses=[Loss(2, PLACE, 1)])
    assert kinds(history) == ["inconsistent offset"]
    history.losses = [Loss(9, PLACE, 1, since=5)]
    assert kinds(history) == []
    history.losses = [Loss(9, PLACE, 2, since=5)]
    assert kinds(history) == ["inconsistent offset"]


def test_what_was_deleted_may_come_again() -> None:
    sends, polls = [send("a", 0, 0, is_once=True)], [poll(0, "a", 2), poll(5, "a", 4)]
    assert kinds(ClientHistory(sends=sends, polls=polls)) == ["duplicate"]
    assert kinds(ClientHistory(sends=sends, polls=polls, deleted={PLACE: 1})) == []


def transaction(outcome: Outcome, at: float = 10) -> Transaction:
    return Transaction(f"txn {outcome.value}", outcome, Span(at, at + 1))


@pytest.mark.parametrize(
    ("outcome", "polls", "wanted"),
    [
        (OK, [poll(0, "a", 12), poll(0, "b", 12, place=OTHER)], []),
        (OK, [poll(0, "a", 12), poll(0, ".", 12, place=OTHER)], ["lost", "torn transaction"]),
        (
            OK,
            [poll(0, ".", 12), poll(0, ".", 12, place=OTHER)],
            ["lost", "lost", "torn transaction"],
        ),
        (UNKNOWN, [poll(0, "a", 12), poll(0, "b", 12, place=OTHER)], []),
        (UNKNOWN, [poll(0, ".", 12), poll(0, ".", 12, place=OTHER)], []),
        (UNKNOWN, [poll(0, "a", 12), poll(0, ".", 12, place=OTHER)], ["torn transaction"]),
        (FAILED, [poll(0, ".", 12), poll(0, ".", 12, place=OTHER)], []),
        (FAILED, [poll(0, "a", 12)], ["aborted read"]),
        (OK, [poll(0, "a", 5)], ["early read"]),
    ],
)
def test_transactions(outcome: Outcome, polls: list[Poll], wanted: list[str]) -> None:
    own = transaction(outcome)
    sends = [send("a", 0, 0, transaction=own), send("b", 0, 2, transaction=own, place=OTHER)]
    for each in polls:
        each.is_committed = True
    assert kinds(ClientHistory(sends=sends, polls=polls, transactions=[own])) == wanted


def test_transactions_that_read_each_other() -> None:
    one, two = Transaction("one", OK, Span(5, 6)), Transaction("two", OK, Span(5, 6))
    sends = [send("a", 0, 0, transaction=one), send("b", 0, 0, transaction=two, place=OTHER)]
    polls = [
        poll(0, "a", 5.5, is_committed=True, transaction=two),
        poll(0, "b", 5.5, is_committed=True, transaction=one, place=OTHER),
    ]
    history = ClientHistory(sends=sends, polls=polls, transactions=[one, two])
    assert kinds(history) == ["read cycle"]
    history.polls.pop()
    assert kinds(history) == []


@pytest.mark.parametrize(
    ("outcomes", "groups", "wanted"),
    [
        ((OK, OK), "gg", ["consumed twice"]),
        ((OK, OK), "gh", []),
        ((OK, OK), ("", ""), []),
        ((OK, FAILED), "gg", []),
        ((UNKNOWN, OK), "gg", []),
    ],
)
def test_a_group_consumes_a_record_in_one_transaction(
    outcomes: tuple[Outcome, Outcome], groups: str | tuple[str, str], wanted: list[str]
) -> None:
    own = [Transaction(f"{number}", each, Span(9, 10)) for number, each in enumerate(outcomes)]
    polls = [
        poll(0, "a", 4, client=each.name, is_committed=True, transaction=each, group=group)
        for each, group in zip(own, groups, strict=True)
    ]
    history = ClientHistory(sends=[send("a", 0, 0)], polls=polls, transactions=own)
    assert kinds(history) == wanted


def test_cycles() -> None:
    assert list(find_cycles({1: {2}, 2: {3}, 3: set()})) == []
    assert list(find_cycles({1: {2}, 2: {3, 4}, 3: {2}, 4: set()})) == [[2, 3, 2]]
    chain = {node: {node + 1} for node in range(20_000)}
    assert list(find_cycles(chain)) == []


def listed(offset: int, epoch: int, at: float, *, is_end: bool = True) -> Listed:
    return Listed("c", PLACE, is_end, offset, epoch, Span(at, at + 1))


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([listed(5, 1, 0), listed(4, 1, 2)], ["log end went back"]),
        ([listed(5, 1, 0), listed(4, 1, 0.5)], []),  # asked at the same time
        ([listed(5, 1, 0), listed(4, 2, 2)], ["log end went back"]),
        ([listed(4, 1, 2), listed(5, 2, 0)], []),  # a deposed leader, late
        ([listed(3, 1, 0, is_end=False), listed(2, 1, 2, is_end=False)], ["log start went back"]),
        ([listed(5, 2, 100), listed(4, 1, 102)], ["log end went back"]),  # after the last fault
    ],
)
def test_ends_and_starts(answers: list[Listed], wanted: list[str]) -> None:
    assert kinds(ClientHistory(listed=answers, quiet_since=50)) == wanted


def test_an_end_below_an_acknowledged_record() -> None:
    history = ClientHistory(sends=[send("a", 7, 0)], listed=[listed(7, 1, 60)], quiet_since=50)
    assert kinds(history) == ["stale log end"]
    history.listed = [listed(8, 1, 60)]
    assert kinds(history) == []
    history.listed, history.quiet_since = [listed(7, 1, 60)], math.inf
    assert kinds(history) == []


@pytest.mark.parametrize(
    ("offset", "wanted"), [(5, []), (6, []), (4, ["lost commit"]), (9, ["phantom commit"])]
)
def test_committed_offsets(offset: int, wanted: list[str]) -> None:
    history = ClientHistory(
        commits=[
            Commit("c", "g", PLACE, 4, Span(0, 1), OK),
            Commit("c", "g", PLACE, 5, Span(2, 3), OK),
            Commit("c", "g", PLACE, 6, Span(4), UNKNOWN),
        ],
        committed=[Committed("c", "g", PLACE, offset, Span(60, 61))],
        quiet_since=50,
    )
    assert kinds(history) == wanted


def test_two_leaders_in_an_epoch() -> None:
    led = [Led("c", PLACE, 1, 3, Span(0, 1)), Led("d", PLACE, 2, 4, Span(0, 1))]
    assert kinds(ClientHistory(led=led)) == []
    led.append(Led("c", PLACE, 2, 3, Span(5, 6)))
    assert kinds(ClientHistory(led=led)) == ["two leaders"]


@pytest.mark.parametrize(
    ("times", "epochs", "steady", "wanted"),
    [
        ((5, 5, 7), (1, 1, 1), True, []),
        ((6, 5, 7), (1, 1, 1), True, ["append time went back"]),
        ((6, 5, 7), (1, 1, 1), False, []),
        ((6, 5, 7), (1, 2, 2), True, []),  # another leader has another clock
    ],
)
def test_append_times(
    times: tuple[int, int, int], epochs: tuple[int, int, int], steady: bool, wanted: list[str]
) -> None:
    stamps = tuple(map(Stamp, range(3), times, epochs))
    history = ClientHistory(
        sends=[send(v, at, at, appended_ms=times[at]) for at, v in enumerate("abc")],
        polls=[poll(0, "abc", 9, stamps=stamps)],
        clocks_are_steady=steady,
    )
    assert kinds(history) == wanted
    history.sends[1].appended_ms += 1
    assert kinds(history) == ["append time", *wanted]


def member(kind: str, member_id: str, at: float, *, generation: int = 1, **more) -> MemberCall:
    """A request of `member_id` at `at`, answered 1 s later, by broker b at first."""
    host, error = more.pop("host", "b"), more.pop("error", "")
    outcome = FAILED if error else OK
    span = Span(at, at + 1)
    return MemberCall(kind, "g", "i", member_id, generation, host, span, outcome, error, **more)


RETURN = [member("join", "a", 0), member("join", "b", 4), member("sync", "b", 6)]


@pytest.mark.parametrize(
    ("calls", "wanted"),
    [
        ([member("beat", "a", 2), member("commit", "a", 6.5)], []),
        ([member("commit", "a", 8)], ["fenced member"]),
        ([member("commit", "a", 8, error="FENCED_INSTANCE_ID")], []),
        ([member("commit", "b", 8), member("beat", "b", 10)], []),
        ([member("beat", "a", 8)], ["fenced member"]),
        ([member("beat", "a", 8, host="deposed")], []),  # it does not know yet
        ([member("join", "c", 3.5), member("commit", "c", 8)], []),  # together with b
    ],
)
def test_a_process_that_was_replaced_is_fenced(calls: list[MemberCall], wanted: list[str]) -> None:
    assert kinds(ClientHistory(member_calls=[*RETURN, *calls])) == wanted


def test_an_assignment_stays_with_its_instance() -> None:
    calls = [member("sync", "a", 0, assignment=b"t:0"), member("sync", "b", 2, assignment=b"t:0")]
    assert kinds(ClientHistory(member_calls=calls)) == []
    calls[1].assignment = b""
    assert kinds(ClientHistory(member_calls=calls)) == ["assignment changed"]
    calls[1].generation = 2
    assert kinds(ClientHistory(member_calls=calls)) == []


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (member("beat", "a", 8), []),
        (member("join", "a", 8, generation=2), ["needless rebalance"]),
        (member("beat", "a", 8, error="REBALANCE_IN_PROGRESS"), ["needless rebalance"]),
        (member("beat", "a", 8, error="NOT_COORDINATOR"), []),
        (member("beat", "a", 4, error="REBALANCE_IN_PROGRESS"), []),
    ],
)
def test_a_steady_group_stays_as_it_is(call: MemberCall, wanted: list[str]) -> None:
    calls = [member("beat", "a", 6), call]
    assert kinds(ClientHistory(member_calls=calls, steady={"g": 5})) == wanted
    assert kinds(ClientHistory(member_calls=calls)) == []
