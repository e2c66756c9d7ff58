"""Tables of streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe."""

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
    struct,
    uint16,
)

__all__ = [
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatResponse",
]


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0", flexible="0+"):
    """Join, stay in or leave a streams group. Null: unchanged since the last heartbeat."""

    class Topology(Struct):
        class Subtopology(Struct):
            class TopicInfo(Struct):
                class KeyValue(Struct):
                    key: str = string()
                    value: str = string()

                name: str = string()
                partitions: int = int32()  # 0: any number; always 0 for changelog topics
                replication_factor: int = int16()  # 0: the broker's default
                topic_configs: list[KeyValue] = array(KeyValue)

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

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class Endpoint(Struct):
        host: str = string()
        port: int = uint16()

    class TaskOffset(Struct):
        subtopology_id: str = string()
        partition: int = int32()
        offset: int = int64()

    group_id: str = string()
    member_id: str = string()  # the client makes it
    member_epoch: int = int32()  # 0: join; -1: leave; -2: a static member leaves to come back
    endpoint_information_epoch: int = int32()  # the last one that the client received
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # -1: unchanged
    topology: Topology | None = struct(Topology, nullable="0+")  # only to join
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)  # one process has many members
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+")  # for interactive queries
    client_tags: list[Topology.Subtopology.TopicInfo.KeyValue] | None = array(
        Topology.Subtopology.TopicInfo.KeyValue, nullable="0+", default=None
    )
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean()

    Subtopology = Topology.Subtopology
    CopartitionGroup = Topology.Subtopology.CopartitionGroup
    TopicInfo = Topology.Subtopology.TopicInfo
    KeyValue = Topology.Subtopology.TopicInfo.KeyValue


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0", flexible="0+"):
    """The member's epoch, the group's status, and the member's tasks when they have changed."""

    class Status(Struct):
        status_code: int = int8()
        status_detail: str = string()

    class TaskIds(Struct):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class EndpointToPartitions(Struct):
        class Endpoint(Struct):
            host: str = string()
            port: int = uint16()

        class TopicPartition(Struct):
            topic: str = string()
            partitions: list[int] = array(int32)

        user_endpoint: Endpoint = struct(Endpoint)
        active_partitions: list[TopicPartition] = array(TopicPartition)
        standby_partitions: list[TopicPartition] = array(TopicPartition)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()  # a warm-up task with less lag has caught up
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, nullable="0+", default=None
    )

    Endpoint = EndpointToPartitions.Endpoint
    TopicPartition = EndpointToPartitions.TopicPartition


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0", flexible="0+"):
    """Ask for state, topology and members of streams groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0", flexible="0+"):
    """Streams groups as their coordinator sees them."""

    class DescribedGroup(Struct):
        class Topology(Struct):
            class Subtopology(Struct):
                class TopicInfo(Struct):
                    class KeyValue(Struct):
                        key: str = string()
                        value: str = string()

                    name: str = string()
                    partitions: int = int32()
                    replication_factor: int = int16()
                    topic_configs: list[KeyValue] = array(KeyValue)

                subtopology_id: str = string()
                source_topics: list[str] = array(string)
                repartition_sink_topics: list[str] = array(string)
                state_changelog_topics: list[TopicInfo] = array(TopicInfo)
                repartition_source_topics: list[TopicInfo] = array(TopicInfo)

            epoch: int = int32()
            subtopologies: list[Subtopology] | None = array(
                Subtopology, nullable="0+", default=None
            )  # null: the group is not ready

        class Member(Struct):
            class Endpoint(Struct):
                host: str = string()
                port: int = uint16()

            class KeyValue(Struct):
                key: str = string()
                value: str = string()

            class TaskOffset(Struct):
                subtopology_id: str = string()
                partition: int = int32()
                offset: int = int64()

            class Assignment(Struct):
                class TaskIds(Struct):
                    subtopology_id: str = string()
                    partitions: list[int] = array(int32)

                active_tasks: list[TaskIds] = array(TaskIds)
                standby_tasks: list[TaskIds] = array(TaskIds)
                warmup_tasks: list[TaskIds] = array(TaskIds)

            member_id: str = string()
            member_epoch: int = int32()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            client_id: str = string()
            client_host: str = string()
            topology_epoch: int = int32()
            process_id: str = string()
            user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+")
            client_tags: list[KeyValue] = array(KeyValue)
            task_offsets: list[TaskOffset] = array(TaskOffset)
            task_end_offsets: list[TaskOffset] = array(TaskOffset)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            is_classic: bool = boolean()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: Topology | None = struct(Topology, nullable="0+")
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)

    Topology = DescribedGroup.Topology
    Subtopology = DescribedGroup.Topology.Subtopology
    TopicInfo = DescribedGroup.Topology.Subtopology.TopicInfo
    Member = DescribedGroup.Member
    Assignment = DescribedGroup.Member.Assignment
    TaskIds = DescribedGroup.Member.Assignment.TaskIds
