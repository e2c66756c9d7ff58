"""What a coordinator answers to a producer: an error, or the change to write first. Pure.

Each function looks at one transactional id and gives an `ErrorCode` (NONE: there is nothing to
write) or the value to append, with the change pending. The order of the checks is that of Kafka's
TransactionCoordinator: clients see which of two errors comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.transactions.states import COMPLETE, PREPARED, TransactionState
from tidelog.transactions.transaction import (
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

    from tidelog.transactions.transaction import Transaction
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
    """What a producer says it is."""

    producer_id: int
    producer_epoch: int


class Ending(NamedTuple):
    """A request to end a transaction; `is_from_client` False for time-outs and fencing."""

    producer: ProducerIdAndEpoch
    is_commit: bool
    is_from_client: bool
    client_version: int


def init_producer_id(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """The next epoch. A value in PREPARE_EPOCH_FENCE: abort what is open first, and say so."""
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
    """Whether a producer that names an id may be this one (KIP-360); its epoch is judged later."""
    return (
        value.producer_epoch == NO_EPOCH  # just made: the id was given up by an error before
        or expected.producer_id == value.producer_id
        # A repetition, after the answer with the id that followed was lost.
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
    """AddPartitionsToTxn and AddOffsetsToTxn."""
    value = transaction.value
    # First, or the first request with a rotated id would be fenced before its rotation is written.
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
    """Whether a leader may append for this producer (KIP-890): nothing is added."""
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
    """Begin to abort a transaction that ran out of time; None if something else came first."""
    if transaction.pending is not None or transaction.value.state is not _S.ONGOING:
        return None
    return transaction.prepare_fence()


def end_transaction(
    transaction: Transaction, ending: Ending, now_ms: int, new_producer_id: Callable[[], int]
) -> Decision:
    """EndTxn, and the coordinator's own aborts.

    NONE: it was ended like this already (the answer got lost).
    """
    if ending.client_version >= TransactionVersion.V2:
        return _end_with_bump(transaction, ending, now_ms, new_producer_id)
    return _end(transaction, ending, now_ms)


def _end(transaction: Transaction, ending: Ending, now_ms: int) -> Decision:
    """First protocol: the epoch stays, so a repetition looks like the request it repeats."""
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
    """Ending what is not ongoing: fine if it ended that way, in time if it is about to."""
    if state is (_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT):
        return ErrorCode.NONE
    if state is (_S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _end_with_bump(
    transaction: Transaction, ending: Ending, now_ms: int, new_producer_id: Callable[[], int]
) -> Decision:
    """Second protocol (KIP-890): a repetition carries the epoch before the present one."""
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
    if value.producer_id != producer.producer_id and not is_overflow_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not _is_valid_epoch(value, ending, is_fence=is_fence, is_retry=is_retry):
        return ErrorCode.PRODUCER_FENCED
    if transaction.pending is not None and not is_fence:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_empty = value.state is not _S.ONGOING
    if is_empty and (value.state in PREPARED or is_retry):
        return _already(value.state, is_commit=ending.is_commit)
    if is_empty and ending.is_commit:  # only an abort may end what holds nothing
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
    """What to write once all markers are, right after the decision was written."""
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
