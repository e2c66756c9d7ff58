"""Tables for topics, partitions and log directories."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)

__all__ = [
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
]


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    """Topics to create.

    v2: the oldest version since Kafka 4.0
    v4: -1 partitions or replicas take the broker's defaults (KIP-464)
    v5: flexible
    v6: THROTTLING_QUOTA_EXCEEDED understood (KIP-599)
    """

    class CreatableTopic(Struct):
        class CreatableReplicaAssignment(Struct):
            partition_index: int = int32()
            broker_ids: list[int] = array(int32)

        class CreatableTopicConfig(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")  # null: the default

        name: str = string()
        num_partitions: int = int32()  # -1: default or assignments
        replication_factor: int = int16()  # -1: default or assignments
        assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
        configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")

    CreatableReplicaAssignment = CreatableTopic.CreatableReplicaAssignment
    CreatableTopicConfig = CreatableTopic.CreatableTopicConfig


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    """A result for each topic.

    v1: error message; v2: throttle time
    v5: flexible; partitions, replicas and configs of the new topic (KIP-525)
    v6: THROTTLING_QUOTA_EXCEEDED may come (KIP-599)
    v7: topic id (KIP-516)
    """

    class CreatableTopicResult(Struct):
        class CreatableTopicConfigs(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8(default=-1)
            is_sensitive: bool = boolean()

        name: str = string()
        topic_id: bytes = uuid("7+")
        error_code: int = int16()
        error_message: str | None = string("1+", nullable="0+")
        topic_config_error_code: int = int16("5+", tag=0)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        configs: list[CreatableTopicConfigs] | None = array(
            CreatableTopicConfigs, "5+", nullable="5+"
        )

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)

    CreatableTopicConfigs = CreatableTopicResult.CreatableTopicConfigs


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    """Topics to delete.

    v1: the oldest version since Kafka 4.0
    v4: flexible
    v5: error messages and THROTTLING_QUOTA_EXCEEDED understood (KIP-599)
    v6: by name or id (KIP-516)
    """

    class DeleteTopicState(Struct):
        name: str | None = string(nullable="0+", default=None)
        topic_id: bytes = uuid()

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    """A result for each topic.

    v1: throttle time
    v3: TOPIC_DELETION_DISABLED may come
    v4: flexible
    v5: error message; THROTTLING_QUOTA_EXCEEDED may come (KIP-599)
    v6: topic id, and no name for an id that is unknown (KIP-516)
    """

    class DeletableTopicResult(Struct):
        name: str | None = string(nullable="6+")
        topic_id: bytes = uuid("6+")
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None)

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    """Topics to give more partitions (KIP-195).

    v2: flexible
    v3: THROTTLING_QUOTA_EXCEEDED understood (KIP-599)
    """

    class CreatePartitionsTopic(Struct):
        class CreatePartitionsAssignment(Struct):
            broker_ids: list[int] = array(int32)

        name: str = string()
        count: int = int32()  # the total, not the increase
        assignments: list[CreatePartitionsAssignment] | None = array(
            CreatePartitionsAssignment, nullable="0+"
        )

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()

    CreatePartitionsAssignment = CreatePartitionsTopic.CreatePartitionsAssignment


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    """A result for each topic.

    v2: flexible
    v3: THROTTLING_QUOTA_EXCEEDED may come (KIP-599)
    """

    class CreatePartitionsTopicResult(Struct):
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    """Move replicas of this broker to others of its log directories (KIP-113).

    v1: the oldest version since Kafka 4.0
    v2: flexible
    """

    class AlterReplicaLogDir(Struct):
        class AlterReplicaLogDirTopic(Struct):
            name: str = string()
            partitions: list[int] = array(int32)

        path: str = string()
        topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)

    AlterReplicaLogDirTopic = AlterReplicaLogDir.AlterReplicaLogDirTopic


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    """Whether each move has begun.

    v2: flexible
    """

    class AlterReplicaLogDirTopicResult(Struct):
        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        topic_name: str = string()
        partitions: list[AlterReplicaLogDirPartitionResult] = array(
            AlterReplicaLogDirPartitionResult
        )

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)

    AlterReplicaLogDirPartitionResult = (
        AlterReplicaLogDirTopicResult.AlterReplicaLogDirPartitionResult
    )


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    """Ask for log directories and their logs (KIP-113); null topics means all.

    v1: the oldest version since Kafka 4.0
    v2: flexible
    """

    class DescribableLogDirTopic(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    """Log directories, sizes and lags.

    v2: flexible
    v3: error code for the whole
    v4: size of the volume and what is free (KIP-827)
    v5: whether a directory is cordoned (KIP-1066)
    """

    class DescribeLogDirsResult(Struct):
        class DescribeLogDirsTopic(Struct):
            class DescribeLogDirsPartition(Struct):
                partition_index: int = int32()
                partition_size: int = int64()
                offset_lag: int = int64()
                is_future_key: bool = boolean()  # of a move between directories

            name: str = string()
            partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)

        error_code: int = int16()
        log_dir: str = string()
        topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
        total_bytes: int = int64("4+", default=-1)  # of the volume, -1 unknown
        usable_bytes: int = int64("4+", default=-1)
        is_cordoned: bool = boolean("5+")

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)

    DescribeLogDirsTopic = DescribeLogDirsResult.DescribeLogDirsTopic
    DescribeLogDirsPartition = DescribeLogDirsTopic.DescribeLogDirsPartition
