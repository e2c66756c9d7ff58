"""Behaviours of Apache Kafka's tiered-storage integration tests: replicas move between the log
directories of their brokers (kafka-tests 2.13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.clusters import run, until
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tier import admin
from tier.harness import LATEST_TIERED, TieredCluster, kv

if TYPE_CHECKING:
    from pathlib import Path

BOTH = (0, 1)
TWO_DIRECTORIES = {"log.dirs": "one,two"}


async def places(cluster, broker, topic):
    """The broker's directories: the one that has partition 0 alone, then the others."""
    asked = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])
    request = DescribeLogDirsRequest(topics=[asked])
    answer = await admin.ask(cluster.server(broker), request, 4)
    return sorted([one.log_dir for one in answer.results if found(one)]), sorted(
        [one.log_dir for one in answer.results if not found(one)]
    )


def found(result):
    return [one for topic in result.topics for one in topic.partitions]


async def move(cluster, broker, topic):
    """Move the broker's replica to its other directory; return when it is there."""
    (source,), (target,) = await places(cluster, broker, topic)
    directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = AlterReplicaLogDirsRequest(
        dirs=[
            directory(
                path=target,
                topics=[directory.AlterReplicaLogDirTopic(name=topic, partitions=[0])],
            )
        ]
    )
    answer = await admin.ask(cluster.server(broker), request, 2)
    assert answer.results[0].partitions[0].error_code == 0
    logs = cluster.node(broker).server.logs
    key = cluster.partition(broker, topic, 0).topic_partition
    await until(lambda: logs.log_dir(key) == target, f"broker {broker} moves {topic}")
    assert await places(cluster, broker, topic) == ([target], [source])


def test_a_followers_replica_moves_by_the_remote_tier_and_can_lead(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2, settings=TWO_DIRECTORIES) as cluster:
            await cluster.create("topicB", [(1, 0)], batches_per_segment=1)
            await cluster.expect_leader("topicB", 0, 1)
            await cluster.produce("topicB", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(1, "topicB", 0, 0, kv(0))
            await cluster.expect_offloaded(1, "topicB", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicB", 0, 2)
            await move(cluster, 0, "topicB")
            log = cluster.partition(0, "topicB", 0).log
            assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)
            # The preferred one is to be broker 0, which Kafka's test elects by hand.
            await cluster.reassign("topicB", 0, BOTH)
            await cluster.expect_in_sync("topicB", 0, set(BOTH))
            await cluster.expect_leader("topicB", 0, 0, elect=True)
            await cluster.expect_goes_on(0, "topicB", 0, 3)

    run(test)


def test_a_leaders_replica_moves_and_is_copied_on(tmp_path: Path) -> None:
    store = {"inner": "directory", "dir": str(tmp_path / "tier")}
    data_dir = tmp_path / "data"

    async def test():
        async with TieredCluster(store, settings=TWO_DIRECTORIES, data_dir=data_dir) as cluster:
            await cluster.create("topicB", batches_per_segment=1)
            await cluster.produce("topicB", 0, kv(0, 1, 2))
            await cluster.expect_earliest_local("topicB", 0, 2)
            for number in (3, 5):  # there, and back
                await move(cluster, 0, "topicB")
                await cluster.produce("topicB", 0, kv(number, number + 1))
                await cluster.expect_offloaded(0, "topicB", 0, number, kv(number))
                await cluster.expect_earliest_local("topicB", 0, number + 1)
                assert (await cluster.list_offsets("topicB", 0, LATEST_TIERED))[1] == number
            await cluster.consume("topicB", 0, 0, 7, 6)

    run(test)
