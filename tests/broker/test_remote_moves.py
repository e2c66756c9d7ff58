"""Tiered partitions that come, move and go (kafka-tests: EnableRemoteLogOnTopic, PartitionsExpand,
ReassignReplicaExpand, …Move, …Shrink, FetchFromLeaderWithCorruptedCheckpoint)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.clusters import consume, in_thread, librdkafka, run, until
from support.tiered_cluster import segmented, tiered_cluster
from support.wire_client import WireClient
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.tiered_cluster import TieredCluster

SETTINGS = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "broker.session.timeout.ms": "9000",  # nobody dies here, and leaders are to stay
}


def one_each(last: int) -> dict[int, list[str]]:
    return {offset: [f"v{offset}"] for offset in range(last + 1)}


def values(first: int, last: int) -> list[str]:
    return [f"v{number}" for number in range(first, last + 1)]


async def reads_all(it: TieredCluster, last: int, index: int = 0) -> None:
    found = await in_thread(consume, it.bootstrap, "a", index)
    assert [value.decode() for value in found] == values(0, last)


async def reassign(it: TieredCluster, replicas: list[int], index: int = 0) -> None:
    """Give a partition these replicas, and return when it has them and no others."""
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    asked = topic(
        name="a",
        partitions=[topic.ReassignablePartition(partition_index=index, replicas=replicas)],
    )
    request = AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=[asked])
    async with await WireClient.connect(it.running()[0].bootstrap_server) as client:
        answer = await client.ask(request, 1)
    assert answer.error_code == 0
    assert answer.responses[0].partitions[0].error_code == 0

    def is_done() -> bool:
        images = [node.server.metadata.image for node in it.running()]
        return all(
            set(image.partition("a", index).isr) == set(replicas)
            and set(image.partition("a", index).replicas) == set(replicas)
            for image in images
        )

    await until(is_done, f"a-{index} is on {replicas}")


async def elect(it: TieredCluster, index: int = 0) -> None:
    """Have the first of the replicas lead."""
    wanted = it.running()[0].server.metadata.image.partition("a", index).replicas[0]
    partitions = [ElectLeadersRequest.TopicPartitions(topic="a", partitions=[index])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=partitions, timeout_ms=20_000)
    async with await WireClient.connect(it.running()[0].bootstrap_server) as client:
        await client.ask(request, 2)
    await until(
        lambda: all(
            node.server.metadata.image.partition("a", index).leader == wanted
            for node in it.running()
        )
    )


def test_a_topic_that_has_records_joins_the_remote_tier(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 2, 2, **segmented(1, remote_storage_enable="false"))
            for index in range(2):
                await it.produce("a", values(0, 2), index)
            assert not it.tier(it.leader("a")).partitions
            await it.alter("a", remote_storage_enable="true")
            for index in range(2):
                await it.offloaded("a", one_each(1), index=index, local_start=2)
                await it.produce("a", values(3, 4), index)
                await it.offloaded("a", one_each(3), index=index, local_start=4)
                await reads_all(it, 4, index)

    run(test)


def test_partitions_that_are_added_are_tiered_as_well(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3, **SETTINGS) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)

            def expand() -> None:
                from confluent_kafka.admin import AdminClient, NewPartitions

                admin = AdminClient(librdkafka(it.bootstrap))
                admin.create_partitions([NewPartitions("a", 3)])["a"].result(60)

            await in_thread(expand)
            for index in (1, 2):
                await it.produce("a", values(0, 2), index)
                await it.offloaded("a", one_each(1), index=index, local_start=2)
            await it.produce("a", values(3, 5))
            await it.offloaded("a", one_each(4), local_start=5)
            for index, last in ((0, 5), (1, 2), (2, 2)):
                await reads_all(it, last, index)

    run(test)


@pytest.mark.parametrize("move", [False, True], ids=["expand", "move"])
def test_a_new_replica_begins_behind_the_remote_tier_and_leads(
    tmp_path: Path, *, move: bool
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3, **SETTINGS) as it:
            await it.create("busy", 8, 3, remote_storage_enable="true")  # each has each metadata
            await it.create("a", 1, 1, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            second = first % 3 + 1
            await reassign(it, [second] if move else [second, first])
            await elect(it)
            assert it.leader("a") == second
            held = it.log(second, "a")
            assert (held.log_start_offset, held.local_log_start_offset) == (0, 2)
            await it.produce("a", values(3, 3))
            await it.offloaded("a", one_each(2), local_start=3)
            assert it.faults.count("copy", second) == 1
            await reads_all(it, 3)
            assert it.faults.count("fetch", first) == 0
            if move:
                assert ("a", 0) not in it.tier(first).partitions

    run(test)


def test_a_replica_that_leaves_leaves_the_remote_part_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3, **SETTINGS) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            first = it.leader("a")
            replicas = it.running()[0].server.metadata.image.partition("a", 0).replicas
            (second,) = set(replicas) - {first}
            await reassign(it, [second])
            await until(lambda: it.leader("a") == second)
            await it.produce("a", values(3, 3))
            await it.offloaded("a", one_each(2), local_start=3)
            await reads_all(it, 3)
            assert it.faults.count("delete") == 0
            tier = it.tier(first)
            await until(lambda: not tier._topic._tracked, "it is let go of")  # type: ignore[union-attr]

    run(test)


def test_lost_checkpoints_and_a_crash_lose_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:
            await it.create("a", 1, 2, **segmented(1))
            await it.produce("a", values(0, 2))
            await it.offloaded("a", one_each(1), local_start=2)
            leader = it.leader("a")
            replicas = it.running()[0].server.metadata.image.partition("a", 0).replicas
            (follower,) = set(replicas) - {leader}
            folder = it.log(leader, "a").folder.rpartition("/")[0]
            await it.node(follower).stop()
            await it.node(leader).stop()
            for name in (
                "replication-offset-checkpoint",
                "recovery-point-offset-checkpoint",
                ".kafka_cleanshutdown",
            ):
                os.remove(f"{folder}/{name}")
            await it.node(leader).start()
            await it.node(follower).start()
            await until(lambda: it.leader("a") != -1)
            await it.produce("a", values(3, 4))
            await it.offloaded("a", one_each(3), local_start=4)
            await reads_all(it, 4)

    run(test)
