"""A coordinator goes, in every state of a group of every type: what is known of the group then.

It is killed and starts again, or another broker coordinates for a while. What counts is what the
log has: the members' own epochs and assignments of KIP-848, KIP-932 and KIP-1071, but of a classic
group only the last generation that was synced (Kafka: GroupMetadataManager.replay).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from broker.group_broker import GroupBroker, topic
from broker.test_consumer_membership import beat as consumer_beat
from broker.test_consumer_membership import join as consumer_join
from broker.test_consumer_membership import owned
from broker.test_group_coordinator import commit_request, heartbeat, join_request, stable_member
from broker.test_share_membership import beat as share_beat
from broker.test_share_membership import join as share_join
from broker.test_streams_membership import beat as streams_beat
from broker.test_streams_membership import join as streams_join
from broker.test_streams_membership import worker
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from tidelog_protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from tidelog_protocol.messages.groups import LeaveGroupRequest
from tidelog_protocol.messages.share_groups import ShareGroupDescribeRequest
from tidelog_protocol.messages.streams_groups import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from collections.abc import Callable

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
ROWS: list[Row] = []
DESCRIBE: dict[str, tuple[type[Any], int]] = {
    "classic": (DescribeGroupsRequest, 6),
    "consumer": (ConsumerGroupDescribeRequest, 1),
    "share": (ShareGroupDescribeRequest, 1),
    "streams": (StreamsGroupDescribeRequest, 0),
}


class Row(NamedTuple):
    """A group in a state, and what becomes of it. `reach` brings it there and returns the next
    heartbeat of a member."""

    type: str
    state: str
    reach: Callable[[GroupBroker], Callable[[], Any]]
    after: str
    answer: ErrorCode


def row(
    group_type: str, state: str, after: str, answer: ErrorCode
) -> Callable[[Callable[[GroupBroker], Callable[[], Any]]], None]:
    return lambda reach: ROWS.append(Row(group_type, state, reach, after, answer))


def assign_seldom(broker: GroupBroker, group_type: str) -> None:
    """The next target assignment has to wait."""
    broker.group_configs = {"g": {f"{group_type}.assignment.interval.ms": "15000"}}
    broker.apply()


# -- classic ---------------------------------------------------------------------------------------


@row("classic", "Empty", "Empty", UNKNOWN)
def empty_with_offsets(broker: GroupBroker) -> Callable[[], Any]:
    member = stable_member(broker)
    broker.ask(commit_request("g", 7, member_id=member, generation_id_or_member_epoch=1), 7)
    left = LeaveGroupRequest.MemberIdentity(member_id=member)
    broker.ask(LeaveGroupRequest(group_id="g", members=[left]), 4)
    return lambda: heartbeat(broker, member)


@row("classic", "PreparingRebalance", "Empty", UNKNOWN)
def first_rebalance(broker: GroupBroker) -> Callable[[], Any]:
    broker.send(join_request(), 3)
    return lambda: heartbeat(broker, "m", 0)


@row("classic", "CompletingRebalance", "Empty", UNKNOWN)
def first_generation_without_its_sync(broker: GroupBroker) -> Callable[[], Any]:
    joined = broker.send(join_request(), 3)
    broker.time.pass_()
    member = joined.answer.member_id
    return lambda: heartbeat(broker, member)


@row("classic", "Stable", "Stable", NONE)
def synced(broker: GroupBroker) -> Callable[[], Any]:
    member = stable_member(broker)
    return lambda: heartbeat(broker, member)


@row("classic", "PreparingRebalance", "Stable", NONE)
def another_member_comes(broker: GroupBroker) -> Callable[[], Any]:
    member = stable_member(broker)
    broker.send(join_request(), 3)
    return lambda: heartbeat(broker, member)


@row("classic", "CompletingRebalance", "Stable", NONE)
def second_generation_without_its_sync(broker: GroupBroker) -> Callable[[], Any]:
    member = stable_member(broker)
    broker.send(join_request(), 3)
    broker.send(join_request(member_id=member), 3)
    return lambda: heartbeat(broker, member)


# -- consumer --------------------------------------------------------------------------------------


@row("consumer", "Empty", "Empty", UNKNOWN)
def consumers_have_left(broker: GroupBroker) -> Callable[[], Any]:
    epoch = consumer_join(broker, "m").member_epoch
    consumer_beat(broker, "m", -1)
    return lambda: consumer_beat(broker, "m", epoch)


@row("consumer", "Assigning", "Assigning", NONE)
def a_consumer_waits_for_its_target(broker: GroupBroker) -> Callable[[], Any]:
    epoch = consumer_join(broker, "m").member_epoch
    assign_seldom(broker, "consumer")
    consumer_join(broker, "n")
    return lambda: consumer_beat(broker, "m", epoch)


@row("consumer", "Reconciling", "Reconciling", NONE)
def a_consumer_revokes(broker: GroupBroker) -> Callable[[], Any]:
    epoch = consumer_join(broker, "m").member_epoch
    consumer_join(broker, "n")
    consumer_beat(broker, "m", epoch)
    return lambda: consumer_beat(broker, "m", epoch)


@row("consumer", "Stable", "Stable", NONE)
def consumers_have_their_targets(broker: GroupBroker) -> Callable[[], Any]:
    first = consumer_join(broker, "m").member_epoch
    epoch = consumer_join(broker, "n").member_epoch
    consumer_beat(broker, "m", first)
    consumer_beat(broker, "m", first, topic_partitions=owned(a=[0, 1]))
    consumer_beat(broker, "n", epoch)
    return lambda: consumer_beat(broker, "m", epoch)


# -- share -----------------------------------------------------------------------------------------


@row("share", "Empty", "Empty", UNKNOWN)
def sharers_have_left(broker: GroupBroker) -> Callable[[], Any]:
    share_join(broker, "m")
    share_beat(broker, "m", -1)
    return lambda: share_beat(broker, "m", 1)


@row("share", "Stable", "Stable", NONE)
def a_sharer_reads(broker: GroupBroker) -> Callable[[], Any]:
    epoch = share_join(broker, "m").member_epoch
    epoch = share_beat(broker, "m", epoch).member_epoch
    return lambda: share_beat(broker, "m", epoch)


# -- streams ---------------------------------------------------------------------------------------


@row("streams", "Empty", "Empty", UNKNOWN)
def instances_have_left(broker: GroupBroker) -> Callable[[], Any]:
    streams_join(broker, "m")
    streams_beat(broker, "m", -1)
    return lambda: streams_beat(broker, "m", 1)


@row("streams", "NotReady", "NotReady", NONE)
def internal_topics_are_missing(broker: GroupBroker) -> Callable[[], Any]:
    epoch = streams_join(broker, "m").member_epoch
    return lambda: streams_beat(broker, "m", epoch)


@row("streams", "Assigning", "Assigning", NONE)
def an_instance_waits_for_its_target(broker: GroupBroker) -> Callable[[], Any]:
    worker(broker)
    assign_seldom(broker, "streams")
    streams_join(broker, "n")
    return lambda: streams_beat(broker, "m", 3)


@row("streams", "Reconciling", "Reconciling", NONE)
def an_instance_gives_tasks_back(broker: GroupBroker) -> Callable[[], Any]:
    worker(broker)
    streams_join(broker, "n")
    return lambda: streams_beat(broker, "m", 3)


@row("streams", "Stable", "Stable", NONE)
def an_instance_works(broker: GroupBroker) -> Callable[[], Any]:
    worker(broker)
    return lambda: streams_beat(broker, "m", 3)


# -- what happens ----------------------------------------------------------------------------------


def restarted(broker: GroupBroker) -> None:
    broker.kill()


def moved(broker: GroupBroker) -> None:
    """The coordinator moves away and back: between, this broker answers NOT_COORDINATOR."""
    for leader, epoch in ((2, 1), (1, 2)):
        known = broker.topics[GROUP_METADATA_TOPIC]
        broker.topics[GROUP_METADATA_TOPIC] = topic(
            GROUP_METADATA_TOPIC, known.topic_id, 1, leader=leader, epoch=epoch
        )
        broker.apply()
        if leader == 2:
            assert listed(broker) is None
            for group_type in DESCRIBE:
                assert described(broker, group_type)[0] is ErrorCode.NOT_COORDINATOR
    broker.time.pass_()


def listed(broker: GroupBroker) -> tuple[str, str] | None:
    found = {
        each.group_id: (each.group_type, each.group_state)
        for each in broker.ask(ListGroupsRequest(), 5).groups
    }
    return found.get("g")


def described(broker: GroupBroker, group_type: str) -> tuple[ErrorCode, str]:
    request, version = DESCRIBE[group_type]
    fields = {"groups" if group_type == "classic" else "group_ids": ["g"]}
    (found,) = broker.ask(request(**fields), version).groups
    return ErrorCode(found.error_code), found.group_state


@pytest.mark.parametrize("happen", [restarted, moved])
@pytest.mark.parametrize("one", ROWS, ids=lambda one: f"{one.type}-{one.reach.__name__}")
def test_a_group_is_what_its_log_says(one: Row, happen: Callable[[GroupBroker], None]) -> None:
    broker = GroupBroker(
        partitions=1,
        group_share_assignment_interval_ms="0",
        group_streams_assignment_interval_ms="0",
        group_streams_initial_rebalance_delay_ms="0",
    )
    beat = one.reach(broker)
    assert listed(broker) == (one.type, one.state)
    assert described(broker, one.type) == (NONE, one.state)
    happen(broker)
    assert listed(broker) == (one.type, one.after)
    assert described(broker, one.type) == (NONE, one.after)
    answer = beat()
    assert ErrorCode(getattr(answer, "error_code", answer)) is one.answer
