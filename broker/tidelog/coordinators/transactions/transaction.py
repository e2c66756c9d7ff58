"""A transactional id in memory: its state in the log, and at most one pending change.

Pure. `TransactionValue` is what one record of `__transaction_state` holds; the `prepare_*` methods
return the next one and block further changes until the coordinator either calls `complete`, once
the log has it, or `abandon`. Kafka's TransactionMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.transactions.states import COMPLETE, PREVIOUS, TransactionState

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tidelog_storage.types import TopicPartition

__all__ = [
    "EPOCH_MAX",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Transaction",
    "TransactionValue",
    "TransactionVersion",
    "is_exhausted",
]

NO_PRODUCER_ID = NO_EPOCH = NO_TIMESTAMP = -1
EPOCH_MAX = 2**15 - 1

_NOTHING: frozenset[TopicPartition] = frozenset()


class TransactionVersion:
    """Levels of the feature `transaction.version`; from 2 every end bumps the epoch (KIP-890)."""

    V0, V1, V2 = range(3)


def is_exhausted(producer_epoch: int) -> bool:
    """Return whether clients get no further epoch: the last one is reserved for fencing."""
    return producer_epoch >= EPOCH_MAX - 1


class TransactionValue(NamedTuple):
    """The content of one record. `last_producer_epoch` is not stored: -1 after loading."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = TransactionVersion.V0


class Transaction:
    """A transactional id.

    Invariant: at most one change is pending; `value` is the state in the log, except that a fence
    of the first protocol raises the epoch before it is written (`fence_now`).
    """

    __slots__ = ("has_failed_fence", "pending", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        self.pending: TransactionState | None = None
        self.has_failed_fence = False
        """An epoch was raised in memory but its write failed, so it need not be raised again."""

    def __repr__(self) -> str:
        return f"<Transaction {self.transactional_id}: {self.value}, pending {self.pending}>"

    # -- changes ---------------------------------------------------------------------------------

    def _prepare(self, target: TransactionValue) -> TransactionValue:
        """Block other changes; the record names the previous producer id."""
        state = target.state
        assert self.pending is None, f"{self}: {state.name} while another change is pending"
        assert self.value.state in PREVIOUS[state], f"{self} cannot become {state.name}"
        assert target.producer_epoch >= 0 or state is TransactionState.DEAD
        self.pending = state
        return target._replace(previous_producer_id=self.value.producer_id)

    def complete(self, target: TransactionValue) -> None:
        """Complete the pending change: the log has it."""
        assert self.pending is target.state, f"{self} was not to become {target.state.name}"
        self.pending = None
        self.value = target

    def abandon(self) -> None:
        """Drop the pending change: the log will never have it."""
        self.pending = None

    def prepare_increment(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionValue | None:
        """Return the next epoch for a producer that starts, or continues from `expected_epoch`
        (KIP-360).

        A producer that names the epoch before the current one retries a request whose answer was
        lost. None: the producer is fenced.
        """
        value = self.value
        assert not is_exhausted(value.producer_epoch)
        epoch, last = value.producer_epoch + 1, value.producer_epoch
        if expected_epoch is None:
            last = NO_EPOCH
        elif value.producer_epoch in (NO_EPOCH, expected_epoch):
            pass
        elif expected_epoch == value.last_producer_epoch:
            epoch, last = value.producer_epoch, value.last_producer_epoch
        else:
            return None
        return self._prepare(
            value._replace(
                state=TransactionState.EMPTY,
                producer_epoch=epoch,
                last_producer_epoch=last,
                timeout_ms=timeout_ms,
                partitions=_NOTHING,
                start_ms=NO_TIMESTAMP,
                last_update_ms=now_ms,
            )
        )

    def prepare_rotation(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool
    ) -> TransactionValue:
        """Return a new producer id, because the epochs of this one are used up."""
        value = self.value
        return self._prepare(
            value._replace(
                state=TransactionState.EMPTY,
                producer_id=producer_id,
                producer_epoch=0,
                last_producer_epoch=value.producer_epoch if keep_last_epoch else NO_EPOCH,
                timeout_ms=timeout_ms,
                partitions=_NOTHING,
                start_ms=NO_TIMESTAMP,
                last_update_ms=now_ms,
            )
        )

    def prepare_fence(self) -> TransactionValue:
        """Return an epoch that fences the current producer; an abort must follow at once."""
        epoch = self.value.producer_epoch
        if not self.has_failed_fence and epoch < EPOCH_MAX:
            epoch += 1
        return self._prepare(
            self.value._replace(state=TransactionState.PREPARE_EPOCH_FENCE, producer_epoch=epoch)
        )

    def fence_now(self, producer_epoch: int) -> None:
        """Fence the old producer in memory at once, before the log has it (first protocol)."""
        self.value = self.value._replace(
            producer_epoch=producer_epoch, last_producer_epoch=NO_EPOCH
        )

    def prepare_add(
        self, partitions: AbstractSet[TopicPartition], now_ms: int, client_version: int
    ) -> TransactionValue:
        """Add partitions; the first ones start the transaction."""
        value = self.value
        is_first = value.state is not TransactionState.ONGOING
        return self._prepare(
            value._replace(
                state=TransactionState.ONGOING,
                partitions=value.partitions | partitions,
                start_ms=now_ms if is_first else value.start_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )

    def prepare_end(
        self,
        *,
        is_commit: bool,
        client_version: int,
        next_producer_id: int,
        now_ms: int,
        is_empty: bool,
    ) -> TransactionValue:
        """Decide the transaction. `is_empty`: it has no partitions, so it starts and ends now."""
        value = self.value
        epoch, last_epoch = value.producer_epoch, value.last_producer_epoch
        if client_version >= TransactionVersion.V2:
            last_epoch = epoch
            # When epochs are used up, an abort still proceeds, with the last one.
            epoch = min(epoch + 1, EPOCH_MAX)
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._prepare(
            value._replace(
                state=state,
                producer_epoch=epoch,
                last_producer_epoch=last_epoch,
                next_producer_id=next_producer_id,
                start_ms=now_ms if is_empty else value.start_ms,
                last_update_ms=now_ms,
                client_version=client_version,
            )
        )

    def prepare_complete(self, now_ms: int) -> TransactionValue:
        """Return the completed value, after all markers are written."""
        self.has_failed_fence = False
        value = self.value
        is_commit = value.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        target = value._replace(
            state=state,
            next_producer_id=NO_PRODUCER_ID,
            partitions=_NOTHING,
            last_update_ms=now_ms,
        )
        if (
            value.client_version >= TransactionVersion.V2
            and value.next_producer_id != NO_PRODUCER_ID
        ):
            target = target._replace(producer_id=value.next_producer_id, producer_epoch=0)
        return self._prepare(target)

    def prepare_dead(self) -> None:
        """Mark the id as dead: a tombstone is being written, and no change may follow."""
        self._prepare(self.value._replace(state=TransactionState.DEAD))

    # -- questions -------------------------------------------------------------------------------

    def is_idle_since(self, oldest_ms: int) -> bool:
        """Return whether no transaction is open and the id was not used since then."""
        value = self.value
        is_over = value.state in COMPLETE or value.state is TransactionState.EMPTY
        return self.pending is None and is_over and value.last_update_ms <= oldest_ms
