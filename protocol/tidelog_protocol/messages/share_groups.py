"""Tables of share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe.

Version 0 was of the early access in Kafka 4.0; Kafka 4.1 removed it.
"""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    string,
    struct,
    uuid,
)

__all__ = [
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
]


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    """Join, stay in or leave a share group. Null: unchanged since the last heartbeat."""

    group_id: str = string()
    member_id: str = string()  # the consumer makes it
    member_epoch: int = int32()  # 0: join; -1: leave
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    """The member's epoch, and its assignment when that has changed."""

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


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    """Ask for state and members of share groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    """Share groups as their coordinator sees them."""

    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: bytes = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            assignment: Assignment = struct(Assignment)

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
