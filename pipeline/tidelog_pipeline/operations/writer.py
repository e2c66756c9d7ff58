"""A transactional producer whose progress is part of its transactions (KIP-98, KIP-447).

Each commit has records of the target topic and, as the offset of a group, how far the source was
read. A writer that begins with the same name fences the one before and learns where it ended. So
each record of the source comes into the topic once, whatever is killed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog_pipeline.history.client import PATIENCE_SECONDS
from tidelog_pipeline.operations.errors import OperationError
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.txns import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tidelog_protocol.records import build_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_pipeline.history.client import HistoryClient
    from tidelog_protocol.records import Record
    from tidelog_protocol.schema import Message

__all__ = ["Writer", "committed_offset"]

TIMEOUT_MS = 60_000
_GROUP, _TRANSACTION = 0, 1
_PAUSE_SECONDS = 0.05
# Before KIP-890's second part: partitions and offsets are added by requests of their own, and the
# epoch stays. All brokers since Kafka 4.0 take these, with every transaction.version.
_PRODUCE_MAX, _ADD_MAX, _END_MAX, _COMMIT_MAX = 11, 3, 4, 4
_AGAIN = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

T = TypeVar("T")


class _AgainError(Exception):
    """The answer may be another one soon."""


class Writer:
    """One lane's producer. OperationError if a broker refuses, or if another one has its name."""

    def __init__(self, client: HistoryClient, topic: str, name: str, codec: int = 0) -> None:
        """`name` is the transactional id, and the group that has the progress."""
        self._client = client
        self._topic = topic
        self._name = name
        self._codec = codec
        self._coordinators: dict[int, int] = {}
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._added: set[int] = set()

    def start(self) -> int:
        """Fence earlier writers of this name, abort what they left open; return the source's next
        offset, -1 if none was committed."""
        request = InitProducerIdRequest(
            transactional_id=self._name, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = self._on_coordinator(_TRANSACTION, request)
        self._producer = (answer.producer_id, answer.producer_epoch)
        return committed_offset(self._client, self._topic, self._name)

    def write(self, partition: int, records: Sequence[Record]) -> None:
        """Append records to a partition, as a part of the open transaction."""
        self._add_partition(partition)
        producer_id, epoch = self._producer
        sequence = self._sequences.get(partition, 0)
        batch = build_batch(
            records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        one = ProduceRequest.TopicProduceData(
            name=self._topic,
            partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(
            transactional_id=self._name, acks=-1, timeout_ms=30_000, topic_data=[one]
        )

        def ask() -> None:
            answer = self._client.ask_leader(
                self._topic, partition, request, version_max=_PRODUCE_MAX
            )
            found = answer.responses[0].partition_responses[0]
            if found.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # it came twice, is once
                _check(f"{self._topic}-{partition}", found.error_code, found.error_message)

        _patiently(ask, self._client)
        self._sequences[partition] = (sequence + len(records)) & 0x7FFFFFFF

    def commit(self, next_offset: int) -> None:
        """Commit what was written since the last commit, with the source's next offset."""
        producer_id, epoch = self._producer
        common: dict[str, Any] = {
            "transactional_id": self._name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        self._on_coordinator(_TRANSACTION, AddOffsetsToTxnRequest(group_id=self._name, **common))
        offsets = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=self._topic,
            partitions=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=next_offset
                )
            ],
        )
        request = TxnOffsetCommitRequest(group_id=self._name, topics=[offsets], **common)
        self._on_coordinator(_GROUP, request)
        self._on_coordinator(_TRANSACTION, EndTxnRequest(committed=True, **common))
        self._added.clear()

    def _add_partition(self, partition: int) -> None:
        if partition in self._added:
            return
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
            name=self._topic, partitions=[partition]
        )
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        self._on_coordinator(_TRANSACTION, request)
        self._added.add(partition)

    def _on_coordinator(self, kind: int, request: Message) -> Any:
        return _on_coordinator(self._client, self._name, kind, request)


def committed_offset(client: HistoryClient, topic: str, name: str) -> int:
    """How far the source of this name was read, -1 if nothing was committed."""
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=name,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
    )
    request = OffsetFetchRequest(groups=[asked], require_stable=True)
    answer = _on_coordinator(client, name, _GROUP, request)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


_VERSIONS_MAX = {
    AddPartitionsToTxnRequest.API_KEY: _ADD_MAX,
    EndTxnRequest.API_KEY: _END_MAX,
    TxnOffsetCommitRequest.API_KEY: _COMMIT_MAX,
    OffsetFetchRequest.API_KEY: 9,  # the last one that names topics
}


def _on_coordinator(client: HistoryClient, name: str, kind: int, request: Message) -> Any:
    """The coordinator's answer, once it is one."""

    def ask() -> Any:
        find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
        (found,) = client.ask(find).coordinators
        _check(name, found.error_code, found.error_message)
        version_max = _VERSIONS_MAX.get(request.API_KEY, 32767)
        answer = client.broker(found.node_id).ask(request, version_max=version_max)
        for code in _codes_of(answer):
            _check(name, code)
        return answer

    return _patiently(ask, client)


def _codes_of(answer: Any) -> list[int]:
    """All error codes of a coordinator's answer."""
    codes = [getattr(answer, "error_code", 0) or 0]
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes += [each.partition_error_code for each in topic.results_by_partition]
    for topic in getattr(answer, "topics", ()):
        codes += [each.error_code for each in topic.partitions]
    for group in getattr(answer, "groups", ()):
        codes += [group.error_code]
        codes += [each.error_code for topic in group.topics for each in topic.partitions]
    return codes


def _patiently(ask: Callable[[], T], client: HistoryClient) -> T:
    end = time.perf_counter() + PATIENCE_SECONDS
    pause = _PAUSE_SECONDS
    while True:
        try:
            return ask()
        except _AgainError as error:
            if time.perf_counter() > end:
                raise OperationError(str(error)) from None
        except OSError as error:
            if time.perf_counter() > end:
                raise OperationError(str(error)) from None
            client.reconnect()
        client.forget_leaders()
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


def _check(what: str, error_code: int, message: str | None = None) -> None:
    if not error_code:
        return
    name = error_name(error_code)
    if error_code in _FENCED:
        raise OperationError(f"{what}: another run writes now ({name})")
    text = f"{what}: {message or name}"
    raise _AgainError(text) if error_code in _AGAIN else OperationError(text)
