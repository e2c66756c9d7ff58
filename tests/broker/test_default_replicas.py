"""The replicas of topics that are created without a number, and creation while a broker is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.clusters import controller_of, image_of, run
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.group_offsets import OffsetCommitRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest

if TYPE_CHECKING:
    from tidelog.embedded.nodes import Node

# Fifty partitions on each of three brokers would say nothing more.
FEW = {"offsets.topic.num.partitions": 3}


async def create(server: str, name: str) -> int:
    """Create a topic with the defaults of the cluster; return the error code."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3, replication_factor=-1)
    async with await WireClient.connect(server) as client:
        response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    return int(response.topics[0].error_code)


async def name_topic(server: str, name: str) -> None:
    """Ask for a topic's metadata, as a producer does that names it first."""
    asked = MetadataRequest.MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
    async with await WireClient.connect(server) as client:
        for _ in range(500):
            response = await client.ask(request, 12)
            if response.topics[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"{name} was not created")


async def use_group(server: str, group: str, topic: str) -> tuple[int, int]:
    """Find a group's coordinator and commit an offset there; return the errors of both."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    async with await WireClient.connect(server) as client:
        for _ in range(500):
            (found,) = (await client.ask(find, 4)).coordinators
            if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                break
            await asyncio.sleep(0.02)
    if found.error_code != ErrorCode.NONE:
        return found.error_code, 0
    commit = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5, committed_metadata=None
                    )
                ],
            )
        ],
    )
    async with await WireClient.connect(f"{found.host}:{found.port}") as client:
        for _ in range(500):
            response = await client.ask(commit, 8)
            code = response.topics[0].partitions[0].error_code
            if code not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                break
            await asyncio.sleep(0.02)
    return found.error_code, code


def replicas_of(node: Node[Any], topic: str) -> list[int]:
    """The number of replicas of each partition, as this broker knows it."""
    return [len(each.replicas) for each in image_of(node).topics[topic].partitions]


@pytest.mark.parametrize("away", ["a follower", "the controller"])
def test_with_one_of_three_brokers_stopped_all_topics_still_get_three_replicas(away: str) -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW, brokers=3) as cluster:
            controller = controller_of(cluster)
            others = [node for node in cluster.brokers if node is not controller]
            await (controller if away == "the controller" else others[0]).stop()
            server = others[1].bootstrap_server
            assert await create(server, "made") == ErrorCode.NONE
            await name_topic(server, "named")
            assert await use_group(server, "g", "made") == (ErrorCode.NONE, ErrorCode.NONE)
            for topic in ("made", "named", "__consumer_offsets"):
                assert set(replicas_of(others[1], topic)) == {3}

    run(test)


def test_fewer_brokers_get_a_replica_each() -> None:
    async def test() -> None:
        for brokers in (1, 2):
            async with tidelog.Cluster(FEW, brokers=brokers) as cluster:
                (first, *_) = cluster.brokers
                assert await create(first.bootstrap_server, "made") == ErrorCode.NONE
                assert set(replicas_of(first, "made")) == {brokers}

    run(test)


def test_a_setting_of_the_user_counts_first() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW, brokers=3, default_replication_factor=1) as cluster:
            (first, *_) = cluster.brokers
            assert await create(first.bootstrap_server, "made") == ErrorCode.NONE
            assert set(replicas_of(first, "made")) == {1}

    run(test)
