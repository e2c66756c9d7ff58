"""Producers' side of transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and
WriteTxnMarkers between brokers.

Behaviour. A producer without a transactional id gets a new id with epoch 0, whatever id it had
before, as in Kafka. AddPartitionsToTxn adds all partitions or none: if one does not exist, the
others get OPERATION_NOT_ATTEMPTED. From version 4 on it comes from other brokers, for several
transactions, and may be verify-only (KIP-890). EndTxn is answered once the decision is committed;
the markers follow, and until they are written the next transaction gets CONCURRENT_TRANSACTIONS.

Version notes. InitProducerId 3 (KIP-360): the producer's current id and epoch; 4 (KIP-588):
PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH in older versions and in those below 2 of the
others. EndTxn 5 (KIP-890): every end bumps the epoch, and returns the next one. WriteTxnMarkers 2
(KIP-1228): the transaction's version.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of, called_back, drive, turn
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, is_internal_topic
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.txns import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    WriteTxnMarkersResponse,
)
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from typing import Any

    from tidelog.coordinators.transactions.decisions import ProducerIdAndEpoch
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog_protocol.messages.txns import (
        AddOffsetsToTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        WriteTxnMarkersRequest,
    )

    Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    Outcome = Mapping[TopicPartition, ErrorCode]

__all__ = ["TransactionsApi"]

_NONE = -1  # no producer id, no epoch
_BATCHED_VERSION = 4  # of AddPartitionsToTxn
_BUMP_VERSION = 5  # of EndTxn
_V0, _V2 = 0, 2  # transaction.version

_TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_TopicResult = _TransactionResult.AddPartitionsToTxnTopicResult
_PartitionResult = _TopicResult.AddPartitionsToTxnPartitionResult
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_MarkerTopic = _MarkerResult.WritableTxnMarkerTopicResult
_MarkerPartition = _MarkerTopic.WritableTxnMarkerPartitionResult


class TransactionsApi:
    """Handlers of requests of idempotent and transactional producers."""

    def __init__(self, transactions: Transactions, group_partition: Callable[[str], int]) -> None:
        """`group_partition` returns a group's partition of `__consumer_offsets`."""
        self._transactions = transactions
        self._group_partition = group_partition

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end,
            ApiKey.WRITE_TXN_MARKERS: self.write_markers,
        }

    # ---- InitProducerId ----------------------------------------------------------------------

    def init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | Deferred | Coroutine[None, None, InitProducerIdResponse]:
        """Return a new producer id, or the next epoch of a transactional one."""
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            return _refused(ErrorCode.INVALID_REQUEST)
        producer_ids = self._transactions.producer_ids
        if producer_ids.is_empty:
            return self._refill_and_init(context, request)
        if request.transactional_id is not None:
            respond = partial(_initialized, context.api_version)
            return context.answer_with(self._init(request), respond)
        return InitProducerIdResponse(producer_id=producer_ids.take(), producer_epoch=0)

    async def _refill_and_init(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        producer_ids = self._transactions.producer_ids
        await producer_ids.refill()
        if request.transactional_id is not None:
            result = await called_back(partial(drive, self._init(request)))
            return _initialized(context.api_version, result)
        try:
            return InitProducerIdResponse(producer_id=producer_ids.take(), producer_epoch=0)
        except StorageError as error:
            return _refused(error.code)

    def _init(
        self, request: InitProducerIdRequest
    ) -> Coroutine[Any, Any, ErrorCode | ProducerIdAndEpoch]:
        expected = None
        if request.producer_id != _NONE:
            expected = _producer(request.producer_id, request.producer_epoch)
        return self._transactions.coordinator.init_producer_id(
            request.transactional_id or "", request.transaction_timeout_ms, expected
        )

    # ---- AddPartitionsToTxn, AddOffsetsToTxn ---------------------------------------------------

    def add_partitions(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Deferred | AddPartitionsToTxnResponse:
        """Answer an AddPartitionsToTxn request."""
        version = context.api_version
        asked = request.transactions if version >= _BATCHED_VERSION else [_single(request)]
        return context.answer_with(
            all_of(self._added(version, transaction) for transaction in asked),
            partial(_added, version),
        )

    async def _added(self, version: int, transaction: Transaction) -> _TransactionResult:
        """Return the result of one transaction; the loop has turns between parts of a wide one."""
        places = [
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
        ]
        is_client = version < _BATCHED_VERSION
        refused: dict[TopicPartition, ErrorCode] = {}
        for start in range(0, len(places), PART_MAX):
            if start:
                await turn()
            some = places[start : start + PART_MAX]
            refused.update(self._refused_partitions(some, is_client=is_client))
        outcome: Outcome
        if refused:
            outcome = {**dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED), **refused}
        else:
            outcome = await self._added_all(version, transaction, frozenset(places))
        result = _TransactionResult(transactional_id=transaction.transactional_id)
        room = PART_MAX
        for topic in transaction.topics:
            answer = _TopicResult(name=topic.name)
            result.topic_results.append(answer)
            for start in range(0, len(topic.partitions), PART_MAX):
                if room <= 0:
                    await turn()
                    room = PART_MAX
                indexes = topic.partitions[start : start + PART_MAX]
                room -= len(indexes)
                answer.results_by_partition += [
                    _PartitionResult(
                        partition_index=index,
                        partition_error_code=outcome[TopicPartition(topic.name, index)],
                    )
                    for index in indexes
                ]
        return result

    async def _added_all(
        self, version: int, transaction: Transaction, partitions: frozenset[TopicPartition]
    ) -> Outcome:
        """Add partitions that are there, or verify that they were added."""
        coordinator = self._transactions.coordinator
        producer = _producer(transaction.producer_id, transaction.producer_epoch)
        asked = transaction.transactional_id, producer, partitions
        if transaction.verify_only:
            return coordinator.verify_partitions(*asked)
        error = await coordinator.add_partitions(*asked, _V0 if version < _BATCHED_VERSION else _V2)
        return dict.fromkeys(partitions, _told(error, is_old=version < 2))

    def _refused_partitions(
        self, partitions: Iterable[TopicPartition], *, is_client: bool
    ) -> dict[TopicPartition, ErrorCode]:
        image = self._transactions.image
        refused = {}
        for one in partitions:
            if is_client and is_internal_topic(one.topic):
                refused[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(*one) is None:
                refused[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def add_offsets(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> Deferred | AddOffsetsToTxnResponse:
        """Add a group's partition of `__consumer_offsets` to the transaction."""
        is_old = context.api_version < 2
        home = TopicPartition(GROUP_METADATA_TOPIC, self._group_partition(request.group_id))
        producer = _producer(request.producer_id, request.producer_epoch)
        return context.answer_with(
            self._transactions.coordinator.add_partitions(
                request.transactional_id, producer, {home}, _V0
            ),
            lambda error: AddOffsetsToTxnResponse(error_code=_told(error, is_old=is_old)),
        )

    # ---- EndTxn --------------------------------------------------------------------------------

    def end(self, context: RequestContext, request: EndTxnRequest) -> Deferred | EndTxnResponse:
        """Answer an EndTxn request."""
        from tidelog.coordinators.transactions.decisions import Ending  # noqa: PLC0415 - first transaction

        version = context.api_version
        producer = _producer(request.producer_id, request.producer_epoch)
        level = _V2 if version >= _BUMP_VERSION else _V0
        ending = Ending(producer, request.committed, True, level)

        def respond(result: ErrorCode | ProducerIdAndEpoch) -> EndTxnResponse:
            if isinstance(result, ErrorCode):
                error = _told(result, is_old=version < 2)
                return EndTxnResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)
            return EndTxnResponse(
                producer_id=result.producer_id, producer_epoch=result.producer_epoch
            )

        return context.answer_with(
            self._transactions.coordinator.end(request.transactional_id, ending), respond
        )

    # ---- WriteTxnMarkers -----------------------------------------------------------------------

    def write_markers(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> Deferred | WriteTxnMarkersResponse:
        """Write markers; answer when the in-sync replicas have them."""
        from tidelog.coordinators.transactions.markers import Marker  # noqa: PLC0415 - first transaction

        markers = [
            Marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
                tuple(
                    TopicPartition(topic.name, index)
                    for topic in marker.topics
                    for index in topic.partition_indexes
                ),
            )
            for marker in request.markers
        ]
        work = self._transactions.writer.write(markers)
        return context.answer_with(work, partial(_written, request))


def _producer(producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch:
    from tidelog.coordinators.transactions.decisions import (  # noqa: PLC0415 - first transaction
        ProducerIdAndEpoch,
    )

    return ProducerIdAndEpoch(producer_id, producer_epoch)


def _told(error: ErrorCode, *, is_old: bool) -> ErrorCode:
    """KIP-588: replace PRODUCER_FENCED for clients that do not know it."""
    if is_old and error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=_NONE, producer_epoch=_NONE)


def _initialized(version: int, result: ErrorCode | ProducerIdAndEpoch) -> InitProducerIdResponse:
    if isinstance(result, ErrorCode):
        return _refused(_told(result, is_old=version < 4))
    return InitProducerIdResponse(
        producer_id=result.producer_id, producer_epoch=result.producer_epoch
    )


def _single(request: AddPartitionsToTxnRequest) -> Transaction:
    """Convert a client's request to the form of later versions."""
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _added(version: int, results: list[_TransactionResult]) -> AddPartitionsToTxnResponse:
    if version >= _BATCHED_VERSION:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _written(
    request: WriteTxnMarkersRequest, outcomes: list[dict[TopicPartition, ErrorCode]]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            _MarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    _MarkerTopic(
                        name=topic.name,
                        partitions=[
                            _MarkerPartition(
                                partition_index=index,
                                error_code=outcome[TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, outcome in zip(request.markers, outcomes, strict=True)
            if outcome  # Kafka omits a marker without partitions
        ]
    )
