"""The hash by which a group sees that its topics changed, the same number as Kafka's (KIP-1101).

A group's record has it, so that a group goes on without a rebalance after its directory moved from
Apache Kafka to tidelog or back. Kafka: `computeTopicHash` and `computeGroupHash` of the group
coordinator's `Utils`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.xxh3 import xxh3_64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.cluster.metadata.image import ClusterImage, TopicImage

__all__ = ["group_hash", "hash_of_topics", "topic_hash"]

_VERSION = b"\0"
_INT = struct.Struct("<i")


def hash_of_topics(image: ClusterImage, names: Iterable[str]) -> int:
    """Return the hash of these topics, of which some may not exist; 0 if none does."""
    hashes = {}
    for name in names:
        topic = image.topics.get(name)
        if topic is not None:
            hashes[name] = topic_hash(topic.topic_id, name, _racks(image, topic))
    return group_hash(hashes)


def group_hash(hashes: Mapping[str, int]) -> int:
    """Hash the hashes of topics, by name; a signed number of 64 bits."""
    if not hashes:
        return 0
    data = b"".join([hashes[name].to_bytes(8, "little") for name in sorted(hashes)])
    return _signed(xxh3_64(data))


def topic_hash(topic_id: bytes, name: str, racks: Sequence[Sequence[str]]) -> int:
    """Hash a topic; `racks` has those of each partition's replicas. An unsigned number."""
    parts = [
        _VERSION,
        topic_id[7::-1],  # as two longs in little-endian order
        topic_id[:7:-1],
        _string(name),
        _INT.pack(len(racks)),
    ]
    for partition, of_replicas in enumerate(racks):
        parts.append(_INT.pack(partition))
        for rack in sorted(of_replicas):
            parts += (_INT.pack(_length(rack)), _string(rack))
    return xxh3_64(b"".join(parts))


def _racks(image: ClusterImage, topic: TopicImage) -> list[list[str]]:
    brokers = image.brokers
    return [
        [
            rack
            for replica in partition.replicas
            if replica in brokers and (rack := brokers[replica].rack) is not None
        ]
        for partition in topic.partitions
    ]


def _string(text: str) -> bytes:
    """Encode as hash4j's `putString`: Java's characters, then their number."""
    return text.encode("utf-16-le") + _INT.pack(_length(text))


def _length(text: str) -> int:
    """Return the length in Java's characters."""
    return len(text.encode("utf-16-le")) // 2


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
