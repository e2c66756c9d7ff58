"""Look-ups by time that begin in the remote tier (KIP-405, KIP-1075).

Behaviour. The remote parts of all partitions are searched concurrently; if nothing is found, the
local part is searched, as for any other log. The request waits until all are done, at most
`timeout_ms` (v10, if above 0) or remote.list.offsets.request.timeout.ms; unfinished searches then
answer REQUEST_TIMED_OUT. Failures of the remote tier answer UNKNOWN_SERVER_ERROR; retriable ones
are first retried for remote.fetch.max.wait.ms, or until the request's deadline (Kafka does not
retry).

Exists only with a remote tier; `offsets.py` passes it the look-ups that `Partition.offset_for`
sends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.metrics.broker_gauges import tell_purgatories
from tidelog.metrics.meters import Name
from tidelog.replication.purgatory import DelayedOperation, Purgatory
from tidelog.tiered.segments import id_of
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.network.dispatch import Deferred, RequestContext
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timers
    from tidelog.tiered.reads.remote_reads import PendingRead, RemoteReads
    from tidelog_protocol.messages.data import ListOffsetsResponse
    from tidelog_storage.types import OffsetAndTimestamp

    Found = OffsetAndTimestamp | ErrorCode

__all__ = ["DelayedRemoteListOffsets", "RemoteOffsets", "RemoteSearch"]

_EXPIRES = Name("kafka.server", "DelayedRemoteListOffsetsMetrics", "ExpiresPerSec")


class RemoteSearch(NamedTuple):
    """One partition's look-up. `error` returns why it may no longer be answered here, `local`
    searches the local part, and `settle` takes the outcome."""

    timestamp: int
    partition: Partition
    error: Callable[[], ErrorCode | None]
    local: Callable[[], Found]
    settle: Callable[[Found], None]


class RemoteOffsets:
    """The look-ups that wait for the remote tier: Kafka's RemoteListOffsetsPurgatory."""

    def __init__(
        self,
        replicas: ReplicaManager,
        reads: RemoteReads,
        timers: Timers,
    ) -> None:
        self.reads = reads
        self.purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        replicas.purgatories.append(self.purgatory)
        reads.meters.declare((_EXPIRES,))
        tell_purgatories(reads.meters, {"RemoteListOffsets": self.purgatory})

    def list_offsets(
        self,
        context: RequestContext,
        response: ListOffsetsResponse,
        searches: Sequence[RemoteSearch],
        timeout_ms: int,
    ) -> ListOffsetsResponse | Deferred:
        """Search, and answer when all is found. A `timeout_ms` of 0 or less means the broker's own
        timeout, as for a client that does not set the field (Kafka: fetchOffset)."""
        operation = DelayedRemoteListOffsets(self, response, searches)
        operation.begin()
        if operation.is_ready:
            return response
        operation.deferred = context.defer(on_cancel=operation.cancel)
        wait_ms = timeout_ms if timeout_ms > 0 else self.reads.list_offsets_timeout_ms
        self.purgatory.park(operation, operation.keys(), wait_ms)
        return operation.deferred


class DelayedRemoteListOffsets(DelayedOperation[tuple[str, int]]):
    """A ListOffsets that waits for remote look-ups.

    Case A: all of them are done.
    Case B: a partition is gone, offline, or may no longer be read here: it gets that error, and the
    others continue.
    Case C: the deadline: REQUEST_TIMED_OUT for unfinished searches, or UNKNOWN_SERVER_ERROR for
    those that are failing.
    Case D: the connection is gone: cancelled.
    Woken by: the look-ups, and their partitions when their role changes.
    """

    __slots__ = ("_offsets", "_open", "_reads", "_response", "_searches", "deferred")

    def __init__(
        self,
        offsets: RemoteOffsets,
        response: ListOffsetsResponse,
        searches: Sequence[RemoteSearch],
    ) -> None:
        super().__init__()
        self._offsets = offsets
        self._response = response
        self._searches = searches
        self._reads: dict[int, PendingRead[OffsetAndTimestamp | None]] = {}
        self._open: dict[int, None] = {}  # indexes of searches without an outcome
        self.deferred: Deferred | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether every partition has its outcome."""
        return not self._open

    def keys(self) -> list[tuple[str, int]]:
        """Return the partitions that are searched."""
        return [search.partition.topic_partition for search in self._searches]

    def begin(self) -> None:
        """Begin all look-ups; some are done at once."""
        for index, search in enumerate(self._searches):
            partition = search.partition
            self._open[index] = None
            self._reads[index] = self._offsets.reads.offset_for_timestamp(
                search.timestamp,
                id_of(partition),
                partition.log,
                self._search_done,
            )
        self._settle_done()

    def _search_done(self) -> None:
        self._settle_done()
        if not self._open:
            self._offsets.purgatory.finish(self)  # Case A

    def _settle_done(self) -> None:
        for index in list(self._open):
            pending = self._reads[index]
            if not pending.is_done:
                continue
            search = self._searches[index]
            error = search.error()
            if error is not None:
                self._settle(index, error)
            elif pending.error is not None:
                self._settle(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._settle(index, search.local() if pending.result is None else pending.result)

    def _settle(self, index: int, found: Found) -> None:
        del self._open[index]
        self._searches[index].settle(found)

    def touch(self, key: tuple[str, int]) -> bool:
        """Case B."""
        for index in list(self._open):
            search = self._searches[index]
            if search.partition.topic_partition == key:
                error = search.error()
                if error is not None:
                    self._reads[index].cancel()
                    self._settle(index, error)
        return not self._open

    def cancel(self) -> None:
        """Case D."""
        self._offsets.purgatory.cancel(self)
        self._give_up()

    def complete(self, *, expired: bool) -> None:
        """Cases A, B and C."""
        reads = self._offsets.reads
        for index in list(self._open):
            topic, number = self._searches[index].partition.topic_partition
            trouble = self._reads[index].trouble
            if trouble is None:
                self._settle(index, ErrorCode.REQUEST_TIMED_OUT)
            else:
                reads.failed(topic, trouble, of_fetch=False)
                self._settle(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            if expired:
                reads.meters.mark(_EXPIRES, topic=topic, partition=number)
        deferred = self.deferred
        assert deferred is not None
        self._give_up()
        deferred.complete(self._response)

    def fail(self) -> None:
        """Answer with UNKNOWN_SERVER_ERROR for unfinished searches."""
        deferred = self.deferred
        assert deferred is not None
        for index in list(self._open):
            self._settle(index, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._give_up()
        deferred.complete(self._response)

    def _give_up(self) -> None:
        """Drop unfinished searches and the connection: this object is kept until its deadline."""
        for pending in self._reads.values():
            pending.cancel()
        self._reads = {}
        self._searches = ()
        self.deferred = None
