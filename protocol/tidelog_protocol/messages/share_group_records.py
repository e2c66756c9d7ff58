"""Records of share groups (KIP-932) in `__consumer_offsets`. A null value removes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.schema import Message, Struct, array, int8, int32, int64, string, uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TABLES",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
]


class ShareGroupMemberMetadataKey(Message, api_key=10, versions="0"):
    """Key of a member."""

    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Message, api_key=10, versions="0", flexible="0+"):
    """What a member has said about itself."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Message, api_key=11, versions="0"):
    """Key of a share group."""

    group_id: str = string("0")


class ShareGroupMetadataValue(Message, api_key=11, versions="0", flexible="0+"):
    """A group's epoch, and the hash of the topics that it subscribes to."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions="0"):
    """Key of the epoch of a target assignment."""

    group_id: str = string("0")


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions="0", flexible="0+"):
    """The epoch of a target assignment, and when it was computed (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions="0"):
    """Key of a member's target assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions="0", flexible="0+"):
    """The partitions that a member is to read."""

    class TopicPartition(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions="0"):
    """Key of a member's current assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions="0", flexible="0+"):
    """The epoch of a member and the partitions that it reads."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions="0"):
    """Key of the share partitions of a group."""

    group_id: str = string("0")


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions="0", flexible="0+"):
    """How far the share coordinator has the state of the group's share partitions."""

    class TopicPartitionsInfo(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class TopicInfo(Struct):
        topic_id: bytes = uuid()
        topic_name: str = string()

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


TABLES: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
        12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    }
)
"""Key and value by record type."""
