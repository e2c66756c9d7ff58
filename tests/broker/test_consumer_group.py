"""Consumer groups of KIP-848, step by step: join, revoke, release, leave, fence, load."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.consumer_groups import WALL_MS, Life, held_of, id_of, numbers
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.consumer.requests import Heartbeat, check
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.modern.member import FIRST_EPOCH
from tidelog.coordinators.groups.modern.records import decode, encode
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.states import MemberState, ModernGroupState
from tidelog_protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

T, U = id_of("t"), id_of("u")
pytestmark = pytest.mark.usefixtures("epochs_from_1")


@contextmanager
def refused(code: ErrorCode) -> Iterator[pytest.ExceptionInfo[RefusedError]]:
    """What happens inside is refused with this error."""
    with pytest.raises(RefusedError) as refusal:
        yield refusal
    assert refusal.value.code is code


def test_the_first_member_gets_all_partitions_at_once() -> None:
    life = Life(t=3)
    answer = life.join("a", "t")
    assert (answer.member_id, answer.epoch, numbers(answer.assigned)) == ("a", 1, [0, 1, 2])
    assert life.group.state is ModernGroupState.STABLE
    before = len(life.log)
    assert life.beat("a", 1).assigned is None
    assert len(life.log) == before, "a heartbeat without news writes nothing"


def test_a_second_member_waits_until_the_first_has_revoked() -> None:
    life = Life(t=4)
    life.join("a", "t")
    late = life.join("b", "t")
    assert (late.epoch, numbers(late.assigned)) == (2, [])
    assert life.group.members["b"].state is MemberState.UNRELEASED
    assert life.group.state is ModernGroupState.RECONCILING
    first = life.beat("a", 1)
    assert (first.epoch, numbers(first.assigned)) == (1, [0, 1])
    assert life.group.members["a"].state is MemberState.UNREVOKED
    assert numbers(life.beat("b", 2).assigned) is None, "not revoked yet"
    assert life.beat("a", 1, {T: frozenset({0, 1, 2})}).epoch == 1, "it still owns partition 2"
    done = life.beat("a", 1, {T: frozenset({0, 1})})
    assert (done.epoch, done.assigned) == (2, None)
    assert numbers(life.beat("b", 2).assigned) == [2, 3]
    assert life.group.state is ModernGroupState.STABLE
    assert len(held_of(life.group)) == 4


def test_the_epoch_of_each_partitions_assignment_is_kept() -> None:
    life = Life(t=2)
    life.join("a", "t")
    life.join("b", "t")
    life.beat("a", 1)
    life.beat("a", 1, {T: frozenset({0})})
    life.beat("b", 2)
    assert life.group.members["a"].assigned == {T: {0: 1}}
    assert life.group.members["b"].assigned == {T: {1: 2}}


def test_a_leaving_member_frees_its_partitions() -> None:
    life = Life(t=2)
    life.join("a", "t")
    life.join("b", "t")
    assert life.beat("a", -1).epoch == -1
    assert life.group.state is ModernGroupState.ASSIGNING
    answer = life.beat("b", 2)
    assert (answer.epoch, numbers(answer.assigned)) == (3, [0, 1])
    life.beat("b", -1)
    assert life.group.state is ModernGroupState.EMPTY
    assert (life.group.members, life.group.targets) == ({}, {})


def test_a_silent_member_is_fenced_after_its_session() -> None:
    life = Life(t=2)
    life.join("a", "t")
    life.ticks_ms = 30_000
    life.join("b", "t")
    assert life.group.next_deadline_ms() == 45_000
    life.ticks_ms = 44_999
    life.expire()
    assert set(life.group.members) == {"a", "b"}
    life.ticks_ms = 45_000
    life.expire()
    assert set(life.group.members) == {"b"}
    with refused(ErrorCode.UNKNOWN_MEMBER_ID) as refusal:
        life.beat("a", 1)
    assert refusal.value.message == "Member a is not a member of group g."


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    life = Life(t=2)
    life.join("a", "t", rebalance_timeout_ms=10_000)
    life.join("b", "t")
    life.beat("a", 1)
    life.ticks_ms = 9_999
    life.beat("a", 1)
    life.expire()
    assert "a" in life.group.members
    life.ticks_ms = 10_000
    life.expire()
    assert set(life.group.members) == {"b"}


def test_a_member_that_revoked_in_time_is_not_fenced() -> None:
    life = Life(t=2)
    life.join("a", "t", rebalance_timeout_ms=10_000)
    life.join("b", "t")
    life.beat("a", 1)
    life.beat("a", 1, {T: frozenset({0})})
    life.ticks_ms = 20_000
    life.expire()
    assert set(life.group.members) == {"a", "b"}


def test_a_wrong_epoch_is_fenced_and_the_previous_one_is_not() -> None:
    """The answer with the new epoch may be lost, so its member may come with the one before."""
    life = Life(t=2)
    life.join("a", "t")
    life.topics.counts["t"] = 3
    life.group.topics_changed()
    assert life.beat("a", 1).epoch == 2
    with refused(ErrorCode.FENCED_MEMBER_EPOCH) as refusal:
        life.beat("a", 3)
    assert "greater member epoch (3)" in refusal.value.message
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        life.beat("a", 1)
    assert life.beat("a", 1, {T: frozenset({0, 1})}).epoch == 2
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        life.beat("a", 1, {T: frozenset({0, 1, 9})})
    again = life.join("a", "t")
    assert (again.epoch, numbers(again.assigned)) == (2, [0, 1, 2])


def test_new_partitions_and_topics_begin_an_epoch() -> None:
    life = Life(t=1)
    life.join("a", "t", "u")
    life.beat("a", 1)
    life.topics.counts["t"] = 2
    assert life.beat("a", 1).epoch == 1, "the group does not know of the change"
    life.group.topics_changed()
    assert numbers(life.beat("a", 1).assigned) == [0, 1]
    life.topics.counts["u"] = 1
    life.group.topics_changed()
    assert numbers(life.beat("a", 2).assigned, "u") == [0]
    del life.topics.counts["t"]
    life.group.topics_changed()
    life.beat("a", 3)
    answer = life.beat("a", 3, {U: frozenset({0})})
    assert answer.epoch == 4
    assert life.group.members["a"].assigned == {U: {0: 3}}
    life.group.topics_changed()
    assert life.beat("a", 4).epoch == 4, "other topics changed"
    assert not life.group.is_stale


def test_an_append_that_failed_is_tried_again() -> None:
    life = Life(t=1)
    life.join("a", "t")
    life.topics.counts["t"] = 2
    life.group.topics_changed()
    request = Heartbeat("a", 1)
    lost = life.group.heartbeat(request, life.topics, life.now)
    assert lost.answer.epoch == 2
    assert life.group.epoch == 1, "nothing was replayed"
    assert life.heartbeat(request) == lost.answer
    assert life.group.epoch == 2


def test_a_regular_expression_without_a_match_begins_no_epoch() -> None:
    life = Life(u=1)
    life.group.epoch = life.group.assignment_epoch = FIRST_EPOCH
    answer = life.join("a", topic_names=None, topic_regex="t*")
    assert (answer.epoch, answer.assigned, life.group.epoch) == (1, {}, 1)
    assert life.group.patterns == {"t*": set()}
    life.topics.counts["ta"] = 1
    life.group.topics_changed()
    assert numbers(life.beat("a", 1).assigned, "ta") == [0]
    assert life.join("b", topic_names=None, topic_regex="v*").epoch == 2
    assert life.group.epoch == 2
    life.join("c", topic_names=None, topic_regex="v*")  # the group knows it already
    assert life.group.epoch == 3


def test_regular_expressions_follow_the_topics() -> None:
    life = Life(ta=1, tb=1, u=1)
    answer = life.join("a", topic_names=None, topic_regex="t*")
    assert numbers(answer.assigned, "ta") == numbers(answer.assigned, "tb") == [0]
    assert numbers(answer.assigned, "u") == []
    assert life.group.patterns == {"t*": {"ta", "tb"}}
    life.topics.counts["tc"] = 1
    life.group.topics_changed()
    assert numbers(life.beat("a", 1).assigned, "tc") == [0]
    life.beat("a", 2, topic_regex="", topic_names=("u",))
    assert life.group.patterns == {}
    with refused(ErrorCode.INVALID_REGULAR_EXPRESSION) as refusal:
        life.join("b", topic_names=None, topic_regex="(")
    assert refusal.value.message == (
        "SubscribedTopicRegex `(` is not a valid regular expression: missing argument to "
        "repetition operator: `*`."
    )
    assert "b" not in life.group.members


def test_a_static_member_comes_back_to_its_partitions() -> None:
    life = Life(t=4)
    life.join("a", "t", instance_id="i")
    life.join("b", "t")
    life.beat("a", 1, instance_id="i")
    life.beat("a", 1, {T: frozenset({0, 1})}, instance_id="i")
    life.beat("b", 2)
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        life.join("c", "t", instance_id="i")
    assert life.beat("a", -2, instance_id="i").epoch == -2
    assert len(held_of(life.group)) == 4, "nothing of it is given away"
    assert life.group.members["a"].assigned == {T: {0: 0, 1: 0}}, "as in Kafka's record"
    back = life.join("c", "t", instance_id="i")
    assert (back.epoch, numbers(back.assigned)) == (2, [0, 1])
    assert life.beat("b", 2).epoch == 2, "no rebalance"
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        life.beat("a", 2, instance_id="i")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID) as refusal:
        life.beat("a", 2, instance_id="j")
    assert refusal.value.message == "Instance id j is unknown."
    life.beat("c", -1, instance_id="i")
    assert set(life.group.members) == {"b"}


def test_a_static_member_that_stays_away_is_fenced() -> None:
    life = Life(t=1)
    life.join("a", "t", instance_id="i")
    life.beat("a", -2, instance_id="i")
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        life.beat("a", 1, instance_id="i")
    life.ticks_ms = 45_000
    life.expire()
    assert life.group.is_empty


def test_a_full_group_refuses_new_members() -> None:
    life = Life(ConsumerLimits(size_max=1), t=1)
    life.join("a", "t")
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED) as refusal:
        life.join("b", "t")
    assert refusal.value.message == (
        "The consumer group has reached its maximum capacity of 1 members."
    )
    assert life.join("a", "t").epoch == 1


def test_most_members_choose_the_assignor() -> None:
    life = Life(t=3, u=3)
    life.join("a", "t", "u", server_assignor="range")
    life.join("b", "t", "u")
    assert life.group.targets["a"] == {T: {0, 1}, U: {0, 1}}
    life.join("c", "t", "u", server_assignor="uniform")
    life.join("d", "t", "u", server_assignor="uniform")
    assert sorted(sum(map(len, each.values())) for each in life.group.targets.values()) == [
        1,
        1,
        2,
        2,
    ]


def test_a_loaded_group_is_the_same() -> None:
    life = Life(t=4)
    life.join("a", "t", instance_id="i", rack_id="r", client_id="c", client_host="/h")
    life.join("b", topic_names=None, topic_regex="t*")
    life.beat("a", 1, instance_id="i")
    life.join("c", "t")
    life.beat("c", -1)
    again = life.loaded()
    for name in ("epoch", "assignment_epoch", "metadata_hash", "members", "targets", "patterns"):
        assert getattr(again, name) == getattr(life.group, name), name
    assert again.next_deadline_ms() is None
    again.resume(life.now)
    assert again.next_deadline_ms() == 45_000
    assert again.is_stale
    life.group = again
    life.ticks_ms = 60_000
    life.expire()
    assert again.is_empty


def test_a_compacted_log_loads_in_any_order() -> None:
    """Compaction keeps the last record of each key: a new owner may come before the old one."""
    life = Life(t=2)
    life.join("a", "t")
    life.join("b", "t")
    life.beat("a", 1)
    life.beat("a", 1, {T: frozenset({0})})
    life.beat("b", 2)
    life.beat("a", -1)
    life.beat("b", 2)
    life.log = list(reversed(dict(life.log).items()))
    again = life.loaded()
    assert again.members == life.group.members
    assert held_of(again) == {(T, 0): "b", (T, 1): "b"}


def test_the_tombstones_of_a_group_remove_all_of_it() -> None:
    life = Life(t=1)
    life.join("a", "t")
    life.join("b", topic_names=None, topic_regex="t*")
    life.append(life.group.tombstones())
    again = life.loaded()
    assert (again.members, again.targets, again.patterns) == ({}, {}, {})
    assert {key for key, value in life.log if value is not None} <= {
        key for key, value in life.log if value is None
    }


def test_a_member_in_a_state_of_a_later_kafka_must_begin_again() -> None:
    life = Life(t=1)
    life.join("a", "t")
    member = life.group.members["a"]
    life.group.members["a"] = member._replace(state=MemberState(9))
    assert life.group.members["a"].state is MemberState.UNKNOWN
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        life.beat("a", 1)
    assert life.join("a", "t").epoch == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Heartbeat("", 0), "MemberId can't be empty."),
        (Heartbeat("a", 0, instance_id=""), "InstanceId can't be empty."),
        (Heartbeat("a", 0, rack_id=""), "RackId can't be empty."),
        (Heartbeat("a", 0), "RebalanceTimeoutMs must be provided in first request."),
        (
            Heartbeat("a", 0, rebalance_timeout_ms=1),
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            Heartbeat("a", 0, rebalance_timeout_ms=1, owned={}),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        (Heartbeat("a", -2), "InstanceId can't be null."),
        (Heartbeat("a", -3), "MemberEpoch is invalid."),
    ],
)
def test_wrong_fields_get_kafkas_messages(request_: Heartbeat, message: str) -> None:
    with refused(ErrorCode.INVALID_REQUEST) as refusal:
        check("g", request_, needs_member_id=True)
    assert refusal.value.message == message


def test_other_wrong_requests() -> None:
    with refused(ErrorCode.INVALID_REQUEST) as refusal:
        check("", Heartbeat("a", 1), needs_member_id=False)
    assert refusal.value.message == "GroupId can't be empty."
    with refused(ErrorCode.UNSUPPORTED_ASSIGNOR) as refusal:
        check("g", Heartbeat("a", 1, server_assignor="x"), needs_member_id=False)
    assert refusal.value.message == (
        "ServerAssignor x is not supported. Supported assignors: uniform, range."
    )
    join = Heartbeat("", 0, rebalance_timeout_ms=1, owned={}, topic_names=())
    check("g", join, needs_member_id=False)


def test_records_of_a_members_first_heartbeat_are_in_kafkas_order() -> None:
    life = Life(t=1)
    life.join("a", "t")
    assert [int.from_bytes(key[:2], "big") for key, _ in life.log] == [5, 3, 7, 6, 8]
    target_epoch = decode(*life.log[3])
    assert target_epoch is not None
    assert target_epoch.value.assignment_timestamp == WALL_MS


def test_corrupt_records_are_a_protocol_error() -> None:
    life = Life(t=1)
    life.join("a", "t")
    key, value = encode(RECORDS.subscription_record("g", life.group.members["a"]))
    assert value is not None
    assert value.endswith(b"\x01\x00\x01\x00"), "not a member of the classic protocol"
    assert decode(b"\x00\x02rest", None) is None, "a classic group"
    with pytest.raises(ProtocolError, match="unknown version"):
        decode(key, b"\x00\x01" + value[2:])
    with pytest.raises(ProtocolError):
        decode(key, value[:-1])
    with pytest.raises(ProtocolError):
        decode(key[:-1], value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rack_id", "r"),
        ("client_id", "c"),
        ("client_host", "/10.0.0.1"),
        ("topic_names", ("u",)),
        ("topic_regex", "t*"),
        ("rebalance_timeout_ms", 1000),
        ("server_assignor", "range"),
    ],
)
def test_what_a_member_says_anew_is_known(field: str, value: Any) -> None:
    life = Life(t=4, u=2)
    epoch = life.join("a", "t").epoch
    life.beat("a", epoch, **{field: value})
    known = getattr(life.group.members["a"].subscription, field)
    assert known == (frozenset(value) if field == "topic_names" else value)
