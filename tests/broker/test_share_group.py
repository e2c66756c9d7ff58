"""One share group: heartbeats, epochs, sessions, share partitions; its records bring it back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.consumer_groups import id_of, numbers
from support.share_groups import ShareLife
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.share.requests import ShareHeartbeat, check
from tidelog.coordinators.groups.share.views import ShareLimits
from tidelog_protocol.errors import ErrorCode


def two_members(**counts: int) -> ShareLife:
    """m and n read topic t; both are in epoch 4."""
    life = ShareLife(**(counts or {"t": 2}))
    life.join("m", "t")
    life.initialized()
    life.beat("m", 2)
    life.join("n", "t")
    life.beat("m", 3)
    return life


def refusal(life: ShareLife, member_id: str, epoch: int) -> tuple[ErrorCode, str | None]:
    before = len(life.log)
    with pytest.raises(RefusedError) as refused:
        life.beat(member_id, epoch)
    assert len(life.log) == before
    return refused.value.code, refused.value.message


def test_partitions_are_assigned_once_their_state_is_initialized() -> None:
    life = ShareLife(t=2)
    answer = life.join("m", "t")
    assert (answer.epoch, numbers(answer.assigned), answer.heartbeat_interval_ms) == (2, [], 5000)
    assert life.last.initialize == {id_of("t"): ("t", {0, 1})}
    assert life.last.state_epoch == 2
    assert numbers(life.beat("m", 2).assigned) is None
    assert life.last.initialize == {}, "it is under way"
    life.initialized()
    answer = life.beat("m", 2)
    assert (answer.epoch, numbers(answer.assigned)) == (3, [0, 1])
    assert numbers(life.beat("m", 3).assigned) is None
    assert life.last.records == []


def test_more_members_than_partitions_share_them() -> None:
    life = two_members(t=1)
    assert numbers(life.group.members["m"].assigned) == [0]
    assert numbers(life.group.members["n"].assigned) == [0]
    assert life.group.state.value == "Stable"
    assert life.group.is_subscribed("t")


def test_members_divide_partitions() -> None:
    life = two_members(t=2)
    found = [numbers(life.group.members[name].assigned) for name in "mn"]
    assert sorted(found, key=str) == [[0], [1]]


def test_a_failed_initialization_is_begun_again_by_the_next_heartbeat() -> None:
    life = ShareLife(t=2)
    life.join("m", "t")
    life.failed()
    life.beat("m", 2)
    assert life.last.initialize == {id_of("t"): ("t", {0, 1})}


def test_an_initialization_without_result_is_begun_again_after_its_interval() -> None:
    life = ShareLife(t=2)
    life.join("m", "t")
    life.ticks_ms += 29_999
    life.beat("m", 2)
    assert life.last.initialize == {}
    life.ticks_ms += 1
    life.beat("m", 2)
    assert life.last.initialize == {id_of("t"): ("t", {0, 1})}


def test_a_new_coordinator_begins_an_unfinished_initialization_at_once() -> None:
    life = ShareLife(t=2)
    life.join("m", "t")
    life.group = life.loaded()
    life.group.resume(life.now)
    life.beat("m", 2)
    assert life.last.initialize == {id_of("t"): ("t", {0, 1})}


def test_new_partitions_of_a_topic_are_initialized_then_assigned() -> None:
    life = two_members(t=2)
    life.topics.counts["t"] = 3
    life.group.topics_changed()
    life.beat("m", 4)
    assert life.last.initialize == {id_of("t"): ("t", {2})}
    life.initialized()
    epoch = life.beat("m", life.group.members["m"].epoch).epoch
    life.beat("n", life.group.members["n"].epoch)
    held = {n for name in "mn" for n in numbers(life.group.members[name].assigned) or []}
    assert held == {0, 1, 2}
    assert life.beat("m", epoch).assigned is None


def test_a_member_that_subscribes_to_less_loses_those_partitions_at_once() -> None:
    life = ShareLife(ShareLimits(), t=1, u=1)  # with an interval between assignments
    life.join("m", "t", "u")
    life.initialized()
    life.ticks_ms += 1000
    assert life.beat("m", 2).assigned == {id_of("t"): {0}, id_of("u"): {0}}
    answer = life.beat("m", 3, topic_names=("t",))
    assert (answer.epoch, answer.assigned) == (3, {id_of("t"): {0}})
    life.ticks_ms += 1000
    assert life.beat("m", 3).epoch == 4


@pytest.mark.parametrize(("epoch", "size"), [(5, "greater"), (2, "smaller")])
def test_a_wrong_epoch_is_fenced(epoch: int, size: str) -> None:
    life = two_members()
    life.topics.counts["t"] = 3
    code, message = refusal(life, "m", epoch)
    assert code == ErrorCode.FENCED_MEMBER_EPOCH
    assert message is not None
    assert message.startswith(f"The share group member has a {size} member epoch ({epoch})")


def test_the_previous_epoch_and_a_new_join_are_right() -> None:
    life = two_members()
    assert life.group.members["m"].epoch == 4
    assert life.beat("m", 3).epoch == 4
    answer = life.join("m", "t")
    assert (answer.epoch, answer.assigned) == (4, life.group.members["m"].assigned)


def test_members_leave_and_are_unknown_then() -> None:
    life = two_members()
    assert life.beat("n", -1).epoch == -1
    assert refusal(life, "n", 4) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Member n is not a member of group g.",
    )
    answer = life.beat("m", 4)
    assert (answer.epoch, numbers(answer.assigned)) == (5, [0, 1])
    life.beat("m", -1)
    assert life.group.is_empty
    assert life.group.state.value == "Empty"


def test_sessions_end() -> None:
    life = two_members()
    life.ticks_ms += 44_999
    life.beat("n", 4)
    assert life.group.expire(life.topics, life.now) == []
    life.ticks_ms += 1
    life.expire()
    assert life.group.members.keys() == {"n"}
    assert life.group.next_deadline_ms() == life.ticks_ms + 44_999


def test_a_full_group_takes_no_more_members() -> None:
    life = ShareLife(ShareLimits(size_max=1), t=1)
    life.join("m", "t")
    with pytest.raises(RefusedError) as refused:
        life.join("n", "t")
    assert refused.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.value.message == (
        "The share group has reached its maximum capacity of 1 members."
    )
    assert life.join("m", "t").epoch == 2


@pytest.mark.parametrize(
    ("fields", "group_id", "message"),
    [
        ({"member_id": ""}, "g", None),
        ({"member_id": "x" * 37}, "g", None),
        ({}, "", "GroupId can't be empty."),
        ({"rack_id": ""}, "g", "RackId can't be empty."),
        ({"topic_names": ()}, "g", "SubscribedTopicNames must be set in first request."),
        ({"topic_names": None}, "g", "SubscribedTopicNames must be set in first request."),
        ({"epoch": -2}, "g", "MemberEpoch is invalid."),
    ],
)
def test_fields_are_checked_as_by_kafka(
    fields: dict[str, Any], group_id: str, message: str | None
) -> None:
    good = {"member_id": "m", "epoch": 0, "topic_names": ("t",)}
    with pytest.raises(RefusedError) as refused:
        check(group_id, ShareHeartbeat(**{**good, **fields}))
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, message)
    check("g", ShareHeartbeat("m", -1))


def test_partitions_of_deleted_topics_are_not_waited_for() -> None:
    life = two_members()
    del life.topics.counts["t"]
    life.group.topics_changed()
    answer = life.beat("m", 4)
    assert (answer.epoch, answer.assigned) == (5, {})
    life.beat("m", 5)
    assert life.last.records == []


def test_tombstones_remove_all_that_was_written() -> None:
    life = two_members()
    keys = {key for key, _ in life.log}
    records = life.group.tombstones()
    life.append(records)
    assert {key for key, _ in life.log[-len(records) :]} >= keys
    assert life.group.is_empty
    assert life.group.targets == {}


def test_random_lives_come_back_from_their_records() -> None:
    for seed in range(30):
        random = Random(seed)
        life = ShareLife(t=2, u=3, v=1)
        for _ in range(40):
            name = random.choice("mnop")
            member = life.group.members.get(name)
            if member is None or random.random() < 0.1:
                life.join(name, *random.sample("tuv", random.randint(1, 3)))
            else:
                life.beat(name, -1 if random.random() < 0.1 else member.epoch)
            (life.initialized if random.random() < 0.8 else life.failed)()
            if random.random() < 0.1:
                life.topics.counts["t"] += 1
                life.group.topics_changed()
            loaded = life.loaded()
            assert (loaded.members, loaded.targets) == (life.group.members, life.group.targets)
            assert (loaded.partitions, loaded.epoch) == (life.group.partitions, life.group.epoch)
            assert loaded.subscriptions.names({}) == life.group.subscriptions.names({})
        for _ in range(3):  # once nothing fails, each partition has members
            for name in list(life.group.members):
                life.beat(name, life.group.members[name].epoch)
                life.initialized()
        names = life.group.subscriptions.names({})
        held = {
            (topic, n)
            for member in life.group.members.values()
            for topic, each in member.assigned.items()
            for n in each
        }
        assert held == {(id_of(name), n) for name in names for n in range(life.topics.counts[name])}
