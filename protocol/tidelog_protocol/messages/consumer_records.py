"""Records of KIP-848 consumer groups in `__consumer_offsets`. A null value removes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    bytes_,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TABLES",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
]


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    """Key of a consumer group."""

    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    """A group's epoch, and the hash of the topics that it subscribes to (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """Key of the topics of a group, which Kafka wrote until 4.0."""

    group_id: str = string("0")


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """Topics that a group subscribes to; the metadata hash has replaced it (KIP-1101)."""

    class TopicMetadata(Struct):
        class PartitionMetadata(Struct):
            partition: int = int32()
            racks: list[str] = array(string)

        topic_id: bytes = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)

    topics: list[TopicMetadata] = array(TopicMetadata)

    PartitionMetadata = TopicMetadata.PartitionMetadata


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    """Key of a member."""

    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """What a member has said about itself."""

    class ClassicMemberMetadata(Struct):
        class ClassicProtocol(Struct):
            name: str = string()
            metadata: bytes = bytes_()

        session_timeout_ms: int = int32()
        supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    # Null unless the member uses the classic protocol. Kafka writes the null.
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", tag=0
    )

    ClassicProtocol = ClassicMemberMetadata.ClassicProtocol


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    """Key of the epoch of a target assignment."""

    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    """The epoch of a target assignment, and when it was computed (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    """Key of a member's target assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    """The partitions that a member is to have."""

    class TopicPartition(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    """Key of a member's current assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    """The partitions that a member has, and those that it still has to revoke."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)
        # One for each partition: the member's epoch when it got the partition (KIP-1251).
        assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    """Key of a regular expression that members subscribe to."""

    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """The topics that matched, at a version of the metadata and at a time."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


TABLES: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    }
)
"""Key and value by record type."""
