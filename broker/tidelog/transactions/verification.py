"""Which producers may begin a transaction in a partition: those whose coordinator agreed (KIP-890).

A leader asks the coordinator before the first batch of a transaction. The guard it took beforehand
is worthless once the transaction has ended meanwhile, or once another broker has led: then the
batch would begin a transaction that nobody ends. Kafka's VerificationStateEntry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog_storage.types import TopicPartition

__all__ = ["Guard", "Verifications"]

_GUARDS_MAX = 10_000  # verified and not written yet; the oldest go, and their producers ask again


class Guard(NamedTuple):
    """Void unless this very object is still known when the batch is appended."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    leader_epoch: int


class Verifications:
    """The guards of all partitions led here."""

    def __init__(self) -> None:
        self._guards: dict[tuple[TopicPartition, int], Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, partition: Partition, producer_id: int, producer_epoch: int) -> Guard | None:
        """A guard for a question to the coordinator; None if the transaction has begun here."""
        entry = partition.log.producers.producers.get(producer_id)
        if (
            entry is not None
            and entry.current_txn_first_offset >= 0
            and entry.producer_epoch == producer_epoch
        ):
            return None
        key = partition.topic_partition, producer_id
        guard = Guard(*key, producer_epoch, partition.leader_epoch)
        known = self._guards.pop(key, None)
        if len(self._guards) >= _GUARDS_MAX:
            del self._guards[next(iter(self._guards))]
        if known == guard:
            guard = known
        self._guards[key] = guard
        return guard

    def redeem(self, guard: Guard, partition: Partition) -> None:
        """For a batch about to be appended: StorageError INVALID_TXN_STATE if the guard is void."""
        key = guard.topic_partition, guard.producer_id
        if self._guards.get(key) is not guard or guard.leader_epoch != partition.leader_epoch:
            raise StorageError(
                ErrorCode.INVALID_TXN_STATE,
                f"Record was not part of an ongoing transaction of producer {guard.producer_id}",
            )

    def forget(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """The transaction has ended, or begun."""
        self._guards.pop((topic_partition, producer_id), None)
