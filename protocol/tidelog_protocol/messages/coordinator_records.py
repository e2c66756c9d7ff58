"""Keys and values of `__consumer_offsets` and `__transaction_state`."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)

__all__ = [
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
]


class OffsetCommitKey(Message, api_key=1, versions="0"):
    """Key of a committed offset."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    """A committed offset; the tombstone is a null value.

    v1: with the time it expires, in v1 alone
    v3: leader epoch (KIP-320)
    v4: flexible; topic id (KIP-848)
    """

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class GroupMetadataKey(Message, api_key=2, versions="0"):
    """Key of a classic group."""

    group: str = string("0")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    """A classic group: generation, protocol and members.

    v1: time for rebalances; v2: when the state was entered
    v3: static members (KIP-345)
    v4: flexible
    """

    class MemberMetadata(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string()
        client_host: str = string()
        rebalance_timeout: int = int32("1+", default=-1)
        session_timeout: int = int32()
        subscription: bytes = bytes_()
        assignment: bytes = bytes_()

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class TransactionLogKey(Message, api_key=0, versions="0"):
    """Key of a transactional id in `__transaction_state`."""

    transactional_id: str = string("0")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """A transactional id's state.

    v1: flexible; the producer ids before and after, the client's transaction version (KIP-890)
    """

    class PartitionsSchema(Struct):
        topic: str = string()
        partition_ids: list[int] = array(int32)

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
