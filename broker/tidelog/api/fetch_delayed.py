"""One Fetch in progress: what it reads, and the parked one that waits for more.

`fetch.py` owns it, resolves sessions and builds responses. Of the wire it knows only the request's
limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.partition import (
    HIGH_WATERMARK,
    LOG_END,
    TRANSACTION_COMMITTED,
    FetchParams,
)
from tidelog.replication.purgatory import DelayedOperation
from tidelog.replication.reads import ReadResult
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.network.dispatch import Deferred
    from tidelog.replication.fetch_sessions import FetchedPartition, FetchSession
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_protocol.messages.data import FetchRequest, FetchResponse
    from tidelog_protocol.schema import Buffer

__all__ = ["READ_COMMITTED", "READ_UNCOMMITTED", "DelayedFetch", "FetchWork", "failed_reads"]

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class FetchWork(FetchParams):
    """One request: what to read, and how to answer.

    `session` is set for incremental fetches; `epoch` is INITIAL_EPOCH for full ones that ask for a
    session. `throttle_ms` counts the bytes of the response, while there are quotas of clients; the
    time that it returns is the throttle time of an empty response. `allows` says of a topic whether
    the client may read it; None: of all.
    """

    __slots__ = (
        "allows",
        "epoch",
        "listener",
        "max_bytes",
        "min_bytes",
        "requests",
        "session",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, version: int, request: FetchRequest, max_bytes: int, listener: str = ""
    ) -> None:
        self.listener = listener  # on which the client connected
        state = request.replica_state
        replica_id = request.replica_id if state is None else state.replica_id
        self.version = version
        self.replica_id = replica_id
        self.replica_epoch = -1 if state is None else state.replica_epoch
        self.rack = ""
        self.moved = []
        if replica_id >= 0:
            self.isolation = LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self.isolation = TRANSACTION_COMMITTED
        else:
            self.isolation = HIGH_WATERMARK
        self.leader_only = replica_id >= 0 or version < 11
        self.max_bytes = max_bytes = min(request.max_bytes, max_bytes)
        self.min_bytes = min(request.min_bytes, max_bytes)
        self.epoch = request.session_epoch
        self.session: FetchSession | None = None
        self.throttle_ms: Callable[[int], int] | None = None
        self.requests: list[FetchedPartition] = []
        self.allows: Callable[[str | None], bool] | None = None


def failed_reads(fetch: FetchWork) -> list[ReadResult]:
    """Return each partition's part of the response to a Fetch that failed as a whole."""
    return [ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR) for _ in fetch.requests]


class DelayedFetch(DelayedOperation[tuple[str, int]]):
    """A Fetch without enough bytes yet.

    Case A: this broker no longer leads a partition, or the request's epoch is fenced now.
    Case B: a partition is gone or offline, or an unknown one now exists.
    Case C: the log was truncated below the fetch offset, or diverges from the reader's last epoch.
    Case D: enough bytes came below the reader's bound.
    Case F: the reader's segment is no longer the last: this read can return no more than it has.
    Case E: another request waits on the connection, or the deadline: answer with what there is.
    Woken by: the partitions. Only touched partitions are read again; the first result stays valid
    for the others.
    """

    __slots__ = (
        "_answer",
        "_bytes",
        "_counted",
        "_fetch",
        "_replicas",
        "_results",
        "_touched",
        "crosses_segments",
        "deferred",
        "indexes",
    )

    def __init__(
        self,
        replica_manager: ReplicaManager,
        answer: Callable[[FetchWork, list[ReadResult]], FetchResponse | list[Buffer]],
        fetch: FetchWork,
        results: list[ReadResult],
    ) -> None:
        """`answer` builds the response from these results."""
        super().__init__()
        self._replicas = replica_manager
        self._answer = answer
        self._fetch = fetch
        self._results = results
        self._touched: dict[int, None] = {}
        self._bytes = 0
        self.indexes = {
            (request.topic, request.partition): index
            for index, request in enumerate(fetch.requests)
            if request.topic is not None
        }
        if fetch.allows is not None:  # what is refused stays so, whatever is appended
            self.indexes = {
                key: index
                for key, index in self.indexes.items()
                if results[index].error != ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }
        # For min_bytes > 1 alone: by index, (bytes appended to the log when first seen, bytes
        # counted).
        self._counted: dict[int, tuple[int, int]] = {}
        self.crosses_segments = False
        if fetch.min_bytes > 1:
            self._count_first()
        self.deferred: Deferred | None = None

    def hurry(self) -> None:
        """Case E: another request waits on the connection."""
        self._replicas.fetch_purgatory.finish(self)

    def cancel(self) -> None:
        """The connection is gone."""
        self._replicas.fetch_purgatory.cancel(self)
        self._forget()

    def _forget(self) -> None:
        """Drop records and connection: the purgatory keeps this object until its deadline."""
        self._results = []
        self.deferred = None

    def touch(self, key: tuple[str, int]) -> bool:
        """See the cases of the class."""
        index = self.indexes[key]
        self._touched[index] = None
        partition = self._replicas.partition(*key)
        if isinstance(partition, ErrorCode) or self._results[index].error:
            return True  # Case B
        request = self._fetch.requests[index]
        if self._is_cut_off(request, partition):
            return True
        if partition.end_offset(self._fetch.isolation) <= request.fetch_offset:
            return False
        return self._fetch.min_bytes <= 1 or self._has_enough(index, request, partition)

    def _is_cut_off(self, request: FetchedPartition, partition: Partition) -> bool:
        """Cases A and C: the reader must learn that the log has changed."""
        if partition.leader_error(
            request.current_leader_epoch, leader_only=self._fetch.leader_only
        ):
            return True
        if request.fetch_offset > partition.log.log_end_offset:
            return True
        if request.last_fetched_epoch == -1:
            return False
        end = partition.log.end_offset_for_epoch(request.last_fetched_epoch)
        return end.leader_epoch < request.last_fetched_epoch or end.offset < request.fetch_offset

    def _has_enough(self, index: int, request: FetchedPartition, partition: Partition) -> bool:
        """Cases D and F: count the bytes appended to one partition since the last count."""
        if partition.on_older_segment(request.fetch_offset, self._fetch.isolation):
            return True
        appended, counted = self._counted[index]
        available = min(
            self._results[index].size + partition.bytes_appended - appended, request.max_bytes
        )
        self._counted[index] = (appended, available)
        self._bytes += available - counted
        return self._bytes >= self._fetch.min_bytes

    def complete(self, *, expired: bool) -> None:
        """Read touched partitions again, and answer."""
        fetch = self._fetch
        results = self._results
        if self._touched:
            again = sorted(self._touched)
            kept = sum(
                result.size for index, result in enumerate(results) if index not in self._touched
            )
            fresh = self._replicas.read(
                [fetch.requests[index] for index in again],
                fetch,
                max_bytes=max(0, fetch.max_bytes - kept),
                min_one_batch=not kept,
                record_progress=False,  # already recorded, before this was parked
            )
            for index, result in zip(again, fresh, strict=True):
                results[index] = result
        if fetch.replica_id >= 0:
            self._refresh_watermarks()
        deferred = self.deferred
        assert deferred is not None
        response = self._answer(fetch, results)
        self._forget()
        deferred.complete(response)

    def fail(self) -> None:
        """Answer every partition with an error."""
        fetch, deferred = self._fetch, self.deferred
        assert deferred is not None
        self._forget()
        deferred.complete(self._answer(fetch, failed_reads(fetch)))

    def _refresh_watermarks(self) -> None:
        """Refresh the high watermarks: a follower learns them only from responses."""
        for request, result in zip(self._fetch.requests, self._results, strict=True):
            if not result.error and request.topic is not None:
                partition = self._replicas.partition(request.topic, request.partition)
                if not isinstance(partition, ErrorCode):
                    result.high_watermark = partition.log.high_watermark
                    result.last_stable_offset = partition.log.last_stable_offset

    def _count_first(self) -> None:
        for key, index in self.indexes.items():
            partition = self._replicas.partition(*key)
            if not isinstance(partition, ErrorCode):
                result = self._results[index]
                self._counted[index] = (partition.bytes_appended, result.size)
                self._bytes += result.size
                if result.remote is None and partition.on_older_segment(
                    self._fetch.requests[index].fetch_offset, self._fetch.isolation
                ):
                    self.crosses_segments = True
