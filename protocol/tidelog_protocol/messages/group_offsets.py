"""Tables of groups' offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
]


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    """Offsets to store for a group.

    v2: retention time; the oldest version since Kafka 4.0
    v5: removed again (KIP-211)
    v6: leader epochs (KIP-320)
    v7: static members (KIP-345)
    v8: flexible
    v9: members of KIP-848 groups
    v10: topic ids instead of names (KIP-848)
    """

    class OffsetCommitRequestTopic(Struct):
        class OffsetCommitRequestPartition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("6+", default=-1)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)  # -1: the broker's
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)

    OffsetCommitRequestPartition = OffsetCommitRequestTopic.OffsetCommitRequestPartition


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    """A result for each partition.

    v3: throttle time
    v8: flexible
    v9: STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may come (KIP-848)
    v10: topic ids instead of names; UNKNOWN_TOPIC_ID may come (KIP-848)
    """

    class OffsetCommitResponseTopic(Struct):
        class OffsetCommitResponsePartition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)

    OffsetCommitResponsePartition = OffsetCommitResponseTopic.OffsetCommitResponsePartition


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    """Ask for the offsets of groups.

    v1: the oldest version since Kafka 4.0
    v2: null for all topics
    v6: flexible
    v7: refuse offsets of open transactions (KIP-447)
    v8: several groups at once (KIP-709)
    v9: member and its epoch, checked for KIP-848 groups
    v10: topic ids instead of names (KIP-848)
    """

    class OffsetFetchRequestTopic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class OffsetFetchRequestGroup(Struct):
        class OffsetFetchRequestTopics(Struct):
            name: str = string("8-9")
            topic_id: bytes = uuid("10+")
            partition_indexes: list[int] = array(int32)

        group_id: str = string()
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)
        topics: list[OffsetFetchRequestTopics] | None = array(
            OffsetFetchRequestTopics, nullable="0+"
        )

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")

    OffsetFetchRequestTopics = OffsetFetchRequestGroup.OffsetFetchRequestTopics


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    """Committed offsets, -1 where there are none.

    v2: error code for the whole; v3: throttle time
    v5: leader epochs (KIP-320)
    v6: flexible
    v7: UNSTABLE_OFFSET_COMMIT may come (KIP-447)
    v8: several groups at once (KIP-709)
    v9: STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID may come (KIP-848)
    v10: topic ids instead of names; UNKNOWN_TOPIC_ID may come (KIP-848)
    """

    class OffsetFetchResponseTopic(Struct):
        class OffsetFetchResponsePartition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("5-7", default=-1)
            metadata: str | None = string(nullable="0+")
            error_code: int = int16()

        name: str = string()
        partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)

    class OffsetFetchResponseGroup(Struct):
        class OffsetFetchResponseTopics(Struct):
            class OffsetFetchResponsePartitions(Struct):
                partition_index: int = int32()
                committed_offset: int = int64()
                committed_leader_epoch: int = int32(default=-1)
                metadata: str | None = string(nullable="0+")
                error_code: int = int16()

            name: str = string("8-9")
            topic_id: bytes = uuid("10+")
            partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)

        group_id: str = string()
        topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
        error_code: int = int16()

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")

    OffsetFetchResponsePartition = OffsetFetchResponseTopic.OffsetFetchResponsePartition
    OffsetFetchResponseTopics = OffsetFetchResponseGroup.OffsetFetchResponseTopics
    OffsetFetchResponsePartitions = OffsetFetchResponseTopics.OffsetFetchResponsePartitions


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    """Delete a group's offsets of topics that it is not subscribed to (KIP-496). Never flexible."""

    class OffsetDeleteRequestTopic(Struct):
        class OffsetDeleteRequestPartition(Struct):
            partition_index: int = int32()

        name: str = string()
        partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)

    OffsetDeleteRequestPartition = OffsetDeleteRequestTopic.OffsetDeleteRequestPartition


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    """A result for each partition (KIP-496). Never flexible."""

    class OffsetDeleteResponseTopic(Struct):
        class OffsetDeleteResponsePartition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

    OffsetDeleteResponsePartition = OffsetDeleteResponseTopic.OffsetDeleteResponsePartition
