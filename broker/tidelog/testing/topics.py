"""Create and delete topics of any Kafka by its address, as the fixtures do without a cluster to
control."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tidelog.embedded import simple_client
from tidelog.embedded.cluster_client import ClusterClient, reached
from tidelog.embedded.cluster_settings import ClusterError, Setting, properties_of
from tidelog.testing.retries import Retries
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["create", "delete"]


def create(
    bootstrap_servers: str,
    name: str,
    partitions: int = 1,
    replication_factor: int = -1,
    config: Mapping[str, Setting] | None = None,
) -> None:
    """Create a topic, and wait until all running brokers know a leader of each partition.

    Kafka answers CreateTopics when the controller has it. ClusterError if the brokers refuse.
    """
    known = properties_of(config, {})
    with reached(bootstrap_servers):
        simple_client.create_topic(bootstrap_servers, name, partitions, known, replication_factor)
    retries = Retries()
    while (wrong := _wrong(bootstrap_servers, name)) is not None:
        if not retries.again():
            raise ClusterError(f"topic {name}: {wrong}")


def delete(bootstrap_servers: str, name: str, *, missing_ok: bool = False) -> None:
    """Delete a topic; ClusterError if the brokers refuse."""
    with reached(bootstrap_servers):
        simple_client.delete_topic(bootstrap_servers, name, missing_ok=missing_ok)


def _wrong(bootstrap_servers: str, name: str) -> str | None:
    """Return which broker does not serve a topic yet."""
    asked = [MetadataRequest.MetadataRequestTopic(name=name)]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    try:
        with closing(ClusterClient(bootstrap_servers)) as client:
            for node_id in client.nodes():
                (topic,) = client.broker(node_id).ask(request).topics
                codes = [topic.error_code, *(one.error_code for one in topic.partitions)]
                if any(codes):
                    return f"broker {node_id} does not know its leaders"
    except OSError as error:
        return str(error)
    return None
