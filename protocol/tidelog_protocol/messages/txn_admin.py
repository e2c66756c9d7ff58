"""Tables of requests that inspect transactions and producers (KIP-664)."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, int16, int32, int64, string

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
]


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    """The partitions whose producers to describe."""

    class TopicRequest(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    topics: list[TopicRequest] = array(TopicRequest)


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    """The producer state of each partition."""

    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class ProducerState(Struct):
                producer_id: int = int64()
                producer_epoch: int = int32()
                last_sequence: int = int32(default=-1)
                last_timestamp: int = int64(default=-1)
                coordinator_epoch: int = int32()
                current_txn_start_offset: int = int64(default=-1)  # -1: none is open

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            active_producers: list[ProducerState] = array(ProducerState)

        name: str = string()
        partitions: list[PartitionResponse] = array(PartitionResponse)

    PartitionResponse = TopicResponse.PartitionResponse
    ProducerState = PartitionResponse.ProducerState

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    """Transactional ids to describe, sent to their coordinator."""

    transactional_ids: list[str] = array(string)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    """The states of the transactional ids."""

    class TransactionState(Struct):
        class TopicData(Struct):
            topic: str = string()
            partitions: list[int] = array(int32)

        error_code: int = int16()
        transactional_id: str = string()
        transaction_state: str = string()
        transaction_timeout_ms: int = int32()
        transaction_start_time_ms: int = int64()  # -1: none is open
        producer_id: int = int64()
        producer_epoch: int = int16()
        topics: list[TopicData] = array(TopicData)

    TopicData = TransactionState.TopicData

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    """Filters of transactions; an empty filter matches everything.

    v1: by running time (KIP-994); v2: by a pattern of the transactional id (KIP-1152)
    """

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    """The transactions that this broker coordinates."""

    class TransactionState(Struct):
        transactional_id: str = string()
        producer_id: int = int64()
        transaction_state: str = string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
