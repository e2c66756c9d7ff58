"""The classic group machine, step by step, with a clock of its own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from broker.group_harness import NONE, SUBSCRIPTION, Harness
from tidelog.coordinators.groups.classic import group as group_module
from tidelog.coordinators.groups.classic.group import TRANSITIONS, GroupLimits, GroupState
from tidelog.coordinators.groups.classic.member import (
    AssignmentStored,
    JoinResult,
    LeavingMember,
    Member,
    Persist,
    Protocols,
    SyncResult,
    subscribed_topics,
)
from tidelog.coordinators.groups.classic.members import Members
from tidelog.coordinators.groups.now import Now
from tidelog_protocol.errors import ErrorCode

FIRST = {"requires_known_member_id": True}


def test_every_state_has_its_row_and_nothing_leaves_dead() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    assert TRANSITIONS[GroupState.DEAD] == {GroupState.DEAD}
    group = Harness().group
    with pytest.raises(AssertionError):
        group.transition(GroupState.STABLE, Now(0, 0))


def test_three_members_join_sync_and_get_what_the_leader_gave() -> None:
    harness = Harness()
    harness.stabilise("a", "b", "c")
    results = [harness.joined[name][0] for name in "abc"]
    assert {result.generation for result in results} == {1}
    assert {result.leader for result in results} == {results[0].member_id}
    assert [len(result.members) for result in results] == [3, 0, 0]
    assert {result.protocol_type for result in results} == {"consumer"}
    assert [harness.synced[name] for name in "abc"] == [
        [SyncResult(NONE, "consumer", "range", name.encode())] for name in "abc"
    ]
    assert harness.heartbeat("b") is NONE
    assert harness.group.topics == {"topic"}


def test_assignment_is_answered_only_when_it_is_stored() -> None:
    harness = Harness()
    harness.join("a")
    harness.wait(0)
    harness.sync("a", harness.member("a"), assignments={harness.member("a"): b"x"})
    assert harness.synced["a"] == []
    (write,) = harness.writes
    assert write.assignments == {harness.member("a"): b"x"}
    assert isinstance(write.then, AssignmentStored)
    harness.store()
    assert harness.synced["a"][0].assignment == b"x"


def test_a_failed_write_of_the_assignment_begins_a_new_rebalance() -> None:
    harness = Harness()
    harness.join("a")
    harness.wait(0)
    harness.sync("a", harness.member("a"))
    harness.store(ErrorCode.NOT_COORDINATOR)
    assert harness.synced["a"] == [SyncResult(ErrorCode.NOT_COORDINATOR)]
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_a_write_that_a_rebalance_overtook_changes_nothing() -> None:
    harness = Harness()
    harness.join("a")
    harness.wait(0)
    harness.sync("a", harness.member("a"))
    harness.join("b")  # while the assignment of generation 1 is being written
    assert harness.synced["a"] == [SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)]
    harness.store()
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    assert len(harness.synced["a"]) == 1


def test_an_assignment_of_an_older_generation_is_not_taken() -> None:
    harness = Harness()
    harness.join("a")
    harness.wait(0)
    harness.sync("a", harness.member("a"), assignments={harness.member("a"): b"old"})
    harness.join("b")
    harness.join("a", harness.member("a"))
    assert harness.group.generation == 2
    harness.sync("b", harness.member("b"))
    harness.store()  # of generation 1
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    assert harness.synced["b"] == []


def test_a_member_that_dies_between_join_and_sync_is_out_with_its_session() -> None:
    harness = Harness()
    for name in "ab":
        harness.join(name, session_timeout_ms=10_000)
    harness.wait(0)
    for _ in range(2):
        harness.wait(6000)
        harness.heartbeat("a")
    assert harness.group.members.keys() == {harness.member("a")}


def test_a_rebalance_ends_the_wait_for_syncs() -> None:
    harness = Harness()
    for name in "ab":
        harness.join(name, rebalance_timeout_ms=20_000)
    harness.wait(0)
    harness.wait(5000)
    harness.heartbeat("b")
    harness.join("a", harness.member("a"), protocols=[("range", b"new")])
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    for _ in range(3):  # past the time-out of the syncs of generation 1
        harness.wait(6000)
        assert harness.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(harness.group.members) == 2


def test_a_dynamic_member_gets_its_id_first() -> None:  # KIP-394
    harness = Harness()
    harness.join("a", requires_known_member_id=True)
    (told,) = harness.joined["a"]
    assert told == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "a-0")
    assert harness.group.is_empty
    assert harness.group.members.pending.keys() == {"a-0"}
    harness.join("a", "a-0", requires_known_member_id=True)
    harness.wait(0)
    assert harness.joined["a"][1].error is NONE
    assert not harness.group.members.pending


def test_a_pending_member_that_never_comes_is_forgotten() -> None:
    harness = Harness()
    harness.join("a", requires_known_member_id=True, session_timeout_ms=6000)
    harness.wait(6000)
    assert not harness.group.members.pending
    harness.join("a", "a-0")
    assert harness.joined["a"][1].error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members() -> None:
    harness = Harness()
    harness.stabilise("a")
    harness.join("b", requires_known_member_id=True)
    harness.join("a", harness.member("a"))  # the leader wants a rebalance
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    harness.join("b", harness.member("b"), requires_known_member_id=True)
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    assert len(harness.group.members) == 2


def test_initial_delay_is_extended_while_members_come_up_to_the_rebalance_timeout() -> None:
    harness = Harness(GroupLimits(initial_rebalance_delay_ms=3000))
    harness.join("a", rebalance_timeout_ms=10_000)
    harness.wait(2999)
    assert harness.joined["a"] == []
    harness.join("b", rebalance_timeout_ms=10_000)
    harness.wait(3000)  # a new member came in the first 3 s: 3 more
    assert harness.joined["a"] == []
    harness.wait(1)
    assert harness.joined["a"][0].error is NONE
    assert harness.group.generation == 1

    harness = Harness(GroupLimits(initial_rebalance_delay_ms=3000))
    harness.join("0", rebalance_timeout_ms=10_000)
    started_ms = harness.ticks_ms
    names = map(str, itertools.count(1))
    while harness.group.state is GroupState.PREPARING_REBALANCE:
        harness.wait(100)
        if harness.group.state is GroupState.PREPARING_REBALANCE:
            harness.join(next(names), rebalance_timeout_ms=10_000)
    assert harness.ticks_ms - started_ms == 10_000


def test_members_that_do_not_come_back_are_out_after_the_rebalance_timeout() -> None:
    harness = Harness()
    harness.stabilise("a", "b", rebalance_timeout_ms=5000)
    harness.join("b", harness.member("b"), protocols=[("range", b"new")], rebalance_timeout_ms=5000)
    assert harness.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    harness.wait(4999)
    assert harness.group.generation == 1
    harness.wait(1)
    assert harness.group.generation == 2
    assert harness.group.members.keys() == {harness.member("b")}
    assert harness.group.members.leader == harness.member("b")
    assert len(harness.joined["b"][-1].members) == 1
    assert harness.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_of_many_sessions_that_end_some_do_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of members that fall silent together would hold the loop."""
    monkeypatch.setattr(group_module, "EXPIRED_AT_ONCE", 2)
    harness = Harness()
    harness.stabilise(*"abcde", session_timeout_ms=10_000)
    ends_ms = harness.group.next_deadline_ms()
    assert ends_ms is not None
    for left in (3, 1, 0):
        harness.group.expire(Now(ends_ms, 0))
        assert len(harness.group.members) == left
        assert not left or harness.group.next_deadline_ms() == ends_ms, "the rest is due"


def test_session_timeout_removes_a_member_and_the_others_rebalance() -> None:
    harness = Harness()
    harness.stabilise("a", "b", session_timeout_ms=10_000)
    for _ in range(4):
        harness.wait(2500)
        if harness.group.state is GroupState.STABLE:
            assert harness.heartbeat("a") is NONE
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    assert harness.group.members.keys() == {harness.member("a")}
    assert harness.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    harness.join("a", harness.member("a"))
    assert harness.joined["a"][-1].generation == 2


def test_a_parked_join_keeps_a_member_alive_but_not_a_new_one_for_ever() -> None:
    harness = Harness()
    harness.stabilise("a", "b", session_timeout_ms=10_000, rebalance_timeout_ms=600_000)
    harness.join("a", harness.member("a"), rebalance_timeout_ms=600_000)  # leader
    harness.join("c", rebalance_timeout_ms=600_000)
    for _ in range(40):
        harness.wait(9000)
        harness.heartbeat("b")
    assert harness.member("a")  # alive, without a heartbeat for six minutes
    assert harness.joined["c"] == [JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")]
    assert len(harness.group.members) == 2


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    harness = Harness()
    harness.stabilise("a")
    results, effects = harness.group.leave([LeavingMember(harness.member("a"), None)], harness.now)
    harness.perform(effects)
    assert [result.error for result in results] == [NONE]
    group = harness.group
    assert (group.state, group.generation, group.members.leader) == (GroupState.EMPTY, 2, None)
    assert (group.protocol_type, group.protocol_name) == ("consumer", None)
    assert harness.writes[-1] == Persist({}, None)
    assert group.next_deadline_ms() is None


def test_leave_answers_each_member_on_its_own() -> None:
    harness = Harness()
    harness.join("s", instance="i-1")
    harness.join("t", instance="i-2")
    harness.join("a")
    harness.wait(0)
    harness.sync_all("s", "t", "a")
    harness.join("p", requires_known_member_id=True)
    leaving = [
        LeavingMember("", "i-1"),
        LeavingMember("", "nobody"),
        LeavingMember("wrong", "i-2"),
        LeavingMember(harness.member("a"), None),
        LeavingMember(harness.member("p"), None),
        LeavingMember("unknown", None),
        LeavingMember("", None),
    ]
    results, effects = harness.group.leave(leaving, harness.now)
    harness.perform(effects)
    assert [result.error for result in results] == [
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        NONE,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert harness.group.members.keys() == {harness.member("t")}
    assert not harness.group.members.pending


def test_protocol_is_the_one_most_members_want_of_those_all_support() -> None:
    harness = Harness()
    harness.join("a", protocols=["sticky", "range"])
    harness.join("b", protocols=["range", "sticky"])
    harness.join("c", protocols=["cooperative", "range", "sticky"])
    harness.wait(0)
    assert harness.group.protocol_name == "range"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"protocols": ["roundrobin"]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_do_not_fit_are_refused(more: dict[str, Any], error: ErrorCode) -> None:
    harness = Harness()
    harness.stabilise("a")
    harness.join("b", **more)
    assert harness.joined["b"][0].error is error
    assert harness.group.state is GroupState.STABLE
    empty = Harness()
    empty.join("a", protocols=[])
    assert empty.joined["a"][0].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_joining_again_with_nothing_new() -> None:
    harness = Harness()
    harness.join("a")
    harness.join("b")
    harness.wait(0)
    harness.join("a", harness.member("a"))  # the leader lost its answer
    assert harness.joined["a"][1] == harness.joined["a"][0]
    harness.sync_all("a", "b")
    harness.join("b", harness.member("b"))  # a follower of a stable group
    assert harness.joined["b"][1] == harness.joined["b"][0]
    assert harness.group.state is GroupState.STABLE
    harness.join("b", harness.member("b"), protocols=[("range", b"other")])
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_sync_is_checked() -> None:  # KIP-559
    harness = Harness()
    harness.join("a")
    harness.wait(0)
    member = harness.member("a")
    harness.sync("a", "who")
    harness.sync("a", member, generation=0)
    harness.sync("a", member, protocol_type="connect")
    harness.sync("a", member, protocol_name="sticky")
    assert [result.error for result in harness.synced["a"]] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ]
    harness.sync("b", member, protocol_type="consumer", protocol_name="range")
    harness.store()
    assert harness.synced["b"][0].error is NONE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    harness = Harness()
    for name in "abc":
        harness.join(name, rebalance_timeout_ms=5000)
    harness.wait(0)
    harness.sync("a", harness.member("a"))
    harness.store()
    harness.sync("b", harness.member("b"))
    assert harness.group.state is GroupState.STABLE
    harness.wait(5000)
    assert harness.group.state is GroupState.PREPARING_REBALANCE
    assert harness.group.members.keys() == {harness.member("a"), harness.member("b")}


def test_group_size_is_limited() -> None:
    harness = Harness(GroupLimits(0, group_size_max=2))
    harness.stabilise("a", "b")
    harness.join("c")
    assert harness.joined["c"] == [JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")]
    harness.join("b", harness.member("b"))
    assert harness.joined["b"][-1].error is NONE
    # A loaded group above the limit loses who comes back last.
    harness.group.limits = GroupLimits(0, group_size_max=1)
    harness.perform(harness.group.begin_rebalance("too large", harness.now))
    harness.join("b", harness.member("b"))
    harness.join("a", harness.member("a"))
    assert harness.joined["a"][-1].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.wait(60_000)
    assert harness.joined["b"][-1].generation == 2


def test_nothing_stays_of_those_whom_a_full_group_refuses() -> None:
    harness = Harness(GroupLimits(0, group_size_max=2))
    harness.stabilise("a", "b")
    for number in range(100):
        harness.join(f"n{number}")
        assert harness.joined[f"n{number}"][-1].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.group.members.keys() == {harness.member("a"), harness.member("b")}
    assert not harness.group.members.pending
    assert harness.group.state is GroupState.STABLE


def test_commits_are_checked_and_keep_the_session() -> None:
    harness = Harness()
    group = harness.group
    assert group.validate_commit("", None, -1, harness.now) is NONE  # simple consumer
    assert group.validate_commit("x", None, 1, harness.now) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.stabilise("a", session_timeout_ms=10_000)
    member = harness.member("a")
    assert group.validate_commit("", None, -1, harness.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_commit(member, None, 0, harness.now) is ErrorCode.ILLEGAL_GENERATION
    assert group.validate_commit(member, "i", 1, harness.now) is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(5):
        harness.wait(9000)
        assert group.validate_commit(member, None, 1, harness.now) is NONE
    harness.join("b")
    assert group.validate_commit(member, None, 1, harness.now) is NONE  # of the last generation
    harness.join("a", member)
    assert group.validate_commit(member, None, 2, harness.now) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.perform(group.unload(ErrorCode.NOT_COORDINATOR, harness.now))
    assert group.validate_commit(member, None, 2, harness.now) is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


@pytest.mark.parametrize("pending", [False, True], ids=["joined", "first JoinGroups"])
def test_many_joins_do_not_look_at_all_members_each(
    pending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 members took 36 s, 50,000 first JoinGroups 74 s: the work was quadratic."""
    looked_at = 0

    def values(members: Members) -> Any:
        nonlocal looked_at
        looked_at += len(members) + len(members.pending)
        return dict.values(members)

    monkeypatch.setattr(Members, "values", values)
    harness = Harness()
    count = 200
    for number in range(count):
        # Each session is shorter: the next deadline moves with each of them.
        harness.join(f"m{number}", session_timeout_ms=90_000 - number, **FIRST if pending else {})
        harness.group.next_deadline_ms()
    assert len(harness.group.members.pending if pending else harness.group.members) == count
    assert looked_at < 5 * count
    harness.wait(0)
    assert harness.group.next_deadline_ms() is not None
    harness.wait(1_000_000)
    assert not harness.group.members
    assert not harness.group.members.pending
    assert harness.group.next_deadline_ms() is None


def test_a_common_protocol_is_one_of_every_member_that_is_left() -> None:
    members = Harness().group.members
    assert members.share((("a", b""),))
    for name, protocols in (("1", "ab"), ("2", "bc"), ("3", "bcc")):
        listed = tuple((protocol, b"") for protocol in protocols)
        members.add(member_of(name, listed))
    assert [members.share(((name, b""),)) for name in "abcd"] == [False, True, False, False]
    members.remove("1")
    assert [members.share(((name, b""),)) for name in "abcd"] == [False, True, True, False]
    members.set_protocols(members["2"], (("d", b""),))
    members.set_protocols(members["3"], (("d", b""), ("a", b"")))
    assert [members.share(((name, b""),)) for name in "abcd"] == [False, False, False, True]
    members.remove("3")
    members.remove("2")
    assert not members._supporters


def member_of(member_id: str, protocols: Protocols) -> Member:
    return Member(
        member_id,
        None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=protocols,
    )


def test_unload_answers_everyone() -> None:
    harness = Harness()
    harness.join("a")
    harness.perform(harness.group.unload(ErrorCode.NOT_COORDINATOR, harness.now))
    assert harness.joined["a"][0].error is ErrorCode.NOT_COORDINATOR
    assert harness.group.next_deadline_ms() is None
    harness.join("b")
    assert harness.joined["b"][0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.sync("b", "x")
    assert harness.synced["b"][0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    results, _ = harness.group.leave([LeavingMember("x", None)], harness.now)
    assert results[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_heartbeat_only_moves_a_deadline() -> None:
    harness = Harness()
    harness.stabilise("a", session_timeout_ms=10_000)
    before = harness.group.next_deadline_ms()
    harness.ticks_ms += 3000
    assert harness.heartbeat("a") is NONE
    assert harness.group.next_deadline_ms() == before + 3000
    assert harness.heartbeat("a", generation=0) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (SUBSCRIPTION, {"topic"}),
        (b"\x00\x00\x00\x00\x00\x00", set()),
        (b"", None),
        (b"\x00\x00\xff\xff\xff\xff", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x09abc", None),
        (b"\x00\x00\x7f\xff\xff\xff\x00\x00", None),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", None),
    ],
)
def test_subscriptions_are_read_as_far_as_every_version_goes(
    metadata: bytes, topics: set[str] | None
) -> None:
    assert subscribed_topics(metadata) == topics
