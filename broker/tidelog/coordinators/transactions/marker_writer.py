"""Commit and abort markers at the leaders of their partitions: WriteTxnMarkers without the wire.

A marker is appended like a coordinator's record, with acks=all. Partitions of `__consumer_offsets`
belong to the group coordinator, which appends the marker itself and then keeps or drops the offsets
that waited for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.transactions.transaction import TransactionVersion
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.coordinators.transactions.markers import Marker
    from tidelog.coordinators.transactions.verification import Verifications
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager

    Outcome = dict[TopicPartition, ErrorCode]

__all__ = ["EndOfOffsets", "MarkerWriter"]


class EndOfOffsets(Protocol):
    """The group coordinator's function: append a marker to a partition of `__consumer_offsets`."""

    def __call__(
        self, index: int, marker: memoryview, on_done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the batch of the marker; `on_done` may be called before this returns."""
        ...


class MarkerWriter:
    """Appends markers to partitions led by this broker."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        verifications: Verifications,
        end_of_offsets: EndOfOffsets,
        *,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` limits the wait for in-sync replicas."""
        self._replicas = replica_manager
        self._verifications = verifications
        self._end_of_offsets = end_of_offsets
        self._timeout_ms = timeout_ms

    def write(self, markers: Sequence[Marker], on_done: Callable[[list[Outcome]], None]) -> None:
        """Write markers; report all outcomes at once, perhaps before this returns."""
        work = _Work(len(markers), on_done)
        waits: list[tuple[Partition, int]] = []
        places: list[tuple[int, TopicPartition]] = []
        for number, marker in enumerate(markers):
            for one in marker.partitions:
                partition = self._receiver(one, marker)
                if isinstance(partition, ErrorCode):
                    work.outcomes[number][one] = partition
                    continue
                if one.topic == GROUP_METADATA_TOPIC:
                    self._end_of_offsets(
                        one.partition, self._batch(marker), work.expect(number, one)
                    )
                    continue
                appended = self._append(partition, marker)
                if isinstance(appended, ErrorCode):
                    work.outcomes[number][one] = appended
                else:
                    waits.append(appended)
                    places.append((number, one))
        if waits:
            self._await(work, waits, places)
        work.all_expected()

    def _receiver(self, one: TopicPartition, marker: Marker) -> Partition | ErrorCode:
        """Return the partition of a marker and void its guards: batches verified before are too
        late."""
        partition = self._replicas.partition(one.topic, one.partition)
        if isinstance(partition, ErrorCode):
            # the partition is not here, for whatever reason
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if _is_late(marker, partition):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self._verifications.forget(one, marker.producer_id, marker.producer_epoch)
        return partition

    def _batch(self, marker: Marker) -> memoryview:
        batch = build_end_transaction_marker(
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._replicas.clock.wall_ms(),
        )
        return memoryview(bytearray(batch))

    def _append(self, partition: Partition, marker: Marker) -> tuple[Partition, int] | ErrorCode:
        try:
            now_ms = self._replicas.clock.wall_ms()
            result = partition.append(
                self._batch(marker), acks=-1, now_ms=now_ms, from_client=False
            )
        except StorageError as error:
            return error.code
        return partition, result.last_offset + 1

    def _await(
        self,
        work: _Work,
        waits: list[tuple[Partition, int]],
        places: list[tuple[int, TopicPartition]],
    ) -> None:
        heard = work.expect_all(places)
        self._replicas.appended([partition.topic_partition for partition, _ in waits])
        operation = self._replicas.await_acks(waits, self._timeout_ms, heard)
        if operation.decided:
            heard(operation.errors)


def _is_late(marker: Marker, partition: Partition) -> bool:
    """Return whether the marker belongs to the previous transaction (KIP-1228): in the second
    protocol each end has its own epoch, above that of its records. Without an open transaction it
    is a repeated marker."""
    return marker.transaction_version >= TransactionVersion.V2 and (
        partition.log.producers.has_open_transaction(marker.producer_id, marker.producer_epoch)
    )


class _Work:
    """The outcomes of one request; some come later."""

    def __init__(self, count: int, on_done: Callable[[list[Outcome]], None]) -> None:
        self.outcomes: list[Outcome] = [{} for _ in range(count)]
        self._on_done = on_done
        self._left = 1  # `all_expected`

    def expect(self, number: int, one: TopicPartition) -> Callable[[ErrorCode], None]:
        """Return the callback for the error of one partition."""
        heard = self.expect_all([(number, one)])
        return lambda error: heard([error])

    def expect_all(
        self, places: Sequence[tuple[int, TopicPartition]]
    ) -> Callable[[list[ErrorCode]], None]:
        """Return the callback that takes one error for each of these partitions, in their order."""
        self._left += 1

        def heard(errors: list[ErrorCode]) -> None:
            for (number, one), error in zip(places, errors, strict=True):
                self.outcomes[number][one] = error
            self.all_expected()

        return heard

    def all_expected(self) -> None:
        """Count one arrived outcome."""
        self._left -= 1
        if not self._left:
            self._on_done(self.outcomes)
