"""Share groups on a whole broker, with its own share coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import tidelog
from support.clusters import run
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.group_admin import DeleteGroupsRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from tidelog_protocol.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "2",
}


async def beat(client: WireClient, epoch: int) -> Any:
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    if epoch == 0:
        request.subscribed_topic_names = ["t"]
    answer = await client.ask(request, 1)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer


async def assigned(client: WireClient) -> Any:
    """A member joins and has partitions; its last answer."""
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    for _ in range(1000):
        if (await client.ask(find, 6)).coordinators[0].error_code == ErrorCode.NONE:
            break
        await asyncio.sleep(0.005)
    answer = await beat(client, 0)
    for _ in range(1000):
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        await asyncio.sleep(0.005)
        answer = await beat(client, answer.member_epoch)
    raise AssertionError("no partitions")


async def offsets(client: WireClient) -> dict[int, tuple[int, int]]:
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
        group_id="g", topics=None
    )
    answer = await client.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    (group,) = answer.groups
    assert group.error_code == ErrorCode.NONE
    return {
        each.partition_index: (each.start_offset, each.lag)
        for topic in group.topics
        for each in topic.partitions
    }


def test_a_share_group_from_its_first_member_to_its_end() -> None:
    async def test() -> None:
        async with tidelog.Cluster(SETTINGS) as cluster:
            await cluster.create_topic("t", partitions=2)
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                answer = await assigned(client)
                (topic,) = answer.assignment.topic_partitions
                assert topic.partitions == [0, 1]
                assert await offsets(client) == {0: (-1, -1), 1: (-1, -1)}
                described = await client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)
                assert described.groups[0].group_state == "Stable"
                await beat(client, -1)
                found = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
                    topic_name="t",
                    partitions=[
                        AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                            partition_index=1, start_offset=0
                        )
                    ],
                )
                altered = await client.ask(
                    AlterShareGroupOffsetsRequest(group_id="g", topics=[found]), 0
                )
                assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
                assert await offsets(client) == {0: (-1, -1), 1: (0, 0)}
                deleted = await client.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
                assert deleted.results[0].error_code == ErrorCode.NONE
                assert await offsets(client) == {}

    run(test)
