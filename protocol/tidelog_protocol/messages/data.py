"""Tables of the data path: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from tidelog_protocol.schema import Records

__all__ = [
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "FetchRequest",
    "FetchResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
]


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    """Batches to append, by topic and partition.

    v3: transactional id, batches of magic 2; the oldest version since Kafka 4.0
    v7: zstd allowed (KIP-110)
    v9: flexible
    v10: the answer may name the current leader (KIP-951)
    v11: TRANSACTION_ABORTABLE may come (KIP-890)
    v12: a transactional batch adds its partition to the transaction (KIP-890, part 2)
    v13: topic ids instead of names (KIP-516)
    """

    class TopicProduceData(Struct):
        class PartitionProduceData(Struct):
            index: int = int32()
            records: Records | None = record_data(nullable="0+")

        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()  # 0 no answer, 1 leader, -1 all in sync
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)

    PartitionProduceData = TopicProduceData.PartitionProduceData


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    """Offsets assigned to each partition's batch.

    v1: throttle time; v2: log append time
    v4: KAFKA_STORAGE_ERROR may come
    v5: log start offset
    v8: which records made a batch unacceptable, and a message (KIP-467)
    v9: flexible
    v10: current leader and its endpoint, tagged (KIP-951)
    v11: TRANSACTION_ABORTABLE may come (KIP-890)
    v13: topic ids instead of names (KIP-516)
    """

    class TopicProduceResponse(Struct):
        class PartitionProduceResponse(Struct):
            class BatchIndexAndErrorMessage(Struct):
                batch_index: int = int32()
                batch_index_error_message: str | None = string(nullable="0+", default=None)

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            index: int = int32()
            error_code: int = int16()
            base_offset: int = int64()
            log_append_time_ms: int = int64("2+", default=-1)  # -1 with CreateTime
            log_start_offset: int = int64("5+", default=-1)
            record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
            error_message: str | None = string("8+", nullable="8+", default=None)
            current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)

        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)

    PartitionProduceResponse = TopicProduceResponse.PartitionProduceResponse
    BatchIndexAndErrorMessage = PartitionProduceResponse.BatchIndexAndErrorMessage
    LeaderIdAndEpoch = PartitionProduceResponse.LeaderIdAndEpoch


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    """Fetch offsets by topic and partition, in the order to serve them.

    v3: limit for the whole answer
    v4: isolation level, batches of magic 2; the oldest version since Kafka 4.0
    v5: a follower's log start offset
    v7: incremental sessions (KIP-227)
    v9: leader epoch the client knows (KIP-320)
    v10: zstd understood (KIP-110)
    v11: rack (KIP-392)
    v12: flexible; epoch of the last fetched record (KIP-595)
    v13: topic ids instead of names (KIP-516)
    v14: OFFSET_MOVED_TO_TIERED_STORAGE understood (KIP-405)
    v15: replica id moves into a tagged state, with the broker's epoch (KIP-903)
    v16: endpoints of leaders understood (KIP-951)
    v17: directory id of a Raft replica (KIP-853)
    v18: high watermark of a Raft replica (KIP-1166)
    """

    class ReplicaState(Struct):
        replica_id: int = int32(default=-1)
        replica_epoch: int = int64(default=-1)

    class FetchTopic(Struct):
        class FetchPartition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("9+", default=-1)
            fetch_offset: int = int64()
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            partition_max_bytes: int = int32()  # soft: the first batch may be larger
            replica_directory_id: bytes = uuid("17+", tag=0)
            high_watermark: int = int64("18+", tag=1, default=9223372036854775807)

        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[FetchPartition] = array(FetchPartition)

    class ForgottenTopic(Struct):
        topic: str = string("7-12")
        topic_id: bytes = uuid("13+")
        partitions: list[int] = array(int32)

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    replica_id: int = int32("0-14", default=-1)  # -1 a consumer
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647)
    isolation_level: int = int8("4+")  # 0 uncommitted, 1 committed
    session_id: int = int32("7+")  # 0 none or a new one
    session_epoch: int = int32("7+", default=-1)  # -1 no session, 0 a full fetch, then 1, 2, ...
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")  # to remove
    rack_id: str = string("11+")

    FetchPartition = FetchTopic.FetchPartition


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    """Batches as they are stored in the log, with the partition's offsets.

    v1: throttle time
    v4: last stable offset and aborted transactions
    v5: log start offset
    v6: KAFKA_STORAGE_ERROR may come
    v7: sessions (KIP-227)
    v11: preferred read replica (KIP-392)
    v12: flexible; divergence, current leader and snapshot, tagged (KIP-595)
    v13: topic ids instead of names (KIP-516)
    v14: OFFSET_MOVED_TO_TIERED_STORAGE may come (KIP-405)
    v16: endpoints of the leaders named (KIP-951)
    """

    class FetchableTopicResponse(Struct):
        class PartitionData(Struct):
            class EpochEndOffset(Struct):
                epoch: int = int32(default=-1)
                end_offset: int = int64(default=-1)

            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            class SnapshotId(Struct):
                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            class AbortedTransaction(Struct):
                producer_id: int = int64()
                first_offset: int = int64()

            partition_index: int = int32()
            error_code: int = int16()
            high_watermark: int = int64()
            last_stable_offset: int = int64("4+", default=-1)
            log_start_offset: int = int64("5+", default=-1)
            diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
            current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
            snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
            aborted_transactions: list[AbortedTransaction] | None = array(
                AbortedTransaction, "4+", nullable="4+"
            )
            preferred_read_replica: int = int32("11+", default=-1)  # -1 none
            records: Records | None = record_data(nullable="0+")

        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)

    PartitionData = FetchableTopicResponse.PartitionData
    EpochEndOffset = PartitionData.EpochEndOffset
    LeaderIdAndEpoch = PartitionData.LeaderIdAndEpoch
    SnapshotId = PartitionData.SnapshotId
    AbortedTransaction = PartitionData.AbortedTransaction


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    """Ask for offsets by timestamp, or by the special timestamps below zero.

    v1: one offset a partition; the oldest version since Kafka 4.0
    v2: isolation level
    v4: leader epoch the client knows (KIP-320)
    v6: flexible
    v7: -3, largest timestamp (KIP-734)
    v8: -4, earliest local offset (KIP-405)
    v9: -5, last tiered offset (KIP-1005)
    v10: time-out for look-ups in the remote tier (KIP-1075)
    v11: -6, earliest offset not yet tiered (KIP-1023)
    """

    class ListOffsetsTopic(Struct):
        class ListOffsetsPartition(Struct):
            partition_index: int = int32()
            current_leader_epoch: int = int32("4+", default=-1)
            timestamp: int = int64()  # -1 latest, -2 earliest, -3 ... -6 above

        name: str = string()
        partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)

    replica_id: int = int32()  # -1 a consumer
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")  # of look-ups in the remote tier

    ListOffsetsPartition = ListOffsetsTopic.ListOffsetsPartition


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    """Offset and timestamp found, -1 each where there is none.

    v1: one offset and its timestamp; v2: throttle time
    v4: leader epoch of the offset (KIP-320)
    v5: OFFSET_NOT_AVAILABLE may come
    v6: flexible
    """

    class ListOffsetsTopicResponse(Struct):
        class ListOffsetsPartitionResponse(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string()
        partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)

    ListOffsetsPartitionResponse = ListOffsetsTopicResponse.ListOffsetsPartitionResponse


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    """Ask for the end offset of a leader epoch, to find divergence (KIP-320).

    v2: leader epoch the client knows; the oldest version since Kafka 4.0
    v3: replica id, -2 being a debugging consumer
    v4: flexible
    """

    class OffsetForLeaderTopic(Struct):
        class OffsetForLeaderPartition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("2+", default=-1)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)

    OffsetForLeaderPartition = OffsetForLeaderTopic.OffsetForLeaderPartition


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    """The largest epoch not above the one asked for, and its end offset.

    v1: epoch; v2: throttle time
    v4: flexible
    """

    class OffsetForLeaderTopicResult(Struct):
        class EpochEndOffset(Struct):
            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1)
            end_offset: int = int64(default=-1)  # -1 with epoch -1: unknown

        topic: str = string()
        partitions: list[EpochEndOffset] = array(EpochEndOffset)

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)

    EpochEndOffset = OffsetForLeaderTopicResult.EpochEndOffset


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    """Move log start offsets up; -1 stands for the high watermark (KIP-107).

    v2: flexible
    """

    class DeleteRecordsTopic(Struct):
        class DeleteRecordsPartition(Struct):
            partition_index: int = int32()
            offset: int = int64()  # -1: the high watermark

        name: str = string()
        partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()

    DeleteRecordsPartition = DeleteRecordsTopic.DeleteRecordsPartition


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    """The new low watermark of each partition.

    v2: flexible
    """

    class DeleteRecordsTopicResult(Struct):
        class DeleteRecordsPartitionResult(Struct):
            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16()

        name: str = string()
        partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)

    DeleteRecordsPartitionResult = DeleteRecordsTopicResult.DeleteRecordsPartitionResult
