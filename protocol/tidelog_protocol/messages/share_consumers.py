"""Tables of KIP-932 share consumers: ShareFetch, ShareAcknowledge.

Version 0 was an early access of Apache Kafka 4.0; 4.1 removed it.
"""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Records,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)

__all__ = [
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareFetchRequest",
    "ShareFetchResponse",
]


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    """Acquire records of a share group, and acknowledge earlier ones.

    v1: first stable version (KIP-932)
    v2: acquire mode (KIP-1206), renewals (KIP-1222)
    """

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(int8)  # one for all, or one each

            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: bytes = uuid()
        partitions: list[FetchPartition] = array(FetchPartition)

    class ForgottenTopic(Struct):
        topic_id: bytes = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()  # 0: open a session; -1: close it
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+")  # 0: whole batches, 1: at most max_records
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)

    FetchPartition = FetchTopic.FetchPartition
    AcknowledgementBatch = FetchTopic.FetchPartition.AcknowledgementBatch


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    """Batches as they are stored in the log, and which of their records are acquired.

    v1: first stable version (KIP-932)
    v2: as v1
    """

    class ShareFetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()
                leader_epoch: int = int32()

            class AcquiredRecords(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            acknowledge_error_code: int = int16()
            acknowledge_error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
            records: Records | None = record_data(nullable="0")
            acquired_records: list[AcquiredRecords] = array(AcquiredRecords)

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)

    PartitionData = ShareFetchableTopicResponse.PartitionData
    LeaderIdAndEpoch = PartitionData.LeaderIdAndEpoch
    AcquiredRecords = PartitionData.AcquiredRecords


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    """Acknowledge acquired records: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.

    v1: first stable version (KIP-932)
    v2: renewals (KIP-1222)
    """

    class AcknowledgeTopic(Struct):
        class AcknowledgePartition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(int8)  # one for all, or one each

            partition_index: int = int32()
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: bytes = uuid()
        partitions: list[AcknowledgePartition] = array(AcknowledgePartition)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()  # -1: close the session
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)

    AcknowledgePartition = AcknowledgeTopic.AcknowledgePartition
    AcknowledgementBatch = AcknowledgeTopic.AcknowledgePartition.AcknowledgementBatch


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    """The outcome by partition.

    v1: first stable version (KIP-932)
    v2: acquisition lock timeout, for renewals (KIP-1222)
    """

    class ShareAcknowledgeTopicResponse(Struct):
        class PartitionData(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()
                leader_epoch: int = int32()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)

        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)

    PartitionData = ShareAcknowledgeTopicResponse.PartitionData
    LeaderIdAndEpoch = PartitionData.LeaderIdAndEpoch
