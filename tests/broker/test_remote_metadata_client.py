"""Whom the client of `__remote_log_metadata` asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from support.metadata import cluster, topic
from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC, BrokerImage
from tidelog.network.peers import PeerError
from tidelog.tiered.metadata.client import MetadataTopicClient, TopicError
from tidelog.tiered.metadata.settings import ClientSettings
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.replica_manager import ReplicaManager

ENDPOINTS = (("PLAINTEXT", "brokers", 1, 0), ("TIER", "t", 2, 0))
LEADER = BrokerImage(2, "brokers", 1, endpoints=ENDPOINTS)


class NoReplicas:
    """Of a broker that leads nothing."""

    node_id = 1

    def partition(self, _topic: str, _index: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("listener", "asked"), [("", [("brokers", 1)]), ("TIER", [("t", 2)]), ("NOWHERE", [])]
)
def test_a_leader_is_asked_by_the_listener_that_is_named(
    listener: str, asked: list[tuple[str, int]]
) -> None:
    """remote.log.metadata.manager.listener.name; who has no such listener cannot be asked."""
    channels: list[tuple[str, int]] = []

    class Channel:
        def __init__(self, host: str, port: int) -> None:
            channels.append((host, port))

        async def ask(self, _request: Any, **_options: Any) -> Any:
            raise PeerError("away")

        def close(self) -> None:
            pass

    image = cluster(topic(REMOTE_LOG_METADATA_TOPIC, 1, replicas=(2,)), brokers=[LEADER])
    client = MetadataTopicClient(
        REMOTE_LOG_METADATA_TOPIC,
        replicas=cast("ReplicaManager", NoReplicas()),
        image=lambda: image,
        new_channel=lambda host, port: cast("PeerChannel", Channel(host, port)),
        settings=ClientSettings.of({}, request_timeout_ms=1000),
        listener=listener,
    )
    with pytest.raises(TopicError):
        asyncio.run(client.end_offset(0))
    with pytest.raises(PeerError):
        asyncio.run(client.fetch(2, {0: 0}))
    assert channels == 2 * asked  # one to ask, one for fetches that wait
    client.close()
