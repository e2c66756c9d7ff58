"""Tables of KIP-848 consumer groups: ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)

__all__ = [
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
]


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """Join, stay in or leave a consumer group. Null: unchanged since the last heartbeat.

    v1: regular expressions; the consumer makes its own member id (KIP-1082)
    """

    class TopicPartitions(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()  # 0: join; -1: leave; -2: a static member leaves to come back
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)  # -1: unchanged
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None
    )  # what the member owns


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment when that has changed.

    v1: INVALID_REGULAR_EXPRESSION may come
    """

    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: bytes = uuid()
            partitions: list[int] = array(int32)

        topic_partitions: list[TopicPartitions] = array(TopicPartitions)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+")  # null: unchanged

    TopicPartitions = Assignment.TopicPartitions


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    """Ask for state and members of consumer groups.

    v1: as v0
    """

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    """Consumer groups as their coordinator sees them.

    v1: type of each member (KIP-1099)
    """

    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            subscribed_topic_regex: str | None = string(nullable="0+", default=None)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            member_type: int = int8("1+", default=-1)  # 0 classic, 1 consumer

        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)

    Member = DescribedGroup.Member
    Assignment = DescribedGroup.Member.Assignment
    TopicPartitions = DescribedGroup.Member.Assignment.TopicPartitions
