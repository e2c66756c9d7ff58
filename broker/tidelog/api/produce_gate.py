"""Check that a partition is part of the transaction before a batch is appended (KIP-890).

The leader asks the transaction's coordinator before the first batch of a transaction; from Produce
12 on it has the coordinator add the partition; before, it only verifies that the producer did.
While the transaction is open here, batches pass without a check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.batch import (
    ATTRIBUTES_LOW_POSITION,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    read_header,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.coordinators.transactions.verification import Guard
    from tidelog.replication.partition import Partition
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.types import TopicPartition

__all__ = ["ProduceGate", "RefusedError", "is_transactional"]

_ABORTABLE_VERSION = 11
_IMPLICIT_VERSION = 12

_UNVERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: "
# Clients retry NOT_ENOUGH_REPLICAS without asking for metadata; older ones don't retry these.
_RETRIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def is_transactional(records: object) -> bool:
    """Return whether the (first) batch has the transactional bit; False without a whole header."""
    return (
        isinstance(records, memoryview)
        and len(records) > ATTRIBUTES_LOW_POSITION
        and bool(records[ATTRIBUTES_LOW_POSITION] & TRANSACTIONAL_BIT)
    )


class RefusedError(StorageError):
    """A refusal by the coordinator, or instead of asking it; it precedes the checks of the log."""


class ProduceGate:
    """Decides which transactional batches may be appended."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def guards(
        self, batches: Iterable[tuple[Partition, memoryview]], version: int
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, RefusedError]]:
        """Return a guard for each partition whose transaction has not begun here; `ask` about
        those. Also those whose log knows a later epoch of the producer.

        StorageError INVALID_PRODUCER_ID_MAPPING if a request has several producers.
        """
        guards: dict[TopicPartition, Guard] = {}
        refused: dict[TopicPartition, RefusedError] = {}
        producer = None
        for partition, header in self._to_verify(batches, version):
            producer = _same_producer(header, producer)
            try:
                guard = self._transactions.verifications.begin(
                    partition, *producer, header.base_sequence
                )
            except StorageError as error:
                refused[partition.topic_partition] = RefusedError(error.code)
                continue
            if guard is not None:
                guards[partition.topic_partition] = guard
        return guards, refused

    def producer_of(
        self,
        batches: Iterable[tuple[Partition, memoryview]],
        version: int,
        producer: tuple[int, int] | None,
    ) -> tuple[int, int] | None:
        """Return the producer id and epoch of these batches, or the given ones. StorageError as by
        `guards` if there are several."""
        for _, header in self._to_verify(batches, version):
            producer = _same_producer(header, producer)
        return producer

    def _to_verify(
        self, batches: Iterable[tuple[Partition, memoryview]], version: int
    ) -> Iterator[tuple[Partition, BatchHeader]]:
        is_verifying = self._transactions.config.transaction_partition_verification_enable
        if version < _IMPLICIT_VERSION and not is_verifying:
            return
        for partition, records in batches:
            if len(records) < HEADER_BYTES or not partition.is_leader:
                continue  # the append reports the error
            header = read_header(records)
            if header.has_producer_id:  # Kafka's ReplicaManager verifies those of producers
                yield partition, header

    async def ask(
        self, transactional_id: str, guards: dict[TopicPartition, Guard], version: int
    ) -> dict[TopicPartition, RefusedError]:
        """Return the Produce errors of partitions that may not be written.

        A guard renewed meanwhile replaces the old one.
        """
        from tidelog.coordinators.transactions.decisions import (  # noqa: PLC0415 - first transaction
            ProducerIdAndEpoch,
        )

        guard = next(iter(guards.values()))

        def again() -> None:
            for one, each in guards.items():
                guards[one] = self._transactions.verifications.renew(each)

        outcome = await self._transactions.add_partitions(
            transactional_id,
            ProducerIdAndEpoch(guard.producer_id, guard.producer_epoch),
            guards.keys(),
            verify_only=version < _IMPLICIT_VERSION,
            again=again,
        )
        refused = {}
        for one in guards:
            error = outcome.get(one, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error is not ErrorCode.NONE:
                refused[one] = _refusal(error, version)
        return refused

    def redeem(self, guard: Guard, partition: Partition, records: memoryview, version: int) -> None:
        """Check the guard right before the append: StorageError if the transaction has ended
        meanwhile, or if earlier batches of the producer are missing."""
        sequence = read_header(records).base_sequence
        self._transactions.verifications.redeem(
            guard, partition, sequence, begins_with_0=version >= _IMPLICIT_VERSION
        )


def _same_producer(header: BatchHeader, producer: tuple[int, int] | None) -> tuple[int, int]:
    """Return the producer id and epoch of a batch; StorageError if they are not these."""
    own = header.producer_id, header.producer_epoch
    if producer not in (None, own):
        raise StorageError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )
    return own


def _refusal(error: ErrorCode, version: int) -> RefusedError:
    if error is ErrorCode.PRODUCER_FENCED:
        return RefusedError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.INVALID_TXN_STATE:
        return RefusedError(error, "Partition was not added to the transaction")
    is_busy = error is ErrorCode.CONCURRENT_TRANSACTIONS and version < _IMPLICIT_VERSION
    if is_busy or error in _RETRIED:
        return RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, _UNVERIFIED + error.name)
    return RefusedError(error)
