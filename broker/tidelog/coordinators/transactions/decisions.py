"""A coordinator's decisions on requests: an error, or the change to write first. Pure.

Each function takes one transactional id and returns an `ErrorCode` (NONE: nothing to write) or the
value to append, with the change pending. The order of the checks is that of Kafka's
TransactionCoordinator, so that clients get the same one of two errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.transactions.states import COMPLETE, PREPARED, TransactionState
from tidelog.coordinators.transactions.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionValue,
    TransactionVersion,
    is_exhausted,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from tidelog.coordinators.transactions.transaction import Transaction
    from tidelog_storage.types import TopicPartition

    Decision = ErrorCode | TransactionValue

__all__ = [
    "Ending",
    "ProducerIdAndEpoch",
    "add_partitions",
    "complete_transaction",
    "end_transaction",
    "fence",
    "init_producer_id",
    "verify_partitions",
]

_S = TransactionState


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch in a request."""

    producer_id: int
    producer_epoch: int


class Ending(NamedTuple):
    """A request to end a transaction; `is_from_client` is False for timeouts and fencing."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    is_from_client: bool
    client_version: int

    @property
    def has_bump(self) -> bool:
        """Return whether the end bumps the epoch (KIP-890)."""
        return self.client_version >= TransactionVersion.V2


def init_producer_id(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """Return the next epoch. A value in PREPARE_EPOCH_FENCE means: abort the open transaction
    first."""
    value = transaction.value
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _may_go_on(value, expected):
        return ErrorCode.PRODUCER_FENCED
    if value.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value.state is _S.ONGOING:
        return transaction.prepare_fence()
    expected_epoch = None if expected is None else expected.producer_epoch
    if not is_exhausted(value.producer_epoch):
        target = transaction.prepare_increment(timeout_ms, expected_epoch, now_ms)
    elif expected_epoch in (None, value.producer_epoch):
        target = transaction.prepare_rotation(
            new_producer_id(), timeout_ms, now_ms, keep_last_epoch=expected is not None
        )
    else:
        target = None
    return target or ErrorCode.PRODUCER_FENCED


def _may_go_on(value: TransactionValue, expected: ProducerIdAndEpoch) -> bool:
    """Return whether a producer that names this id may continue (KIP-360); its epoch is checked
    later."""
    return (
        value.producer_epoch == NO_EPOCH  # just created: an earlier attempt failed with an error
        or expected.producer_id == value.producer_id
        # A retry, after the answer with the next id was lost.
        or (
            expected.producer_id == value.previous_producer_id
            and is_exhausted(expected.producer_epoch)
        )
    )


def add_partitions(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: AbstractSet[TopicPartition],
    now_ms: int,
    client_version: int,
) -> Decision:
    """Decide AddPartitionsToTxn and AddOffsetsToTxn."""
    value = transaction.value
    # Checked first: else a request with a rotated id is fenced before the rotation is written.
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _stranger(value, producer)
    if error is not None:
        return error
    if value.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value.state is _S.ONGOING and partitions <= value.partitions:
        return ErrorCode.NONE
    return transaction.prepare_add(partitions, now_ms, client_version)


def verify_partitions(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    partitions: AbstractSet[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return whether a leader may append for this producer (KIP-890); adds nothing."""
    value = transaction.value
    error = _stranger(value, producer)
    if error is None and value.state in PREPARED:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not None:
        return dict.fromkeys(partitions, error)
    return {
        one: ErrorCode.NONE if one in value.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for one in partitions
    }


def _stranger(value: TransactionValue, producer: ProducerIdAndEpoch) -> ErrorCode | None:
    if value.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if value.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return None


def fence(transaction: Transaction) -> TransactionValue | None:
    """Begin to abort a timed-out transaction; None if another change came first."""
    if transaction.pending is not None or transaction.value.state is not _S.ONGOING:
        return None
    return transaction.prepare_fence()


def end_transaction(
    transaction: Transaction, ending: Ending, now_ms: int, new_producer_id: Callable[[], int]
) -> Decision:
    """Decide EndTxn, and the coordinator's own aborts.

    NONE: it already ended this way (the answer was lost).
    """
    if ending.has_bump:
        return _end_with_bump(transaction, ending, now_ms, new_producer_id)
    return _end(transaction, ending, now_ms)


def _end(transaction: Transaction, ending: Ending, now_ms: int) -> Decision:
    """End by the first protocol: the epoch stays, so a retry looks like its first request."""
    value, producer = transaction.value, ending.producer
    if value.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_other = ending.is_from_client and producer.producer_epoch != value.producer_epoch
    if is_other or producer.producer_epoch < value.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    is_fence = transaction.pending is _S.PREPARE_EPOCH_FENCE
    if transaction.pending is not None and not is_fence:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value.state is not _S.ONGOING:
        return _already(value.state, is_commit=ending.is_commit)
    if is_fence and not ending.is_commit:
        transaction.abandon()
        transaction.fence_now(producer.producer_epoch)
    return transaction.prepare_end(
        is_commit=ending.is_commit,
        client_version=TransactionVersion.V0,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
        is_empty=False,
    )


def _already(state: TransactionState, *, is_commit: bool) -> ErrorCode:
    """NONE if the transaction already ended this way, CONCURRENT_TRANSACTIONS while it is
    ending."""
    if state is (_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT):
        return ErrorCode.NONE
    if state is (_S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _end_with_bump(
    transaction: Transaction, ending: Ending, now_ms: int, new_producer_id: Callable[[], int]
) -> Decision:
    """End by the second protocol (KIP-890): a retry has the epoch before the current one."""
    value, producer = transaction.value, ending.producer
    is_fence = transaction.pending is _S.PREPARE_EPOCH_FENCE
    is_overflow_retry = (
        not is_fence
        and value.previous_producer_id == producer.producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and value.producer_epoch == 0
    )
    is_bump_retry = not is_fence and value.producer_epoch == producer.producer_epoch + 1
    is_retry = is_bump_retry or is_overflow_retry
    # Checked first: the producer may end its next transaction before the markers are written.
    if transaction.pending is not None and not is_fence:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value.producer_id != producer.producer_id and not is_overflow_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not _is_valid_epoch(value, ending, is_fence=is_fence, is_retry=is_retry):
        return ErrorCode.PRODUCER_FENCED
    is_empty = value.state is not _S.ONGOING
    if is_empty and (value.state in PREPARED or is_retry):
        return _already(value.state, is_commit=ending.is_commit)
    if is_empty and ending.is_commit:  # only an abort may end an empty transaction
        return ErrorCode.INVALID_TXN_STATE
    if is_fence:
        # The epoch rises once, with the abort (KAFKA-19367).
        transaction.abandon()
    next_id = new_producer_id() if is_exhausted(value.producer_epoch) else NO_PRODUCER_ID
    return transaction.prepare_end(
        is_commit=ending.is_commit,
        client_version=ending.client_version,
        next_producer_id=next_id,
        now_ms=now_ms,
        is_empty=is_empty,
    )


def _is_valid_epoch(
    value: TransactionValue, ending: Ending, *, is_fence: bool, is_retry: bool
) -> bool:
    epoch, present = ending.producer.producer_epoch, value.producer_epoch
    if is_fence:
        return epoch == present or (not ending.is_from_client and epoch > present)
    if value.state in PREPARED:
        return present == epoch + 1
    if value.state in COMPLETE:
        return is_retry or epoch == present
    return epoch == present


def complete_transaction(
    transaction: Transaction, producer: ProducerIdAndEpoch, *, is_commit: bool, now_ms: int
) -> Decision:
    """Return the value to write after all markers, right after the decision."""
    value = transaction.value
    if value.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if value.producer_epoch - producer.producer_epoch not in (0, 1):
        return ErrorCode.PRODUCER_FENCED
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if value.state is not (_S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT):
        return ErrorCode.INVALID_TXN_STATE
    return transaction.prepare_complete(now_ms)
