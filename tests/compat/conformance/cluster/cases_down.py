"""Cases with the third broker gone: what is offline, in too few places, or cannot move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat.conformance.batches import batch
from compat.conformance.cases_admin import create, wanted
from compat.conformance.cases_fetch import part
from compat.conformance.cases_offsets import at
from compat.conformance.cluster.cases_brokers import alter, describe
from compat.conformance.cluster.cases_data import fetch, produce
from compat.conformance.cluster.cases_moves import (
    PREFERRED,
    UNCLEAN,
    elect,
    list_moves,
    reassign,
)
from compat.conformance.cluster.cases_topics import manual
from compat.conformance.cluster.registry import down

if TYPE_CHECKING:
    from compat.conformance.cluster.session import ClusterSession


def led_by_the_third(s: ClusterSession) -> None:
    """A partition that goes on at broker 1, one that loses a follower, and one that is offline."""
    s.kept["topic"] = topic = s.replicated([3, 1], [1, 3])
    s.kept["lone"] = lone = s.replicated([3])
    for name in (topic, lone):
        s.produce_at(3, name, batch())


def both_topics(s: ClusterSession) -> list[dict[str, Any]]:
    return [{"name": s.kept["topic"]}, {"name": s.kept["lone"]}]


def wants_two(s: ClusterSession) -> None:
    s.kept["topic"] = s.replicated([1, 3], [1, 2], min_insync_replicas="2")


def placed(s: ClusterSession, topic: str, replicas: list[int]) -> None:
    """Record partition 0 once brokers know of these replicas: what the controller has answered
    reaches them a moment later."""
    s.await_partition(topic, replica_nodes=replicas)
    s.record("Metadata", s.partition(topic))


@down("Metadata", 0, 1, 5, 7, 9, 12, 13, prepare=led_by_the_third)
def a_broker_is_gone(s: ClusterSession, version: int) -> None:
    s.at_each("Metadata", version, topics=both_topics(s))


@down("DescribeTopicPartitions", prepare=led_by_the_third)
def described_without_it(s: ClusterSession, version: int) -> None:
    s.at_each("DescribeTopicPartitions", version, topics=both_topics(s))


@down("DescribeCluster")
def cluster_without_it(s: ClusterSession, version: int) -> None:
    s.at_each("DescribeCluster", version)
    if version >= 2:
        s.at_each("DescribeCluster", version, include_fenced_brokers=True)


@down("CreateTopics", 4, 7)
def created_on_fewer(s: ClusterSession, version: int) -> None:
    create(s, version, wanted(f"{s.name}.three", 1, 3))
    create(s, version, wanted(f"{s.name}.two", 1, 2))
    create(s, version, manual(f"{s.name}.manual", [3, 1, 2]))
    create(s, version, manual(f"{s.name}.only", [3]))
    s.record("Metadata", s.await_topic_known(f"{s.name}.manual")["partitions"])


@down("CreatePartitions", 0, 3)
def more_on_fewer(s: ClusterSession, version: int) -> None:
    three, two = s.replicated([1, 2, 3]), s.replicated([1, 2])
    for topic in (three, two):
        row = {"name": topic, "count": 2, "assignments": None}
        s.ask("CreatePartitions", version, topics=[row], timeout_ms=60_000)
    for ids in ([3, 2], [3, 1]):
        row = {"name": two, "count": 3, "assignments": [{"broker_ids": ids}]}
        s.ask("CreatePartitions", version, topics=[row], timeout_ms=60_000)


@down("Produce", 8, 10, 13, prepare=wants_two)
def not_enough_in_sync(s: ClusterSession, version: int) -> None:
    topic = s.kept["topic"]
    for acks in (-1, 1):
        for partition in (0, 1):
            produce(s, version, topic, "1", acks, partition)


@down("Produce", 8, 10, 13, prepare=led_by_the_third)
def nobody_leads(s: ClusterSession, version: int) -> None:
    for partition in (0, 1):
        produce(s, version, s.kept["topic"], "1", partition=partition)
    for node in ("1", "2"):
        produce(s, version, s.kept["lone"], node)


@down("Fetch", 11, 12, 16, 17, prepare=led_by_the_third)
def what_is_left_to_read(s: ClusterSession, version: int) -> None:
    topic = s.kept["topic"]
    for partition in (0, 1):
        fetch(s, version, topic, "1", part(partition))
    for node in ("1", "2"):
        fetch(s, version, s.kept["lone"], node)
    for epoch in (0, 1, 2):
        fetch(s, version, topic, "1", part(0, offset=3, current_leader_epoch=epoch))


@down("ListOffsets", 4, 11, prepare=led_by_the_third)
def offsets_that_are_left(s: ClusterSession, version: int) -> None:
    topics = [
        {"name": s.kept["topic"], "partitions": [at(-1, 0), at(-1, 1)]},
        {"name": s.kept["lone"], "partitions": [at(-1)]},
    ]
    s.at_each("ListOffsets", version, replica_id=-1, topics=topics)


@down("OffsetForLeaderEpoch", 2, 4, prepare=led_by_the_third)
def ends_that_are_left(s: ClusterSession, version: int) -> None:
    rows = [{"partition": index, "leader_epoch": 0} for index in (0, 1)]
    topics = [
        {"topic": s.kept["topic"], "partitions": rows},
        {"topic": s.kept["lone"], "partitions": rows[:1]},
    ]
    s.at_each("OffsetForLeaderEpoch", version, topics=topics)


@down("ElectLeaders", prepare=led_by_the_third)
def nobody_to_elect(s: ClusterSession, version: int) -> None:
    topic, lone = s.kept["topic"], s.kept["lone"]
    elect(s, version, PREFERRED, (topic, [0, 1]), (lone, [0]), node="2")
    elect(s, version, UNCLEAN, (topic, [0, 1]), (lone, [0]))


@down("ElectLeaders", first=1, prepare=led_by_the_third)
def unclean(s: ClusterSession, version: int) -> None:
    """A replica that was never in sync takes over, if somebody insists."""
    lone = s.kept["lone"]
    reassign(s, 0, lone, [3, 1])
    placed(s, lone, [3, 1])
    elect(s, version, UNCLEAN, (lone, [0]))
    s.await_partition(lone, leader_id=1)
    s.record("Metadata", s.partition(lone))


@down("AlterPartitionReassignments")
def moves_that_wait(s: ClusterSession, version: int) -> None:
    """To a broker that is not there: under way until it is cancelled or replaced."""
    topic = s.replicated([1, 2])
    reassign(s, version, topic, [1, 2, 3])
    s.at_each(
        "ListPartitionReassignments",
        0,
        topics=[{"name": topic, "partition_indexes": [0]}],
        timeout_ms=1000,
    )
    placed(s, topic, [1, 2, 3])
    reassign(s, version, topic, None)
    list_moves(s, topic, 0)
    placed(s, topic, [1, 2])
    reassign(s, version, topic, [2, 3])
    list_moves(s, topic, 0)
    reassign(s, version, topic, [3, 1])
    list_moves(s, topic, 0)
    reassign(s, version, topic, [2, 1])
    list_moves(s, topic, 0)
    s.record("Metadata", s.partition(topic))
    reassign(s, version, topic, None)


@down("AlterPartitionReassignments", prepare=led_by_the_third)
def moves_of_the_offline(s: ClusterSession, version: int) -> None:
    topic, lone = s.kept["topic"], s.kept["lone"]
    reassign(s, version, lone, [1, 2])
    list_moves(s, lone, 0)
    placed(s, lone, [1, 2, 3])
    reassign(s, version, lone, None)
    list_moves(s, lone, 0)
    reassign(s, version, topic, [1, 2], partition=1)
    s.await_partition(topic, 1, isr_nodes=[1, 2])
    list_moves(s, topic, 1)


@down("AlterPartitionReassignments", first=1)
def as_many_as_before(s: ClusterSession, version: int) -> None:
    topic = s.replicated([1, 2])
    reassign(s, version, topic, [2, 3], allow_replication_factor_change=False)
    reassign(s, version, topic, [1, 3], allow_replication_factor_change=False)
    reassign(s, version, topic, [1, 2, 3], allow_replication_factor_change=False)
    list_moves(s, topic, 0)
    reassign(s, version, topic, None, allow_replication_factor_change=False)


@down("IncrementalAlterConfigs")
def settings_of_the_absent(s: ClusterSession, version: int) -> None:
    alter(s, version, "3", ("log.retention.ms", 0, "1000"))
    describe(s, 4, "3", 1, "log.retention.ms")
    alter(s, version, "3", ("log.retention.ms", 1, None))


@down("DeleteTopics", 5, prepare=led_by_the_third)
def deleted_without_it(s: ClusterSession, version: int) -> None:
    s.ask("DeleteTopics", version, topic_names=[s.kept["topic"], s.kept["lone"]], timeout_ms=60_000)


@down("UnregisterBroker", prepare=led_by_the_third)
def forgotten(s: ClusterSession, version: int) -> None:
    """The last of all: afterwards it is not even fenced."""
    s.ask("UnregisterBroker", version, broker_id=3, connection="2")
    s.ask_until(
        "DescribeCluster",
        2,
        lambda answer: len(answer["brokers"]) == 2,
        include_fenced_brokers=True,
    )
    s.ask("UnregisterBroker", version, broker_id=3)
    s.ask("Metadata", 12, topics=both_topics(s))
    create(s, 7, manual(f"{s.name}.after", [1, 3]))
