"""Produce (API 0): records from a client into the logs of this broker.

Behaviour. Each partition is checked and answered on its own, in request order: unknown topic, then
the acks value, internal topics, transactions, leadership, `min.insync.replicas`, then the checks of
the log. The batch goes from the receive buffer to the log unchanged; nothing here reads a record.
After all appends the parked fetches are woken. Then the response is sent (acks=1), parked until the
high watermark has passed (acks=-1), or left out (acks=0, where any error closes the connection so
that the producer notices).

A transactional batch without a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED for the
whole request, as from Kafka without an authorizer. A batch that takes long to look into is
decompressed and compressed off the loop and checked in slices, one batch of the broker at a time;
its connection waits. The first batch of a transaction in a partition,
and its connection, wait for an answer of the coordinator (`produce_gate.py`).

Version notes. 3: batches v2. 5: log start offset. 7: zstd. 8 (KIP-467): per-record errors. 9:
flexible. 10 (KIP-951): current leader and its endpoint beside NOT_LEADER_OR_FOLLOWER. 11 and 12: as
10 (transactions). 13 (KIP-516): topic ids instead of names. Below 3: advertised (KAFKA-18659),
refused by dispatch.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.api.produce_gate import ProduceGate, RefusedError, is_transactional
from tidelog.awaiting import called_back
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.batch import (
    ATTRIBUTES_LOW_POSITION,
    LENGTH_FIELD,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceResponse
from tidelog_protocol.plain_answers import (
    PRODUCE_FLEXIBLE_FROM,
    produce_body,
    produced,
    produced_fields,
)
from tidelog_storage.inspection import TooMuchAtOnceError
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.coordinators.transactions.verification import Guard
    from tidelog.network.dispatch import Deferred, Handler, RequestContext
    from tidelog.replication.delayed_answers import DelayedAnswers
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Executor
    from tidelog_protocol.messages.data import ProduceRequest
    from tidelog_protocol.schema import Buffer
    from tidelog_storage.checkpoints import TopicIdFile
    from tidelog_storage.inspection import Inspection
    from tidelog_storage.types import TopicPartition

__all__ = ["PART_MAX", "ProduceApi"]

_log = logging.getLogger(__name__)

_TopicAnswer = ProduceResponse.TopicProduceResponse
_Answer = _TopicAnswer.PartitionProduceResponse

ADMIN_CLIENT_ID = "__admin_client"  # the only client that may write to internal topics (AdminUtils)

# Errors for which Kafka returns no log start offset: it had no log, or did not read it.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)

PART_MAX = 200
"""Appends of one turn of the loop: about 15 ms."""

_RECORD_OVERHEAD_MIN = 14  # smallest record of the oldest format
_TOPIC_IDS_FROM = 13

# Shared by nearly all requests, which need no dictionary of their own.
_NO_GUARDS: dict[TopicPartition, Guard] = {}
_NOT_REFUSED: Mapping[TopicPartition, RefusedError] = {}


class _Request:
    """The state that the appends of one request share, and their outcomes.

    `topics` has name, id and one outcome a partition for each topic of the request: its part of the
    response, packed by `produced` if the batch is in the log, a message if there is an error.
    """

    __slots__ = (
        "acks",
        "failed",
        "guards",
        "internal_allowed",
        "large",
        "now_ms",
        "refused",
        "topics",
        "touched",
        "version",
        "waits",
    )

    def __init__(self, context: RequestContext, acks: int, now_ms: int) -> None:
        self.version = context.api_version
        self.acks = acks
        self.now_ms = now_ms
        self.internal_allowed = context.client_id == ADMIN_CLIENT_ID
        self.failed = False
        self.guards: dict[TopicPartition, Guard] = _NO_GUARDS
        self.refused: Mapping[TopicPartition, RefusedError] = _NOT_REFUSED
        self.topics: list[tuple[str, bytes, list[Any]]] = []
        self.large: list[_Large] = []
        self.touched: list[TopicPartition] = []
        # What acks=-1 still waits for: the partition, its offset, and the place of its outcome.
        self.waits: list[tuple[Partition, int, list[Any], int]] = []

    def answer(self) -> ProduceResponse | list[Buffer]:
        """Return the response if nothing failed: encoded, or for old clients the message."""
        if self.version >= PRODUCE_FLEXIBLE_FROM:
            return produce_body(self.version, self.topics)
        return self.message()

    def message(self) -> ProduceResponse:
        """Return the response as a message; it shares the lists of outcomes."""
        responses = []
        for name, topic_id, outcomes in self.topics:
            outcomes[:] = [_message(each) if type(each) is bytes else each for each in outcomes]
            responses.append(
                _TopicAnswer(name=name, topic_id=topic_id, partition_responses=outcomes)
            )
        return ProduceResponse(responses=responses)


class _Large(NamedTuple):
    """A batch that takes long to look into; `outcomes` has its inspection, for now."""

    inspection: Inspection
    partition: Partition
    number: int
    outcomes: list[Any]


def _message(outcome: bytes) -> _Answer:
    index, base_offset, log_append_time, log_start_offset = produced_fields(outcome)
    return _Answer(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=log_append_time,
        log_start_offset=log_start_offset,
    )


class ProduceApi:
    """Handler of Produce."""

    def __init__(
        self, replica_manager: ReplicaManager, transactions: Transactions, executor: Executor
    ) -> None:
        self._replicas = replica_manager
        self._executor = executor
        self._inspecting = asyncio.Lock()  # a batch takes up to 256 MiB
        self._gate = ProduceGate(transactions)
        self._counts = replica_manager.counts

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.PRODUCE: self.produce}

    def produce(
        self, context: RequestContext, request: ProduceRequest
    ) -> (
        ProduceResponse
        | list[Buffer]
        | Deferred
        | Coroutine[Any, Any, ProduceResponse | list[Buffer] | None]
        | None
    ):
        """Answer a Produce request: append, wake, answer or park."""
        work = _Request(context, request.acks, self._replicas.clock.wall_ms())
        is_transactional = _has_transactional(request)
        if is_transactional and request.transactional_id is None:
            return self._refuse_all(
                context, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
        if _width(request) > PART_MAX:
            _take_from_the_receive_buffer(request)
            return self._append_in_turns(context, request, work)
        if is_transactional:
            try:
                batches = self._transactional_batches(_batches_of(request), work.version)
                work.guards, work.refused = self._gate.guards(batches, work.version)
            except StorageError as error:
                return self._refuse_all(context, request, error.code, error.message)
            if work.guards:
                _take_from_the_receive_buffer(request)
                return self._ask_and_append(context, request, work)
        self._append_each(work, request)
        if work.large:
            return self._inspect_and_append(context, request, work)
        failure = self._appended(context, work)
        return (
            self._park(context, work, failure, request.timeout_ms)
            if work.waits
            else _answer_now(work, failure)
        )

    async def _ask_and_append(
        self, context: RequestContext, request: ProduceRequest, work: _Request
    ) -> ProduceResponse | list[Buffer] | None:
        """Append a transaction's first batches once its coordinator has agreed."""
        assert request.transactional_id is not None
        refused = await self._gate.ask(request.transactional_id, work.guards, work.version)
        work.refused = {**work.refused, **refused}
        work.now_ms = self._replicas.clock.wall_ms()
        self._append_each(work, request)
        return await self._inspect_and_append(context, request, work)

    async def _append_in_turns(
        self, context: RequestContext, request: ProduceRequest, work: _Request
    ) -> ProduceResponse | list[Buffer] | None:
        """Append to thousands of partitions; others are served meanwhile, also while the first
        append to a log waits for the disk. A transaction might end between two turns: each part is
        asked for by itself."""
        asked = []
        for topic in request.topic_data:
            outcomes: list[Any] = []
            work.topics.append((topic.name, topic.topic_id, outcomes))
            asked += [(topic, data, outcomes) for data in topic.partition_data]
        parts = [asked[start : start + PART_MAX] for start in range(0, len(asked), PART_MAX)]
        if request.transactional_id is not None:
            try:
                await self._check_producers(parts, work.version)
            except StorageError as error:
                return self._refuse_all(context, request, error.code, error.message)
        for part in parts:
            found = [self._partition(topic, data.index, work.version) for topic, data, _ in part]
            new = [
                each.log.id_file
                for each in found
                if not isinstance(each, ErrorCode) and not each.log.log_end_offset
            ]
            await (self._executor.run(_sync, new) if new else asyncio.sleep(0))
            if request.transactional_id is not None:
                batches = self._transactional_batches(part, work.version)
                await self._ask(request.transactional_id, work, batches)
            for topic, data, outcomes in part:
                partition = self._partition(topic, data.index, work.version)
                outcomes.append(self._append(work, partition, data.index, data.records, outcomes))
            self._replicas.appended(work.touched)
            work.touched = []
        return await self._inspect_and_append(context, request, work)

    async def _check_producers(self, parts: Sequence[Sequence[Any]], version: int) -> None:
        """StorageError if the transactional batches have several producers, before any of them is
        appended."""
        producer = None
        for part in parts:
            batches = self._transactional_batches(part, version)
            producer = self._gate.producer_of(batches, version, producer)
            await asyncio.sleep(0)

    async def _ask(
        self,
        transactional_id: str,
        work: _Request,
        batches: Iterator[tuple[Partition, memoryview]],
    ) -> None:
        """Have the coordinator agree to those of these batches that are the first ones of their
        transaction."""
        guards, refused = self._gate.guards(batches, work.version)
        work.refused = {**work.refused, **refused}
        if guards:
            refused = await self._gate.ask(transactional_id, guards, work.version)
            work.guards = {**work.guards, **guards}
            work.refused = {**work.refused, **refused}
            work.now_ms = self._replicas.clock.wall_ms()

    async def _inspect_and_append(
        self, context: RequestContext, request: ProduceRequest, work: _Request
    ) -> ProduceResponse | list[Buffer] | None:
        """Append the batches that take long to look into, then answer. The others are in the log
        already, and parked fetches get them."""
        if work.large and work.touched:
            self._replicas.appended(work.touched)
            work.touched = []
        for large in work.large:
            await self._inspect(large.inspection)
            await self._ask_again(request, work, large)
            work.now_ms = self._replicas.clock.wall_ms()
            outcome = self._append(
                work,
                large.partition,
                large.number,
                large.inspection.buffer,
                large.outcomes,
                inspection=large.inspection,
            )
            large.outcomes[large.outcomes.index(large.inspection)] = outcome
        failure = self._appended(context, work)
        if not work.waits:
            return _answer_now(work, failure)

        def begin(on_done: Callable[[ProduceResponse | list[Buffer]], None]) -> None:
            operation = self._await_acks(work, failure, request.timeout_ms, on_done)
            if operation.decided:
                on_done(self._settled(work, failure, operation.errors))

        return await called_back(begin)

    async def _inspect(self, inspection: Inspection) -> None:
        """Look into a large batch without a stall of others."""
        async with self._inspecting:
            await self._executor.run(inspection.decompress)
            for _ in inspection.check():
                await asyncio.sleep(0)
            await self._executor.run(inspection.recompress)

    async def _ask_again(self, request: ProduceRequest, work: _Request, large: _Large) -> None:
        """Have the coordinator agree to a batch of a transaction: its earlier answer is old, and
        the transaction may have ended."""
        records = large.inspection.buffer
        if request.transactional_id is None or not is_transactional(records):
            return
        await self._ask(request.transactional_id, work, iter([(large.partition, records)]))

    def _transactional_batches(
        self, asked: Iterable[Sequence[Any]], version: int
    ) -> Iterator[tuple[Partition, memoryview]]:
        for topic, data, *_ in asked:
            records = data.records
            if not isinstance(records, memoryview) or not is_transactional(records):
                continue
            partition = self._partition(topic, data.index, version)
            if not isinstance(partition, ErrorCode) and not partition.is_internal:
                yield partition, records

    def _partition(self, topic: Any, index: int, version: int) -> Partition | ErrorCode:
        if version >= _TOPIC_IDS_FROM:
            return self._replicas.partition_by_id(topic.topic_id, index)
        return self._replicas.partition(topic.name, index)

    def _appended(self, context: RequestContext, work: _Request) -> ProduceResponse | None:
        """Complete the parked fetches. Return the response as a message if a partition
        failed."""
        if work.touched:
            self._replicas.appended(work.touched)
        response = None
        if work.failed:
            response = work.message()
            self._log_failures(context, response)
            if work.acks == 0:
                context.close()
            elif work.version >= 10:
                self._add_leaders(context, response, by_id=work.version >= _TOPIC_IDS_FROM)
        return response

    def _append_each(self, work: _Request, request: ProduceRequest) -> None:
        """Append every partition's batch; one failure does not stop the others."""
        for topic in request.topic_data:
            outcomes: list[Any] = []
            work.topics.append((topic.name, topic.topic_id, outcomes))
            for data in topic.partition_data:
                partition = self._partition(topic, data.index, work.version)
                outcomes.append(self._append(work, partition, data.index, data.records, outcomes))

    def _append(
        self,
        work: _Request,
        partition: Partition | ErrorCode,
        index: int,
        records: object,
        outcomes: list[Any],
        *,
        inspection: Inspection | None = None,
    ) -> bytes | _Answer | Inspection:
        """Append one partition's batch, and return its outcome, for `outcomes`; of a batch that
        takes long to look into its inspection."""
        if isinstance(partition, ErrorCode):
            return self._failure(work, index, partition)
        acks = work.acks
        try:
            if not isinstance(records, memoryview):
                raise StorageError(ErrorCode.INVALID_RECORD)
            if acks not in (-1, 0, 1):
                raise StorageError(ErrorCode.INVALID_REQUIRED_ACKS)
            if partition.is_internal and not work.internal_allowed:
                raise StorageError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if work.guards or work.refused:
                self._redeem(work, partition, records)
            result = partition.append(
                records,
                acks=acks,
                now_ms=work.now_ms,
                produce_version=work.version,
                inspection=inspection,
            )
        except StorageError as error:
            return self._refused(work, index, partition, records, error)
        except TooMuchAtOnceError as error:
            error.inspection.keep_own_copy()
            work.large.append(_Large(error.inspection, partition, index, outcomes))
            return error.inspection
        first_offset, last_offset, log_append_time, log_start_offset, _ = result
        work.touched.append(partition.topic_partition)
        if self._counts is not None:
            topic = partition.topic_partition.topic
            self._counts.messages_in.by_topic[topic] += last_offset - first_offset + 1
            self._counts.bytes_in.by_topic[topic] += len(records)
        if acks == -1 and partition.log.high_watermark <= last_offset:
            slot = len(outcomes) if inspection is None else outcomes.index(inspection)
            work.waits.append((partition, last_offset + 1, outcomes, slot))
        return produced(index, first_offset, log_append_time, log_start_offset)

    def _redeem(self, work: _Request, partition: Partition, records: memoryview) -> None:
        """Apply the coordinator's answer for this partition, if it was asked."""
        refusal = work.refused.get(partition.topic_partition)
        if refusal is not None:
            raise refusal
        guard = work.guards.get(partition.topic_partition)
        if guard is not None:
            self._gate.redeem(guard, partition, records, work.version)

    def _failure(
        self, work: _Request, index: int, error: ErrorCode, message: str | None = None
    ) -> _Answer:
        work.failed = True
        return _Answer(
            index=index,
            error_code=error,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=-1,
            error_message=message,
        )

    def _refused(
        self,
        work: _Request,
        index: int,
        partition: Partition,
        records: object,
        error: StorageError,
    ) -> _Answer:
        if error.code is ErrorCode.INVALID_RECORD and not _is_one_batch(records):
            return self._failure(work, index, error.code)  # Kafka does not read the log
        answer = self._storage_failure(work, index, partition, error)
        if error.code is ErrorCode.CORRUPT_MESSAGE and not _is_readable(records):
            answer.error_message = error.message
        return answer

    def _storage_failure(
        self, work: _Request, index: int, partition: Partition, error: StorageError
    ) -> _Answer:
        answer = self._failure(work, index, error.code)
        is_refusal = isinstance(error, RefusedError)
        if error.code not in _WITHOUT_LOG_START and not is_refusal:
            answer.log_start_offset = partition.log.log_start_offset
        if error.record_errors or is_refusal:
            answer.error_message = error.message
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in error.record_errors
        ]
        return answer

    def _refuse_all(
        self,
        context: RequestContext,
        request: ProduceRequest,
        error: ErrorCode,
        message: str | None = None,
    ) -> ProduceResponse | None:
        """Answer every partition with one error; append nothing."""
        work = _Request(context, request.acks, 0)
        response = ProduceResponse(
            responses=[
                _TopicAnswer(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        self._failure(work, data.index, error, message)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
        self._log_failures(context, response)
        if request.acks == 0:
            context.close()
            return None
        return response

    def _park(
        self,
        context: RequestContext,
        work: _Request,
        response: ProduceResponse | None,
        timeout_ms: int,
    ) -> ProduceResponse | list[Buffer] | Deferred:
        """Wait for the high watermarks (acks=-1), or for the client's timeout.

        `response` is set already if some other partition has failed.
        """

        def on_done(answer: ProduceResponse | list[Buffer]) -> None:
            deferred.complete(answer)

        operation = self._await_acks(work, response, timeout_ms, on_done)
        if operation.decided:
            return self._settled(work, response, operation.errors)
        deferred = context.defer(
            on_cancel=lambda: self._replicas.produce_purgatory.cancel(operation)
        )
        return deferred

    def _await_acks(
        self,
        work: _Request,
        response: ProduceResponse | None,
        timeout_ms: int,
        on_done: Callable[[ProduceResponse | list[Buffer]], None],
    ) -> DelayedAnswers:
        return self._replicas.await_acks(
            [(partition, offset) for partition, offset, _, _ in work.waits],
            timeout_ms,
            lambda errors: on_done(self._settled(work, response, errors)),
        )

    def _settled(
        self, work: _Request, response: ProduceResponse | None, errors: list[ErrorCode]
    ) -> ProduceResponse | list[Buffer]:
        """Return the response after the wait."""
        if response is None and not any(errors):
            return work.answer()
        message = work.message() if response is None else response
        for (_, _, outcomes, slot), error in zip(work.waits, errors, strict=True):
            outcomes[slot].error_code = error
        return message

    def _add_leaders(
        self, context: RequestContext, response: ProduceResponse, *, by_id: bool
    ) -> None:
        """KIP-951: add the leader and its endpoint to NOT_LEADER_OR_FOLLOWER."""
        image = self._replicas.image
        assert image is not None
        nodes = {}
        for topic in response.responses:
            name = image.topic_names.get(topic.topic_id) if by_id else topic.name
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                state = None if name is None else image.partition(name, answer.index)
                if state is not None:
                    answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
                        leader_id=state.leader, leader_epoch=state.leader_epoch
                    )
                    nodes[state.leader] = image.brokers.get(state.leader)
        response.node_endpoints = [
            ProduceResponse.NodeEndpoint(
                node_id=node.node_id, host=address[0], port=address[1], rack=node.rack
            )
            for node in nodes.values()
            if node is not None and (address := node.address(context.listener)) is not None
        ]

    def _log_failures(self, context: RequestContext, response: ProduceResponse) -> None:
        level = logging.DEBUG
        if _log.isEnabledFor(level):
            for topic in response.responses:
                for answer in topic.partition_responses:
                    if answer.error_code:
                        _log.log(
                            level,
                            "Produce from %s to %s-%d failed: %s",
                            context.client_id,
                            topic.name or topic.topic_id.hex(),
                            answer.index,
                            ErrorCode(answer.error_code).name,
                        )


def _answer_now(
    work: _Request, failure: ProduceResponse | None
) -> ProduceResponse | list[Buffer] | None:
    """Return the response if no replica is awaited; `failure` is the one with errors."""
    if work.acks == 0:
        return None
    return work.answer() if failure is None else failure


def _sync(files: Sequence[TopicIdFile]) -> None:
    for file in files:
        with suppress(OSError):  # of which the append will hear, too
            file.sync()


def _batches_of(request: ProduceRequest) -> Iterator[tuple[Any, Any]]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield topic, data


def _width(request: ProduceRequest) -> int:
    """Return the number of partitions, or of topics if they are more."""
    topics = request.topic_data
    if len(topics) == 1:
        return len(topics[0].partition_data)
    return max(len(topics), sum(len(topic.partition_data) for topic in topics))


def _has_transactional(request: ProduceRequest) -> bool:
    """Return whether any batch is transactional."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_LOW_POSITION
                and records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT  # type: ignore[operator]
            ):
                return True
    return False


def _take_from_the_receive_buffer(request: ProduceRequest) -> None:
    """Copy the records of a request that waits, before the receive buffer is used again."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = memoryview(bytearray(data.records))


def _is_one_batch(records: object) -> bool:
    """Return whether the bytes are exactly one batch of format version 2."""
    return (
        isinstance(records, memoryview)
        and len(records) > ATTRIBUTES_LOW_POSITION
        and records[MAGIC_POSITION] == MAGIC
        and int.from_bytes(records[LENGTH_FIELD], "big") + LENGTH_OVERHEAD == len(records)
    )


def _is_readable(records: object) -> bool:
    """Return whether size and format of the first batch are valid in any format of Kafka."""
    return (
        isinstance(records, memoryview)
        and len(records) > MAGIC_POSITION
        and records[MAGIC_POSITION] <= MAGIC
        and int.from_bytes(records[LENGTH_FIELD], "big", signed=True) >= _RECORD_OVERHEAD_MIN
    )
