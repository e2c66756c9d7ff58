"""Inspect transactions (KIP-664): DescribeTransactions, ListTransactions and DescribeProducers.

Version notes. ListTransactions 1 (KIP-994): by duration; 2 (KIP-1152): by a pattern of the id, with
google-re2 (the extra `re2`); UNSUPPORTED_VERSION without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txn_admin import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.coordinators.transactions.coordinator import TransactionCoordinator
    from tidelog.coordinators.transactions.transaction import Transaction
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Clock
    from tidelog_protocol.messages.txn_admin import (
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
    )

__all__ = ["TxnAdminApi"]

_log = logging.getLogger(__name__)

_State = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState
_Topic = DescribeProducersResponse.TopicResponse
_Partition = DescribeProducersResponse.PartitionResponse
_Producer = DescribeProducersResponse.ProducerState

_NO_TOPIC = "This server does not host this topic-partition."


class TxnAdminApi:
    """Handlers of requests that inspect transactions."""

    def __init__(self, transactions: Transactions, replicas: ReplicaManager, clock: Clock) -> None:
        self._transactions = transactions
        self._replicas = replicas
        self._clock = clock

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe,
            ApiKey.LIST_TRANSACTIONS: self.list,
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
        }

    def describe(
        self, context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Answer a DescribeTransactions request."""
        del context
        coordinator = self._transactions.coordinator
        return DescribeTransactionsResponse(
            transaction_states=[_described(coordinator, each) for each in request.transactional_ids]
        )

    def list(
        self, context: RequestContext, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """List the transactions that this broker coordinates and that match the filters."""
        del context
        from tidelog.coordinators.transactions.states import TransactionState  # noqa: PLC0415 - seldom asked

        coordinator = self._transactions.coordinator
        if coordinator.led.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        names = {state.wire_name for state in TransactionState}
        try:
            matches = _pattern(request.transactional_id_pattern)
        except ValueError:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        except ModuleNotFoundError:
            _log.warning(
                "cannot list transactions by a pattern: google-re2 is not installed; "
                "run: pip install 'tidelog[re2]'"
            )
            return ListTransactionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        states = {name for name in request.state_filters if name in names}
        producer_ids = set(request.producer_id_filters)
        now_ms = self._clock.wall_ms()
        listed = []
        for shard in coordinator.led.active():
            for transaction in shard.transactions.values():
                value = transaction.value
                if (
                    value.state is not TransactionState.DEAD
                    and (not request.state_filters or value.state.wire_name in states)
                    and (not producer_ids or value.producer_id in producer_ids)
                    # A transaction that never ran started at -1, and so has a huge duration, as in
                    # Kafka.
                    and (
                        request.duration_filter < 0
                        or now_ms - value.start_ms > request.duration_filter
                    )
                    and matches(transaction.transactional_id)
                ):
                    listed.append(
                        _Listed(
                            transactional_id=transaction.transactional_id,
                            producer_id=value.producer_id,
                            transaction_state=value.state.wire_name,
                        )
                    )
        unknown = [name for name in request.state_filters if name not in names]
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    def describe_producers(
        self, context: RequestContext, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Describe the producers of partitions with a replica here."""
        del context
        return DescribeProducersResponse(
            topics=[
                _Topic(
                    name=topic.name,
                    partitions=[self._producers(topic.name, i) for i in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _producers(
        self, topic: str, index: int
    ) -> DescribeProducersResponse.TopicResponse.PartitionResponse:
        partition = self._replicas.partition(topic, index)
        if isinstance(partition, ErrorCode):
            is_known = topic in self._transactions.image.topics
            return _Partition(
                partition_index=index,
                error_code=partition,
                error_message=None if is_known else _NO_TOPIC,
            )
        return _Partition(
            partition_index=index,
            active_producers=[
                _Producer(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.current_txn_first_offset,
                )
                for entry in partition.log.producers.producers.values()
            ],
        )


def _described(coordinator: TransactionCoordinator, transactional_id: str) -> _State:
    state = _State(transactional_id=transactional_id)
    found = coordinator.find(transactional_id)
    if isinstance(found, ErrorCode):
        if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        state.error_code = found
        return state
    return _filled(state, found[1])


def _filled(state: _State, transaction: Transaction) -> _State:
    from tidelog.coordinators.transactions.colleagues import by_topic  # noqa: PLC0415 - seldom asked

    value = transaction.value
    state.producer_id, state.producer_epoch = value.producer_id, value.producer_epoch
    state.transaction_state = value.state.wire_name
    state.transaction_timeout_ms = value.timeout_ms
    state.transaction_start_time_ms = value.start_ms
    state.topics = [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(sorted(value.partitions)).items()
    ]
    return state


def _pattern(text: str | None) -> Callable[[str], bool]:
    """Return a test of whole transactional ids; ValueError for an invalid pattern."""
    if not text:
        return lambda name: True
    from tidelog.config.patterns import matcher  # noqa: PLC0415 - seldom asked

    return matcher(text)
