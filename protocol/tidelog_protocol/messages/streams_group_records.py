"""Records of streams groups (KIP-1071) in `__consumer_offsets`. A null value removes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TABLES",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
]


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    """Key of a group."""

    group_id: str = string("0")


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    """The group's epoch and what it was computed of."""

    class LastAssignmentConfig(Struct):
        key: str = string()
        value: str = string()

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(tag=0, default=-1)  # the topics of it are all there
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, nullable="0+", default=None, tag=1
    )


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    """Key of a member."""

    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    """What a member has said about itself."""

    class Endpoint(Struct):
        host: str = string()
        port: int = uint16()

    class KeyValue(Struct):
        key: str = string()
        value: str = string()

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    """Key of the epoch of a target assignment."""

    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    """Epoch of the target assignment, and when it was made (KIP-1263)."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    """Key of a member's target."""

    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    """The tasks that a member shall have."""

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    """Key of a member's current assignment."""

    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    """The tasks that a member has, and those that it must give back."""

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)
        # As long as the partitions; only for active tasks. It fences commits of the past.
        assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds)


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    """Key of a group's topology."""

    group_id: str = string("0")


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    """The topology of a group's application."""

    class Subtopology(Struct):
        class TopicInfo(Struct):
            class TopicConfig(Struct):
                key: str = string()
                value: str = string()

            name: str = string()
            partitions: int = int32()  # 0: any number; always 0 for changelog topics
            replication_factor: int = int16()  # 0: the broker's default
            topic_configs: list[TopicConfig] = array(TopicConfig)

        class CopartitionGroup(Struct):
            source_topics: list[int] = array(int16)  # indexes into the subtopology's lists
            source_topic_regex: list[int] = array(int16)
            repartition_source_topics: list[int] = array(int16)

        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        source_topic_regex: list[str] = array(string)
        state_changelog_topics: list[TopicInfo] = array(TopicInfo)
        repartition_sink_topics: list[str] = array(string)
        repartition_source_topics: list[TopicInfo] = array(TopicInfo)
        copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)

    CopartitionGroup = Subtopology.CopartitionGroup
    TopicInfo = Subtopology.TopicInfo
    TopicConfig = Subtopology.TopicInfo.TopicConfig


TABLES: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {
        17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    }
)
"""Key and value by record type."""
