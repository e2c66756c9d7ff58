"""Subscriptions and assignments in the bytes of classic members, as KIP-848 groups need them. Pure.

The bytes are those of Kafka's ConsumerProtocol; the assignor of a group of another type may send
any others.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.modern.member import Partitions
    from tidelog.coordinators.groups.modern.topics import Topics

__all__ = ["assignment_bytes", "assignment_of", "ids_of", "subscription_of"]

_VERSION = Struct(">h")
_VERSION_MAX = 3

_Listed = ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return a member's subscription; ProtocolError if the bytes are none."""
    version = _version_of(metadata)
    return codec(ConsumerProtocolSubscription, version).decode(metadata, _VERSION.size)


def assignment_of(assignment: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment, an empty one before the first; ProtocolError if the bytes are
    none."""
    if not assignment:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    version = _version_of(assignment)
    return codec(ConsumerProtocolAssignment, version).decode(assignment, _VERSION.size)


def assignment_bytes(partitions: Partitions, topics: Topics, metadata: bytes) -> bytes:
    """Return the assignment for a member with this subscription, in the version that it uses.

    A topic that is deleted is left out.
    """
    names = {topics.name_of(topic_id): numbers for topic_id, numbers in partitions.items()}
    listed = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(names[name]))
        for name in sorted(each for each in names if each is not None)
    ]
    version = _version_of(metadata)
    body = codec(ConsumerProtocolAssignment, version).encode(
        ConsumerProtocolAssignment(assigned_partitions=listed)
    )
    return _VERSION.pack(version) + body


def ids_of(listed: Iterable[_Listed], topics: Topics) -> Partitions:
    """Return partitions by topic id. A topic that is deleted is left out."""
    found: dict[bytes, frozenset[int]] = {}
    for each in listed:
        topic = topics.find(each.topic)
        if topic is not None and each.partitions:
            found[topic[0]] = found.get(topic[0], frozenset()) | frozenset(each.partitions)
    return found


def _version_of(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError("bytes of a consumer without a version")
    version = int(_VERSION.unpack_from(data)[0])
    if version < 0:
        raise ProtocolError(f"bytes of a consumer with version {version}")
    return min(version, _VERSION_MAX)
