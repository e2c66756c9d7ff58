"""What an administrator asks of a cluster, over the wire."""

from __future__ import annotations

import asyncio
from typing import Any

from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tidelog_protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest
from tidelog_protocol.messages.data import DeleteRecordsRequest

TIMEOUT_MS = 20_000
_TOPIC_RESOURCE, _SET = 2, 0
_MAY_PASS = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE}


async def ask(server: str, request: Any, version: int) -> Any:
    """One request over a connection of its own."""
    async with await WireClient.connect(server) as client:
        return await client.ask(request, version)


async def create_topic(
    server: str, name: str, assignments: dict[int, list[int]], configs: dict[str, str]
) -> None:
    """A topic with these replicas by partition."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(
                partition_index=index, broker_ids=replicas
            )
            for index, replicas in assignments.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    response = await ask(server, CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
    assert response.topics[0].error_code == 0, response.topics[0].error_message


async def delete_topic(server: str, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS
    )
    response = await ask(server, request, 6)
    assert response.responses[0].error_code == 0


async def add_partitions(server: str, name: str, count: int, replicas: list[list[int]]) -> None:
    """So many in all; `replicas` of the new ones."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=[
            CreatePartitionsRequest.CreatePartitionsTopic.CreatePartitionsAssignment(broker_ids=ids)
            for ids in replicas
        ],
    )
    response = await ask(server, CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 3)
    assert response.results[0].error_code == 0, response.results[0].error_message


async def alter_configs(server: str, name: str, configs: dict[str, str]) -> ErrorCode:
    """Set configurations of a topic; the error."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=_SET, value=value
            )
            for key, value in configs.items()
        ],
    )
    response = await ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return ErrorCode(response.responses[0].error_code)


async def delete_records(server: str, topic: str, partition: int, offset: int) -> int:
    """Ask the leader at `server`; the low watermark."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic(
        name=topic,
        partitions=[
            DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        ],
    )
    response = await ask(server, DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS), 2)
    (answer,) = response.topics[0].partitions
    assert answer.error_code == 0
    return int(answer.low_watermark)


async def reassign(server: str, topic: str, partition: int, replicas: list[int]) -> None:
    """Move a partition to these brokers; it goes on after this returns."""
    entry = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=partition, replicas=replicas
    )
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[entry])
    request = AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=TIMEOUT_MS)
    response = await ask(server, request, 1)
    assert response.error_code == 0
    assert response.responses[0].partitions[0].error_code == 0


async def elect_preferred(server: str, topic: str, partition: int) -> None:
    """A preferred election, asked again while it can't be made yet."""
    asked = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
    request = ElectLeadersRequest(election_type=0, topic_partitions=[asked], timeout_ms=TIMEOUT_MS)
    fine = {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
    for _ in range(300):
        response = await ask(server, request, 2)
        codes = [
            answer.error_code
            for result in response.replica_election_results
            for answer in result.partition_result
        ]
        if response.error_code == 0 and set(codes) <= fine:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"no preferred leader of {topic}-{partition}: {codes}")
