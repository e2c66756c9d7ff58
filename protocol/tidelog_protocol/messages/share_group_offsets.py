"""Tables of a share group's offsets: DescribeShareGroupOffsets, AlterShareGroupOffsets,
DeleteShareGroupOffsets (KIP-932)."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid

__all__ = [
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
]


class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions="0-1", flexible="0+"):
    """Ask for the start offsets of share partitions.

    v1: as v0
    """

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        class DescribeShareGroupOffsetsRequestTopic(Struct):
            topic_name: str = string()
            partitions: list[int] = array(int32)

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
            DescribeShareGroupOffsetsRequestTopic, nullable="0+"
        )  # null: all that the group has

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )

    DescribeShareGroupOffsetsRequestTopic = (
        DescribeShareGroupOffsetsRequestGroup.DescribeShareGroupOffsetsRequestTopic
    )


class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions="0-1", flexible="0+"):
    """Start offsets of share partitions.

    v1: lag (KIP-1226)
    """

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        class DescribeShareGroupOffsetsResponseTopic(Struct):
            class DescribeShareGroupOffsetsResponsePartition(Struct):
                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32()
                lag: int = int64("1+", default=-1)
                error_code: int = int16()
                error_message: str | None = string(nullable="0+", default=None)

            topic_name: str = string()
            topic_id: bytes = uuid()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
                DescribeShareGroupOffsetsResponsePartition
            )

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
            DescribeShareGroupOffsetsResponseTopic
        )
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )

    DescribeShareGroupOffsetsResponseTopic = (
        DescribeShareGroupOffsetsResponseGroup.DescribeShareGroupOffsetsResponseTopic
    )
    DescribeShareGroupOffsetsResponsePartition = (
        DescribeShareGroupOffsetsResponseTopic.DescribeShareGroupOffsetsResponsePartition
    )


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions="0", flexible="0+"):
    """Set the start offsets of share partitions of a group without members."""

    class AlterShareGroupOffsetsRequestTopic(Struct):
        class AlterShareGroupOffsetsRequestPartition(Struct):
            partition_index: int = int32()
            start_offset: int = int64()

        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
            AlterShareGroupOffsetsRequestPartition
        )

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)

    AlterShareGroupOffsetsRequestPartition = (
        AlterShareGroupOffsetsRequestTopic.AlterShareGroupOffsetsRequestPartition
    )


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions="0", flexible="0+"):
    """Which start offsets were set."""

    class AlterShareGroupOffsetsResponseTopic(Struct):
        class AlterShareGroupOffsetsResponsePartition(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_name: str = string()
        topic_id: bytes = uuid()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
            AlterShareGroupOffsetsResponsePartition
        )

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )

    AlterShareGroupOffsetsResponsePartition = (
        AlterShareGroupOffsetsResponseTopic.AlterShareGroupOffsetsResponsePartition
    )


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions="0", flexible="0+"):
    """Delete the share partitions of topics, of a group without members."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string()

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions="0", flexible="0+"):
    """The topics whose share partitions were deleted."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string()
        topic_id: bytes = uuid()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
