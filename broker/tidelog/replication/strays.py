"""Logs that nobody wants on this broker any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.metadata.image import ClusterImage
    from tidelog_storage.manager import LogManager
    from tidelog_storage.types import TopicPartition

__all__ = ["strays"]


def strays(logs: LogManager, image: ClusterImage, node_id: int) -> list[TopicPartition]:
    """Those whose topic went, or that moved to other brokers, just before this one stopped or
    while it was away."""
    found = []
    for key, log in logs.items():
        topic = image.topics.get(key.topic)
        state = image.partition(*key)
        if (
            topic is None
            or log.topic_id not in (None, topic.topic_id)
            or (state is not None and node_id not in state.replicas)
        ):
            found.append(key)
    return found
