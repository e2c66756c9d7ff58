"""Commit and abort markers at the leaders of their partitions: WriteTxnMarkers without the wire.

A marker is appended like a coordinator's record, with acks=all. Partitions of `__consumer_offsets`
belong to the group coordinator, which appends the marker itself and then keeps or drops the offsets
that waited for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import all_of, answer_of
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC
from tidelog.coordinators.transactions.transaction import TransactionVersion
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from tidelog.coordinators.transactions.markers import Marker
    from tidelog.coordinators.transactions.verification import Verifications
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager

    Outcome = dict[TopicPartition, ErrorCode]
    EndOfOffsets = Callable[[int, memoryview], Coroutine[Any, Any, ErrorCode]]

__all__ = ["MarkerWriter"]


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
        """`end_of_offsets` is the group coordinator's, for partitions of `__consumer_offsets`;
        `timeout_ms` limits the wait for in-sync replicas."""
        self._replicas = replica_manager
        self._verifications = verifications
        self._end_of_offsets = end_of_offsets
        self._timeout_ms = timeout_ms

    async def write(self, markers: Sequence[Marker]) -> list[Outcome]:
        """Write markers (work for `awaiting.drive`); return the outcome of each, in their order."""
        outcomes: list[Outcome] = [{} for _ in markers]
        await all_of(self._writes(markers, outcomes))
        return outcomes

    def _writes(
        self, markers: Sequence[Marker], outcomes: Sequence[Outcome]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Append the markers; yield what there is to wait for."""
        waits: list[tuple[Partition, int]] = []
        places: list[tuple[Outcome, TopicPartition]] = []
        for marker, outcome in zip(markers, outcomes, strict=True):
            for one in marker.partitions:
                partition = self._receiver(one, marker)
                if isinstance(partition, ErrorCode):
                    outcome[one] = partition
                    continue
                if one.topic == GROUP_METADATA_TOPIC:
                    yield self._end(one, marker, outcome)
                    continue
                appended = self._append(partition, marker)
                if isinstance(appended, ErrorCode):
                    outcome[one] = appended
                else:
                    waits.append(appended)
                    places.append((outcome, one))
        if waits:
            yield self._committed(waits, places)

    async def _end(self, one: TopicPartition, marker: Marker, outcome: Outcome) -> None:
        outcome[one] = await self._end_of_offsets(one.partition, self._batch(marker))

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

    async def _committed(
        self,
        waits: list[tuple[Partition, int]],
        places: list[tuple[Outcome, TopicPartition]],
    ) -> None:
        """Wait until the in-sync replicas have the markers appended here."""
        self._replicas.appended([partition.topic_partition for partition, _ in waits])
        errors = await answer_of(partial(self._begin_wait, waits))
        for (outcome, one), error in zip(places, errors, strict=True):
            outcome[one] = error

    def _begin_wait(
        self, waits: list[tuple[Partition, int]], on_done: Callable[[list[ErrorCode]], None]
    ) -> None:
        operation = self._replicas.await_acks(waits, self._timeout_ms, on_done)
        if operation.decided:
            on_done(operation.errors)


def _is_late(marker: Marker, partition: Partition) -> bool:
    """Return whether the marker belongs to the previous transaction (KIP-1228): in the second
    protocol each end has its own epoch, above that of its records. Without an open transaction it
    is a repeated marker."""
    return marker.transaction_version >= TransactionVersion.V2 and (
        partition.log.producers.has_open_transaction(marker.producer_id, marker.producer_epoch)
    )
