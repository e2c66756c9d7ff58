"""Offsets of share groups: described with their lag, altered, deleted; all through dispatch.

The share coordinator is a made-up one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.group_broker import GroupBroker, topic
from broker.test_consumer_membership import join as consumer_join
from broker.test_share_membership import A, B, beat, group_of, join, new_broker, numbers, reader
from support.share_persister import Kept
from tidelog.api import share_group_offsets
from tidelog.awaiting import called_back, drive
from tidelog.coordinators.groups.share.driven import DrivenTasks
from tidelog.coordinators.groups.share.end_offsets import EndOffsets
from tidelog.coordinators.groups.share.partitions import SharePartitions
from tidelog.coordinators.share.values import SharePartition
from tidelog.network.peers import PeerError
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ListOffsetsResponse
from tidelog_protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    import pytest

NONE = ErrorCode.NONE
UNKNOWN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "This server does not host this topic-partition.",
)


def describe(broker: GroupBroker, topics: dict[str, list[int]] | None, group: str = "g") -> Any:
    """(start offset, leader epoch, lag, error) by topic and partition, or the group's error."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
        group_id=group,
        topics=None
        if topics is None
        else [
            DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=each
            )
            for name, each in topics.items()
        ],
    )
    (found,) = broker.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), 1).groups
    if found.error_code != NONE:
        return ErrorCode(found.error_code), found.error_message
    return {
        (each.topic_name, one.partition_index): (
            one.start_offset,
            one.leader_epoch,
            one.lag,
            one.error_code,
        )
        for each in found.topics
        for one in each.partitions
    }


def alter(broker: GroupBroker, topics: dict[str, dict[int, int]], group: str = "g") -> Any:
    """(error, message) by topic and partition, or the error of all."""
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offset
                    )
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    answer = broker.ask(request, 0)
    if answer.error_code != NONE:
        return ErrorCode(answer.error_code), answer.error_message
    return {
        (each.topic_name, one.partition_index): (ErrorCode(one.error_code), one.error_message)
        for each in answer.responses
        for one in each.partitions
    }


def delete(broker: GroupBroker, *names: str, group: str = "g") -> Any:
    """(topic, id, error, message) in order, or the error of all."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
            for name in names
        ],
    )
    answer = broker.ask(request, 0)
    if answer.error_code != NONE:
        return ErrorCode(answer.error_code), answer.error_message
    return [
        (each.topic_name, each.topic_id, ErrorCode(each.error_code), each.error_message)
        for each in answer.responses
    ]


def write(broker: GroupBroker, count: int) -> None:
    """Append records to partition 0 of topic a."""
    partition = broker.replica_manager.hosted(TopicPartition("a", 0))
    assert partition is not None
    data = build_batch([Record(each, 0, None, b"x") for each in range(count)])
    partition.append(
        memoryview(bytearray(data)), acks=-1, now_ms=broker.time.wall_ms(), from_client=False
    )


def empty_group() -> GroupBroker:
    """A broker with a share group without members that has read topic a."""
    broker = new_broker()
    reader(broker)
    beat(broker, "m", -1)
    return broker


def test_offsets_are_described_with_their_lag() -> None:
    broker = new_broker()
    reader(broker)
    write(broker, 10)
    broker.persister.states[SharePartition("g", A, 0)] = Kept(1, 3, 4, 2)
    none = (-1, 0, -1, NONE)
    found = describe(broker, {"a": [0, 1], "nowhere": [0]})
    assert found == {("a", 0): (4, 3, 4, NONE), ("a", 1): none, ("nowhere", 0): none}
    assert describe(broker, None) == {
        ("a", 0): (4, 3, 4, NONE),
        ("a", 1): none,
        ("a", 2): none,
    }
    assert describe(broker, {}) == {}
    assert describe(broker, None, "other") == {}
    assert describe(broker, None, "") == {}
    broker.persister.failure = ErrorCode.NOT_COORDINATOR
    assert describe(broker, {"a": [0]}) == {("a", 0): none}, "as Kafka: no data, no error"


def test_all_partitions_of_a_group_are_described_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_group_offsets, "PART_MAX", 2)
    broker = new_broker()
    join(broker, "m", "a", "b")
    asked: list[int] = []
    read = broker.persister.read_summary

    async def counted(group_id: str, items: Any) -> Any:
        asked.append(len(items))
        return await read(group_id, items)

    monkeypatch.setattr(broker.persister, "read_summary", counted)
    none = (-1, 0, -1, NONE)
    assert describe(broker, None) == dict.fromkeys([("a", 0), ("a", 1), ("a", 2), ("b", 0)], none)
    assert asked == [2, 2]


def test_a_partition_whose_leader_is_not_known_has_an_error() -> None:
    broker = new_broker()
    broker.topics["a"] = topic("a", A, 3, leader=2, epoch=1)
    broker.apply()
    broker.persister.states[SharePartition("g", A, 0)] = Kept(1, 3, 4, 2)
    assert describe(broker, {"a": [0]}) == {("a", 0): (0, 0, -1, ErrorCode.LEADER_NOT_AVAILABLE)}


def test_a_group_without_its_coordinator() -> None:
    broker = GroupBroker(partitions=0)
    error = (ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
    assert describe(broker, None) == error
    assert alter(broker, {"a": {0: 1}}) == error
    assert delete(broker, "a") == error
    error = (ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
    assert alter(broker, {"a": {0: 1}}, "") == error
    assert delete(broker, "a", group="") == error


def test_a_cluster_without_the_feature_refuses_all_of_it() -> None:
    broker = empty_group()
    broker.features = {}
    broker.apply()
    error = (ErrorCode.UNSUPPORTED_VERSION, "The version of API is not supported.")
    assert describe(broker, None) == error
    assert alter(broker, {"a": {0: 1}}) == error
    assert delete(broker, "a") == error


def test_altered_offsets_are_those_a_member_starts_from() -> None:
    broker = new_broker()
    write(broker, 10)
    assert alter(broker, {"a": {0: 7, 3: 1}, "nowhere": {0: 1}}) == {
        ("a", 0): (NONE, None),
        ("a", 3): UNKNOWN,
        ("nowhere", 0): UNKNOWN,
    }
    group = group_of(broker)
    assert group.is_empty
    assert group.partitions.initialized == {A: ("a", {0})}
    assert describe(broker, None) == {("a", 0): (7, 0, 3, NONE)}
    reader(broker)
    assert group_of(broker).partitions.initialized == {A: ("a", {0, 1, 2})}
    assert describe(broker, {"a": [0]}) == {("a", 0): (7, 0, 3, NONE)}
    broker.kill()
    assert group_of(broker).partitions.initialized == {A: ("a", {0, 1, 2})}


def test_offsets_that_cannot_be_altered() -> None:
    broker = empty_group()
    broker.persister.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert alter(broker, {"a": {0: 7}}) == {
        ("a", 0): (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    }
    broker.persister.failure = NONE
    assert alter(broker, {}) == {}
    beat(broker, "m", 0, subscribed_topic_names=["a"])
    assert alter(broker, {"a": {0: 7}}) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    consumer_join(broker, "n", group_id="h")
    assert alter(broker, {"a": {0: 7}}, "h") == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group h is not a share group.",
    )


def test_deleted_offsets_are_gone() -> None:
    broker = empty_group()
    none = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
    assert delete(broker, "b", "a", "nowhere") == [
        ("a", A, NONE, None),
        ("b", bytes(16), *none),
        ("nowhere", bytes(16), *UNKNOWN),
    ]
    assert broker.persister.states == {}
    assert group_of(broker).partitions == SharePartitions()
    assert describe(broker, None) == {}
    assert delete(broker, "a") == [("a", bytes(16), *none)]
    epoch = beat(broker, "m", 0, subscribed_topic_names=["a"]).member_epoch
    assert numbers(beat(broker, "m", epoch)) == {A: [0, 1, 2]}, "it begins anew"


def test_a_deletion_that_fails_may_be_repeated() -> None:
    broker = empty_group()
    broker.persister.failure = ErrorCode.NOT_COORDINATOR
    error = (ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
    assert delete(broker, "a") == [("a", A, *error)]
    assert group_of(broker).partitions == SharePartitions(deleting={A: "a"})
    broker.persister.failure = NONE
    assert delete(broker, "a") == [("a", A, NONE, None)]
    assert group_of(broker).partitions == SharePartitions()


def test_offsets_that_cannot_be_deleted() -> None:
    broker = new_broker()
    reader(broker)
    assert delete(broker, "a") == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    assert delete(broker, "a", group="other") == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group other not found.",
    )


def test_leaders_on_other_brokers_are_asked_for_the_ends() -> None:
    asked = []

    class Channel:
        async def ask(self, request: Any) -> ListOffsetsResponse:
            names = [each.name for each in request.topics]
            asked.append(names)
            if "b" in names:
                raise PeerError("it is gone")
            found = ListOffsetsResponse.ListOffsetsTopicResponse
            numbers = [each.partition_index for each in request.topics[0].partitions]
            return ListOffsetsResponse(
                topics=[
                    found(
                        name="a",
                        partitions=[
                            found.ListOffsetsPartitionResponse(partition_index=each, offset=each)
                            for each in numbers
                        ],
                    )
                ]
            )

    class Channels:
        def to(self, node_id: int) -> Channel:
            assert node_id == 2
            return Channel()

    async def play() -> None:
        broker = new_broker()
        broker.topics["a"] = topic("a", A, 3, leader=2, epoch=1)
        broker.apply()
        channels: Any = Channels()
        ends = EndOffsets(broker.replica_manager, lambda: broker.image, channels, DrivenTasks())
        wanted = [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("c", 0)]
        assert await called_back(partial(drive, ends.of(wanted))) == {
            wanted[0]: 2,
            wanted[1]: 0,
            wanted[2]: ErrorCode.LEADER_NOT_AVAILABLE,
        }
        broker.topics["b"] = topic("b", B, 1, leader=2, epoch=1)
        broker.apply()
        assert await called_back(partial(drive, ends.of(wanted[1:2]))) == {
            wanted[1]: ErrorCode.NETWORK_EXCEPTION
        }
        assert asked == [["a"], ["b"]]

    asyncio.run(play())
