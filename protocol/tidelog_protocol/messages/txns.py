"""Tables of idempotent and transactional producers, and of the markers between brokers."""

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
)

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    """Ask for a producer id, or the next epoch of a transactional one (KIP-98).

    v2: flexible
    v3: id and epoch to continue with (KIP-360)
    v4: PRODUCER_FENCED understood (KIP-588)
    v5: TRANSACTION_ABORTABLE understood (KIP-890)
    v6, two-phase commit (KIP-939), is not stable in Kafka 4.4 and is missing here
    """

    transactional_id: str | None = string(nullable="0+")  # null: idempotent only
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)  # -1: a new one
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    """The producer id and epoch to use.

    v2: flexible
    v4: PRODUCER_FENCED may come (KIP-588)
    v5: TRANSACTION_ABORTABLE may come (KIP-890)
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    """Partitions a transaction is about to write.

    v2: PRODUCER_FENCED understood; v3: flexible
    v4: several transactions, and verify-only requests: between brokers
    v5: TRANSACTION_ABORTABLE understood (KIP-890)
    """

    class AddPartitionsToTxnTransaction(Struct):
        class AddPartitionsToTxnTopic(Struct):
            name: str = string()
            partitions: list[int] = array(int32)

        transactional_id: str = string("4+")
        producer_id: int = int64("4+")
        producer_epoch: int = int16("4+")
        verify_only: bool = boolean("4+")
        topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")

    AddPartitionsToTxnTopic = AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, "0-3"
    )


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    """Errors by partition."""

    class AddPartitionsToTxnResult(Struct):
        class AddPartitionsToTxnTopicResult(Struct):
            class AddPartitionsToTxnPartitionResult(Struct):
                partition_index: int = int32()
                partition_error_code: int = int16()

            name: str = string()
            results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
                AddPartitionsToTxnPartitionResult
            )

        transactional_id: str = string("4+")
        topic_results: list[AddPartitionsToTxnTopicResult] = array(
            AddPartitionsToTxnTopicResult, "4+"
        )

    AddPartitionsToTxnTopicResult = AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult
    AddPartitionsToTxnPartitionResult = (
        AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
    )

    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResult.AddPartitionsToTxnTopicResult] = (
        array(AddPartitionsToTxnTopicResult, "0-3")
    )


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    """A group whose offsets a transaction is about to commit.

    v2: PRODUCER_FENCED understood; v3: flexible; v4: TRANSACTION_ABORTABLE understood (KIP-890)
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    """One error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    """Commit or abort.

    v2: PRODUCER_FENCED understood; v3: flexible
    v4: TRANSACTION_ABORTABLE understood; v5: each end bumps the epoch (KIP-890)
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    """One error; from v5 the producer id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    """From a transaction's coordinator to the leaders of its partitions.

    v2: the transaction's version (KIP-1228)
    """

    class WritableTxnMarker(Struct):
        class WritableTxnMarkerTopic(Struct):
            name: str = string()
            partition_indexes: list[int] = array(int32)

        producer_id: int = int64()
        producer_epoch: int = int16()
        transaction_result: bool = boolean()  # true: commit
        topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
        coordinator_epoch: int = int32()
        transaction_version: int = int8("2+")

    WritableTxnMarkerTopic = WritableTxnMarker.WritableTxnMarkerTopic

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    """Errors by producer and partition."""

    class WritableTxnMarkerResult(Struct):
        class WritableTxnMarkerTopicResult(Struct):
            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: int = int32()
                error_code: int = int16()

            name: str = string()
            partitions: list[WritableTxnMarkerPartitionResult] = array(
                WritableTxnMarkerPartitionResult
            )

        producer_id: int = int64()
        topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)

    WritableTxnMarkerTopicResult = WritableTxnMarkerResult.WritableTxnMarkerTopicResult
    WritableTxnMarkerPartitionResult = WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    """Offsets that take effect when the transaction commits.

    v2: leader epochs; v3: flexible, and the member as in OffsetCommit (KIP-447)
    v4: TRANSACTION_ABORTABLE understood; v5: no AddOffsetsToTxn before it (KIP-890)
    """

    class TxnOffsetCommitRequestTopic(Struct):
        class TxnOffsetCommitRequestPartition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("2+", default=-1)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)

    TxnOffsetCommitRequestPartition = TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    """Errors by partition."""

    class TxnOffsetCommitResponseTopic(Struct):
        class TxnOffsetCommitResponsePartition(Struct):
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)

    TxnOffsetCommitResponsePartition = TxnOffsetCommitResponseTopic.TxnOffsetCommitResponsePartition

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
