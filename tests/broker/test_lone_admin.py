"""What a broker that is a cluster by itself answers as its own controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import tidelog
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
)
from tidelog_protocol.messages.quorum import DescribeQuorumRequest

if TYPE_CHECKING:
    from pathlib import Path


def quorum_of(topic: str, partition: int) -> DescribeQuorumRequest:
    partitions = [DescribeQuorumRequest.PartitionData(partition_index=partition)]
    topics = [DescribeQuorumRequest.TopicData(topic_name=topic, partitions=partitions)]
    return DescribeQuorumRequest(topics=topics)


def test_the_quorum_is_the_broker_itself() -> None:
    async def test() -> None:
        async with (
            tidelog.Cluster() as cluster,
            await WireClient.connect(cluster.bootstrap_servers) as client,
        ):
            answer = await client.ask(quorum_of("__cluster_metadata", 0), 2)
            described = answer.topics[0].partitions[0]
            (voter,) = described.current_voters
            assert (described.leader_id, described.leader_epoch) == (1, 1)
            assert voter.replica_id == 1
            assert voter.log_end_offset == described.high_watermark > 0
            assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp > 0
            assert described.observers == []
            assert [(node.node_id, node.listeners) for node in answer.nodes] == [(1, [])]
            for topic, partition in (("__cluster_metadata", 1), ("t", 0)):
                answer = await client.ask(quorum_of(topic, partition), 2)
                refused = answer.topics[0].partitions[0]
                assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(test())


def test_admins_may_ask_it_what_they_ask_several() -> None:
    async def test() -> None:
        async with (
            tidelog.Cluster() as cluster,
            await WireClient.connect(cluster.bootstrap_servers) as client,
        ):
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1
            )
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            asked = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
            elected = await client.ask(ElectLeadersRequest(topic_partitions=asked), 2)
            (result,) = elected.replica_election_results[0].partition_result
            assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED
            Topic = AlterPartitionReassignmentsRequest.ReassignableTopic  # noqa: N806 - a class
            moves = [Topic.ReassignablePartition(partition_index=0, replicas=[2])]
            moved = await client.ask(
                AlterPartitionReassignmentsRequest(
                    timeout_ms=60_000, topics=[Topic(name="t", partitions=moves)]
                ),
                1,
            )
            code = moved.responses[0].partitions[0].error_code
            assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            listed = await client.ask(ListPartitionReassignmentsRequest(topics=None), 0)
            assert listed.topics == []
            gone = await client.ask(UnregisterBrokerRequest(broker_id=7), 0)
            assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    asyncio.run(test())


def test_without_time_nothing_is_elected_or_moved() -> None:
    """A Kafka controller drops such a request unread, also one about unknown partitions."""
    late = ErrorCode.REQUEST_TIMED_OUT

    async def test() -> None:
        async with (
            tidelog.Cluster() as cluster,
            await WireClient.connect(cluster.bootstrap_servers) as client,
        ):
            asked = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0, 5])]
            for version, code in ((0, 0), (2, late)):  # v0 has no field for the whole
                request = ElectLeadersRequest(topic_partitions=asked, timeout_ms=0)
                answer = await client.ask(request, version)
                assert answer.error_code == code
                (topic,) = answer.replica_election_results
                assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [
                    (0, late),
                    (5, late),
                ]
                request = ElectLeadersRequest(topic_partitions=None, timeout_ms=-1)
                answer = await client.ask(request, version)
                assert (answer.error_code, answer.replica_election_results) == (code, [])
                request = ElectLeadersRequest(topic_partitions=[], timeout_ms=0)
                answer = await client.ask(request, version)
                assert (answer.error_code, answer.replica_election_results) == (0, [])
            Topic = AlterPartitionReassignmentsRequest.ReassignableTopic  # noqa: N806 - a class
            moves = [Topic.ReassignablePartition(partition_index=0, replicas=[2])]
            moved = await client.ask(
                AlterPartitionReassignmentsRequest(
                    timeout_ms=0, topics=[Topic(name="t", partitions=moves)]
                ),
                0,
            )
            assert (moved.error_code, moved.error_message) == (late, None)
            assert moved.responses[0].partitions[0].error_code == late
            moved = await client.ask(AlterPartitionReassignmentsRequest(timeout_ms=0), 0)
            assert (moved.error_code, moved.error_message, moved.responses) == (0, "", [])

    asyncio.run(test())


def test_the_only_broker_cannot_be_unregistered(tmp_path: Path) -> None:
    """Nothing could use it until its next start, as with Kafka's."""

    async def leaders(client: WireClient) -> tuple[int, list[int]]:
        response = await client.ask(MetadataRequest(topics=None), 12)
        return len(response.brokers), [one.partitions[0].leader_id for one in response.topics]

    async def test() -> None:
        cluster = tidelog.Cluster(data_dir=tmp_path)
        await cluster.start()
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            topic = CreateTopicsRequest.CreatableTopic(
                name="t", num_partitions=1, replication_factor=1
            )
            await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            gone = await client.ask(UnregisterBrokerRequest(broker_id=1), 0)
            assert gone.error_code == ErrorCode.INVALID_REQUEST
            assert gone.error_message == (
                "Broker 1 is the only broker of the cluster and cannot be unregistered."
            )
            assert await leaders(client) == (1, [1])
        await cluster.stop()
        await cluster.start()
        async with await WireClient.connect(cluster.bootstrap_servers) as client:
            assert await leaders(client) == (1, [1])
        await cluster.stop()

    asyncio.run(test())
