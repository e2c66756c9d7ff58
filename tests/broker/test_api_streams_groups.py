"""Streams groups on a whole broker: the coordinator creates the topics."""

from __future__ import annotations

import asyncio
from typing import Any

import tidelog
from broker.test_streams_membership import Topology, join_fields, status, tasks
from support.clusters import run
from support.wire_client import WireClient
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
)

SETTINGS = {
    "group.streams.assignment.interval.ms": "0",
}
MISSING_INTERNAL = 3


async def beat(client: WireClient, epoch: int, **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=epoch, **fields
    )
    return await client.ask(request, 0)


def word_count(**config: str) -> Any:
    """Lines are counted; the changelog has these settings."""
    info = Topology.Subtopology.TopicInfo
    changelog = info(
        name="counts",
        topic_configs=[info.KeyValue(key=key, value=value) for key, value in config.items()],
    )
    subtopology = Topology.Subtopology(
        subtopology_id="0", source_topics=["lines"], state_changelog_topics=[changelog]
    )
    return Topology(subtopologies=[subtopology])


async def joined(client: WireClient, topology: Any) -> Any:
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    for _ in range(1000):
        if (await client.ask(find, 6)).coordinators[0].error_code == ErrorCode.NONE:
            break
        await asyncio.sleep(0.005)
    return await beat(client, 0, **join_fields("m", topology=topology))


def test_a_streams_group_from_its_first_member_to_its_end() -> None:
    async def test() -> None:
        async with tidelog.Cluster(SETTINGS) as cluster:
            await cluster.create_topic("lines", partitions=2)
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                topology = word_count(**{"cleanup.policy": "compact"})
                answer = await joined(client, topology)
                assert status(answer) == [(MISSING_INTERNAL, "Internal topics are missing: counts")]
                for _ in range(1000):
                    answer = await beat(client, answer.member_epoch)
                    if not answer.status:
                        break
                    await asyncio.sleep(0.005)
                assert tasks(answer) == {"0": [0, 1]}
                described = await client.ask(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
                assert described.groups[0].group_state == "Stable"
                state = await cluster.state()
                found = state.topic("counts")
                assert len(found.partitions) == 2
                assert found.config == {"cleanup.policy": "compact"}
                (group,) = state.groups
                assert (group.protocol, group.state) == ("sticky", "Stable")
                assert group.members[0].assignment == {"lines": (0, 1)}
                assert (await beat(client, -1)).error_code == ErrorCode.NONE

    run(test)


def test_why_a_topic_could_not_be_created_is_in_the_status() -> None:
    async def test() -> None:
        async with tidelog.Cluster(SETTINGS) as cluster:
            await cluster.create_topic("lines")
            async with await WireClient.connect(cluster.bootstrap_servers) as client:
                answer = await joined(client, word_count(**{"cleanup.policy": "none"}))
                for _ in range(1000):
                    ((_, detail),) = status(answer)
                    if "Creation failed" in detail:
                        break
                    await asyncio.sleep(0.005)
                    answer = await beat(client, answer.member_epoch)
                assert "Creation failed: counts (" in detail
                assert "cleanup.policy" in detail

    run(test)
