"""The operations of requests on partitions of this broker: append, read, delete records.

It owns the order "append to all, then wake", and the progress of followers by their reads. The API
handlers, the fetchers and the internal topics call it. `hosted_partitions.py` owns the partitions.
It does not know wire versions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.replication.delayed_answers import DelayedAnswers
from tidelog.replication.hosted_partitions import HostedPartitions
from tidelog.replication.partition import Partition, ReadResult
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.partition import FetchParams
    from tidelog_storage.types import AppendResult

__all__ = ["ReplicaManager"]

_log = logging.getLogger(__name__)

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class ReplicaManager(HostedPartitions):
    """The partitions of this broker, with the operations of requests."""

    # ---- appending ----------------------------------------------------------------------------

    def append(
        self,
        partition: Partition,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
    ) -> AppendResult:
        """Append one batch; StorageError if refused. Wakes nothing before `appended`."""
        try:
            return partition.append(
                records,
                acks=acks,
                now_ms=now_ms,
                produce_version=produce_version,
                from_client=from_client,
            )
        except StorageError as error:
            self.append_refused(partition, error)
            raise

    def append_refused(self, partition: Partition, error: StorageError) -> None:
        """Handle a failed append. If the disk failed, this broker stops leading the partition, as
        in Kafka, where its directory goes offline: other brokers' disks may work."""
        cause, key = error.__cause__, partition.topic_partition
        if lacks_descriptors(cause):
            return  # the next append may get a descriptor
        if isinstance(cause, OSError) and self._partitions.get(key) is partition:
            self._lose(partition, cause)
            # Later: a woken operation may be in the middle of its own append.
            self._timers.call_at(self._timers.time(), self._wake_all, key)

    def appended(self, keys: Sequence[tuple[str, int]]) -> None:
        """Wake fetches after all appends of a request, and produces if a high watermark moved."""
        if len(keys) == 1:
            self.fetch_purgatory.check(keys[0])
            if self.produce_purgatory:
                self.produce_purgatory.check(keys[0])
        else:
            self.fetch_purgatory.check_all(keys)
            if self.produce_purgatory:
                self.produce_purgatory.check_all(keys)

    def await_acks(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """Wait until each partition's high watermark reaches its offset (acks=-1).

        If the result is `decided`, `on_done` is not called; else it is called exactly once, unless
        the operation is cancelled.
        """
        operation = DelayedAnswers(waits, Partition.acknowledged, on_done)
        if not operation.decided:
            self.produce_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    # ---- reading ------------------------------------------------------------------------------

    def read(
        self,
        requests: Iterable[FetchedPartition],
        params: FetchParams,
        *,
        max_bytes: int,
        min_one_batch: bool = True,
        record_progress: bool = True,
    ) -> list[ReadResult]:
        """Read partitions in order, together at most `max_bytes`, but at least one batch if there
        is one.

        A follower's fetch offsets are its progress, recorded once per request (`record_progress`);
        call `wake_moved` when the fetch is answered or parked.
        """
        results: list[ReadResult] = []
        is_progress = params.replica_id >= 0 and record_progress
        partitions = self._partitions
        for request in requests:
            topic = request.topic
            partition = None if topic is None else partitions.get((topic, request.partition))
            if partition is None:
                result = self._missing_for(request)
            elif request.topic_id not in (partition.topic_id, ZERO_UUID):
                result = ReadResult(ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                limit = request.max_bytes
                try:
                    result = partition.read(
                        request,
                        params,
                        min(limit, max_bytes),
                        min_one_batch=min_one_batch,
                    )
                except Exception as error:  # noqa: BLE001 - Kafka: readFromLog, the others go on
                    result = self._failed_read(partition, error)
                if is_progress and self._record_fetch(partition, request, params, result):
                    params.moved.append(partition.topic_partition)
                if result.size:
                    min_one_batch = False
                    max_bytes = max(0, max_bytes - result.size)
            results.append(result)
        return results

    def _failed_read(self, partition: Partition, error: Exception) -> ReadResult:
        if not isinstance(error, StorageError):
            _log.error("read of %s failed", partition.topic_partition, exc_info=error)
            return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        _log.error("read of %s failed: %s", partition.topic_partition, error)
        if isinstance(error.__cause__, OSError):
            self.disk_failed(partition.topic_partition, error)
        else:
            self.suspect(partition.topic_partition)
        return ReadResult(error.code)

    def _record_fetch(
        self,
        partition: Partition,
        request: FetchedPartition,
        params: FetchParams,
        result: ReadResult,
    ) -> bool:
        """Record a follower's progress after its read; return whether a watermark may have
        moved."""
        if result.error or result.diverging is not None:
            return False
        if not partition.record_fetch(request, params):
            result.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self._isr_proposals is not None:
            self._isr_proposals.expand(partition, params.replica_id)
        moved = partition.advance_high_watermark()
        result.high_watermark = partition.log.high_watermark
        result.last_stable_offset = partition.log.last_stable_offset
        return moved or bool(self.delete_records_purgatory)

    def wake_moved(self, params: FetchParams) -> None:
        """Wake operations that wait for watermarks moved by a follower's read.

        A woken operation may append, and must find the follower's fetch parked; otherwise that
        fetch would miss the append between its read and its parking.
        """
        moved, params.moved = params.moved, []
        for key in moved:
            self._wake_all(key)

    def _missing_for(self, request: FetchedPartition) -> ReadResult:
        if request.topic is None:
            result = ReadResult(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            result = ReadResult(self._missing(request.topic, request.partition))
        if result.error in _UNKNOWN:
            # an empty list, not null: Kafka answers these without reading the log
            result.aborted = ()
        return result

    # ---- deleting -----------------------------------------------------------------------------

    def await_deletion(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """Wait until every live replica's log start reached the offset; otherwise like
        `await_acks`."""
        operation = DelayedAnswers(waits, Partition.records_deleted, on_done)
        if not operation.decided:
            self.delete_records_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation
