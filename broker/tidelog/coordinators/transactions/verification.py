"""Verify that a producer may begin a transaction in a partition (KIP-890).

A leader asks the coordinator before the first batch of a transaction. The guard that it took before
becomes void if the transaction ends meanwhile, or if another broker leads: the batch would begin a
transaction that never ends. Kafka's VerificationStateEntry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog_storage.types import TopicPartition

__all__ = ["Guard", "Verifications"]

# verified and not written yet; dropping the oldest makes their producers verify again
_GUARDS_MAX = 10_000


class Guard:
    """A permission to append; void unless this very object is still known at the append."""

    __slots__ = (
        "leader_epoch",
        "lowest_sequence",
        "producer_epoch",
        "producer_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        lowest_sequence: int,
    ) -> None:
        """`lowest_sequence`: that of the first batch to append, of all verified ones."""
        self.topic_partition = topic_partition
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.leader_epoch = leader_epoch
        self.lowest_sequence = lowest_sequence


class Verifications:
    """The guards of all partitions led here."""

    def __init__(self) -> None:
        self._guards: dict[tuple[TopicPartition, int], Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(
        self, partition: Partition, producer_id: int, producer_epoch: int, sequence: int
    ) -> Guard | None:
        """Return a guard for a request to the coordinator; None if the transaction has begun here.

        `sequence` is the batch's first, -1 for the offsets of a group. StorageError
        INVALID_PRODUCER_EPOCH if the log knows a later epoch.
        """
        entry = partition.log.producers.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise StorageError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the"
                f" last seen epoch {entry.producer_epoch}",
            )
        if partition.log.producers.has_open_transaction(producer_id, producer_epoch):
            return None
        key = partition.topic_partition, producer_id
        epochs = producer_epoch, partition.leader_epoch
        known = self._guards.pop(key, None)
        if len(self._guards) >= _GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        if known is None or (known.producer_epoch, known.leader_epoch) != epochs:
            known = Guard(*key, *epochs, sequence)
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        self._guards[key] = known
        return known

    def renew(self, guard: Guard) -> Guard:
        """Return the guard to continue with if the coordinator has added nothing yet and is asked
        again.

        The marker that ends the producer's last transaction may have arrived meanwhile. It already
        has the epoch of the next one (KIP-890), so `forget` took it for the end of that one.
        """
        key = guard.topic_partition, guard.producer_id
        known = self._guards.get(key)
        epochs = guard.producer_epoch, guard.leader_epoch
        if known is None or (known.producer_epoch, known.leader_epoch) < epochs:
            known = self._guards[key] = guard
        if (known.producer_epoch, known.leader_epoch) != epochs:
            return guard  # void: a newer one has taken its place
        known.lowest_sequence = min(known.lowest_sequence, guard.lowest_sequence)
        return known

    def redeem(
        self, guard: Guard, partition: Partition, sequence: int, *, begins_with_0: bool = False
    ) -> None:
        """Check the guard of a batch right before its append: StorageError INVALID_TXN_STATE if
        void.

        OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch was refused: the log itself accepts any
        sequence from an unknown producer. With `begins_with_0` such a producer must begin with 0
        (KIP-890).
        """
        key = guard.topic_partition, guard.producer_id
        if self._guards.get(key) is not guard or guard.leader_epoch != partition.leader_epoch:
            raise StorageError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction of producer {guard.producer_id}",
            )
        entry = partition.log.producers.producers.get(guard.producer_id)
        is_too_late = begins_with_0 and sequence > 0 and (entry is None or not entry.batches)
        if is_too_late or sequence > guard.lowest_sequence:
            expected = 0 if is_too_late else guard.lowest_sequence
            raise StorageError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The first batch of producer {guard.producer_id} must have sequence {expected},"
                f" not {sequence}",
            )

    def forget(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int
    ) -> None:
        """Void the guard: a marker of this epoch ends the transaction."""
        key = topic_partition, producer_id
        guard = self._guards.get(key)
        if guard is not None and guard.producer_epoch <= producer_epoch:
            del self._guards[key]
