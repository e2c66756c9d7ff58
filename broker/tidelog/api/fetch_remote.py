"""Fetches of which some partitions are in the remote tier (KIP-405, KIP-1018, KAFKA-14915).

Behaviour. All remote partitions of a request are read at once, each with its share of the request's
bytes in their order; the first one may exceed it by its first batch. The request is parked for
remote.fetch.max.wait.ms, whatever wait it asks for itself; local partitions are read when it
completes. Over the fetch quota (KIP-956) nothing is read: the partitions are empty, and the request
waits like any other without data.

Errors. An offset in no remote segment: OFFSET_OUT_OF_RANGE. A failed remote tier, or a full queue:
UNKNOWN_SERVER_ERROR. Retriable failures are retried until the wait ends, then UNKNOWN_SERVER_ERROR
too; a read that is merely slow answers empty.

Exists only with a remote tier; `fetch.py` then calls it for every consumer's fetch.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from tidelog.api.fetch_delayed import failed_reads
from tidelog.metrics.broker_gauges import tell_purgatories
from tidelog.metrics.meters import Name
from tidelog.replication.partition import TRANSACTION_COMMITTED
from tidelog.replication.purgatory import DelayedOperation, Purgatory
from tidelog.tiered.reads.reader import RemoteRead
from tidelog.tiered.segments import id_of
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.remote.api import RemoteResourceNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.api.fetch_delayed import FetchWork
    from tidelog.network.dispatch import Deferred, RequestContext
    from tidelog.replication.partition import Partition, ReadResult
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timers
    from tidelog.tiered.reads.reader import RemoteRecords
    from tidelog.tiered.reads.remote_reads import PendingRead, RemoteReads
    from tidelog_protocol.messages.data import FetchResponse
    from tidelog_protocol.schema import Buffer

    Answer = Callable[[FetchWork, list[ReadResult]], FetchResponse | list[Buffer]]

__all__ = ["DelayedRemoteFetch", "RemoteFetches"]

_EXPIRES = Name("kafka.server", "DelayedRemoteFetchMetrics", "ExpiresPerSec")


class RemoteFetches:
    """The fetches that wait for the remote tier: Kafka's RemoteFetchPurgatory."""

    def __init__(
        self,
        replicas: ReplicaManager,
        reads: RemoteReads,
        timers: Timers,
    ) -> None:
        self.replicas = replicas
        self.reads = reads
        self.purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        replicas.purgatories.append(self.purgatory)
        reads.meters.declare((_EXPIRES,))
        tell_purgatories(reads.meters, {"RemoteFetch": self.purgatory})

    def fetch(
        self, context: RequestContext, fetch: FetchWork, results: list[ReadResult], answer: Answer
    ) -> FetchResponse | list[Buffer] | Deferred | None:
        """Read the partitions that are in the remote tier; None if no read is needed, or allowed
        now."""
        if all(result.remote is None for result in results) or self.reads.is_throttled():
            return None
        operation = DelayedRemoteFetch(self, fetch, results, answer)
        operation.begin()
        if operation.is_ready:
            return operation.answer(expired=False)
        operation.deferred = context.defer(on_cancel=operation.cancel)
        self.purgatory.park(operation, operation.keys(), self.reads.fetch_wait_ms)
        return operation.deferred


class DelayedRemoteFetch(DelayedOperation[tuple[str, int]]):
    """A Fetch that waits for remote reads.

    Case A: all of them are done.
    Case B: one of their partitions is gone, offline, or may no longer be read here: it answers with
    that error, the others with what they have.
    Case C: the deadline. Reads that have not begun to load are cancelled; the others stay cached
    for the next try.
    Case D: the connection is gone: cancelled.
    Woken by: the reads, and their partitions when the role changes. Never by another request on the
    connection: that waits, as in Kafka.
    """

    __slots__ = (
        "_answer",
        "_fetch",
        "_fetches",
        "_partitions",
        "_pending",
        "_reads",
        "_results",
        "deferred",
    )

    def __init__(
        self, fetches: RemoteFetches, fetch: FetchWork, results: list[ReadResult], answer: Answer
    ) -> None:
        super().__init__()
        self._fetches = fetches
        self._fetch = fetch
        self._results = results
        self._answer = answer
        self._reads: dict[int, PendingRead[RemoteRecords]] = {}  # by index of the request
        self._partitions: dict[int, Partition] = {}
        self._pending = 0
        self.deferred: Deferred | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether all reads are done."""
        return not self._pending

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions that are read remotely."""
        requests = (self._fetch.requests[index] for index in self._reads)
        return [(request.topic or "", request.partition) for request in requests]

    def begin(self) -> None:
        """Begin all reads in order, each with the bytes that the request has left: local records
        before them have taken their share."""
        fetch = self._fetch
        bytes_left = fetch.max_bytes
        is_empty = True
        for index, result in enumerate(self._results):
            if result.remote is None:
                bytes_left -= result.size
                is_empty = is_empty and not result.size
                continue
            request = fetch.requests[index]
            max_bytes = min(request.max_bytes, bytes_left)
            if max_bytes <= 0 and not is_empty:
                break
            self._read(index, max_bytes, min_one_batch=is_empty)
            is_empty = False
            bytes_left -= max_bytes

    def _read(self, index: int, max_bytes: int, *, min_one_batch: bool) -> None:
        request = self._fetch.requests[index]
        partition = self._fetches.replicas.partition(request.topic or "", request.partition)
        assert not isinstance(partition, ErrorCode), "it has just been read"
        read = RemoteRead(
            id_of(partition),
            request.fetch_offset,
            max_bytes,
            min_one_batch=min_one_batch,
            committed=self._fetch.isolation == TRANSACTION_COMMITTED,
        )
        pending = self._fetches.reads.fetch(read, partition.log, self._read_done)
        self._reads[index] = pending
        self._partitions[index] = partition
        self._pending += not pending.is_done

    def _read_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._fetches.purgatory.finish(self)  # Case A

    def touch(self, key: tuple[str, int]) -> bool:
        """Case B."""
        for index in self._reads:
            request = self._fetch.requests[index]
            if (request.topic, request.partition) == key:
                return self._error(index) is not None
        return False

    def cancel(self) -> None:
        """Case D."""
        self._fetches.purgatory.cancel(self)
        for pending in self._reads.values():
            pending.cancel()
        self._forget()

    def complete(self, *, expired: bool) -> None:
        """Cases A, B and C."""
        if expired:
            self._fetches.reads.meters.mark(_EXPIRES)
        deferred = self.deferred
        assert deferred is not None
        deferred.complete(self.answer(expired=expired))

    def fail(self) -> None:
        """Answer every partition with an error."""
        fetch, answer, deferred = self._fetch, self._answer, self.deferred
        assert deferred is not None
        for pending in self._reads.values():
            pending.cancel()
        self._forget()
        deferred.complete(answer(fetch, failed_reads(fetch)))

    def answer(self, *, expired: bool) -> FetchResponse | list[Buffer]:
        """Answer with the remote records, and all other partitions as they are now."""
        fetch, results, requests = self._fetch, self._results, list(self._fetch.requests)
        local = {
            index
            for index, result in enumerate(results)
            if result.remote is None and result.error != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        }
        size = 0
        for index, pending in self._reads.items():
            result = results[index]
            next_offset = self._settle(index, pending, result, expired=expired)
            size += result.size
            if next_offset > requests[index].fetch_offset:
                local.add(index)  # no records up to there: the local log continues
                requests[index] = copy.copy(requests[index])
                requests[index].fetch_offset = next_offset
        if local:
            fresh = self._fetches.replicas.read(
                [requests[index] for index in sorted(local)],
                fetch,
                max_bytes=max(0, fetch.max_bytes - size),
                min_one_batch=not size,
            )
            for index, result in zip(sorted(local), fresh, strict=True):
                results[index] = result
        answer = self._answer
        self._forget()
        return answer(fetch, results)

    def _settle(
        self,
        index: int,
        pending: PendingRead[RemoteRecords],
        result: ReadResult,
        *,
        expired: bool,
    ) -> int:
        """Store the outcome of a read; return the offset at which to continue locally, or -1."""
        error = self._error(index)
        if error is not None:
            pending.cancel()
            result.refuse(error)
        elif not pending.is_done:
            pending.cancel()
            if expired and pending.trouble is not None:
                topic, _ = self._partitions[index].topic_partition
                self._fetches.reads.failed(topic, pending.trouble, of_fetch=True)
                result.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        elif pending.error is not None:
            is_missing = isinstance(pending.error, RemoteResourceNotFound)
            result.refuse(
                ErrorCode.OFFSET_OUT_OF_RANGE if is_missing else ErrorCode.UNKNOWN_SERVER_ERROR
            )
        else:
            records = pending.result
            assert records is not None
            result.records = records.parts
            result.size = records.size
            if result.aborted is not None:
                result.aborted = records.aborted
            return -1 if records.size else records.next_offset
        return -1

    def _error(self, index: int) -> ErrorCode | None:
        """Return why a partition may no longer be read here."""
        request, partition = self._fetch.requests[index], self._partitions[index]
        now = self._fetches.replicas.partition(*partition.topic_partition)
        if isinstance(now, ErrorCode):
            return now
        if now is not partition:  # a partition of another topic with that name
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return now.leader_error(request.current_leader_epoch, leader_only=self._fetch.leader_only)

    def _forget(self) -> None:
        """Drop records and connection: the purgatory keeps this object until its deadline."""
        self._results = []
        self._reads = {}
        self._partitions = {}
        self.deferred = None
