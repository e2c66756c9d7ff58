"""What classic consumers say to each other in the bytes of JoinGroup and SyncGroup.

The group's leader reads them, and a coordinator does when the group changes its protocol (KIP-848).
An int16 version comes before the body. A reader takes a later version as the latest it knows.
"""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, bytes_, int32, string

__all__ = ["ConsumerProtocolAssignment", "ConsumerProtocolSubscription"]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """A member's subscription.

    v1: owned partitions (KIP-429); v2: generation (KIP-792); v3: rack (KIP-881)
    """

    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """A member's assignment; its versions are those of the subscription, all alike."""

    class TopicPartition(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
