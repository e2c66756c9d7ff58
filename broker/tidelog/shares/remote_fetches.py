"""The share fetches that wait for the remote tier.

All partitions whose next records are remote are read at once; meanwhile no other member reads them.
The others are read when the remote reads are done, as in Kafka's DelayedShareFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.purgatory import DelayedOperation
from tidelog.replication.reads import TRANSACTION_COMMITTED, ReadResult
from tidelog.tiered.reads.reader import RemoteRead
from tidelog.tiered.segments import id_of
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.remote.api import RemoteResourceNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.shares.fetch_work import ShareFetchWork
    from tidelog.shares.led_partition import LedPartition
    from tidelog.tiered.reads.reader import RemoteRecords
    from tidelog.tiered.reads.remote_reads import PendingRead, RemoteReads

__all__ = ["RemoteShareFetch"]


class RemoteShareFetch(DelayedOperation[tuple[str, int]]):
    """A ShareFetch that waits for remote reads.

    Case A: all of them are done.
    Case B: a share partition among them is void.
    Case C: the deadline, remote.fetch.max.wait.ms: what is read is acquired.
    Case D: the connection is gone: the reads are cancelled.
    Woken by: the reads, and the partitions.
    """

    __slots__ = ("_on_done", "_pending", "_reads", "_results", "work")

    def __init__(
        self,
        reads: RemoteReads,
        work: ShareFetchWork,
        results: dict[LedPartition, ReadResult],
        on_done: Callable[[ShareFetchWork], None],
    ) -> None:
        super().__init__()
        self.work = work
        self._reads = reads
        self._results = results
        self._on_done = on_done
        self._pending: dict[LedPartition, PendingRead[RemoteRecords]] = {}

    def begin(self) -> None:
        """Begin all reads; answer at once if they are all done."""
        work = self.work
        for led in self._results:
            assert led.state is not None
            led.is_read_remotely = True
            read = RemoteRead(
                id_of(led.partition),
                led.state.next_fetch_offset,
                work.bytes_of(led, len(self._results)),
                committed=work.settings.isolation == TRANSACTION_COMMITTED,
            )
            self._pending[led] = self._reads.fetch(read, led.partition.log, self._read_done)
        if self._is_ready():
            self.closed = True
            self.complete(expired=False)
        else:
            keys = [led.partition.topic_partition for led in self._results]
            self.work.shares.remote_purgatory.park(self, keys, self._reads.fetch_wait_ms)

    def _is_ready(self) -> bool:
        return all(pending.is_done for pending in self._pending.values())

    def _read_done(self) -> None:
        if self.watched_keys and self._is_ready():
            self.work.shares.remote_purgatory.finish(self)  # Case A

    def touch(self, key: tuple[str, int]) -> bool:
        """Case B."""
        del key
        return any(led.failure is not None for led in self._results)

    def complete(self, *, expired: bool) -> None:
        """Cases A, B and C."""
        work = self.work
        leds = self._end()
        for led in leds:
            if led.failure is None:
                work.take(led, self._settled(led, expired=expired))
        for led, result in work.read(work.fetchable()).items():
            if result.remote is None:
                work.take(led, result)
        work.note_failures()
        self._on_done(work)
        for led in leds:
            work.shares.wake(led.partition.topic_partition)

    def _settled(self, led: LedPartition, *, expired: bool) -> ReadResult:
        """Return the outcome of one read."""
        pending, result = self._pending[led], self._results[led]
        if not pending.is_done:
            pending.cancel()
            if expired and pending.trouble is not None:
                topic = led.partition.topic_partition.topic
                self._reads.failed(topic, pending.trouble, of_fetch=True)
                return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)
            return result
        if pending.error is not None:
            is_missing = isinstance(pending.error, RemoteResourceNotFound)
            return ReadResult(
                ErrorCode.OFFSET_OUT_OF_RANGE if is_missing else ErrorCode.UNKNOWN_SERVER_ERROR
            )
        records = pending.result
        assert records is not None
        result.records = records.parts
        result.size = records.size
        if result.aborted is not None:
            result.aborted = records.aborted
        return result

    def _end(self) -> list[LedPartition]:
        """Let others read the partitions again."""
        for led in self._pending:
            led.is_read_remotely = False
        return list(self._pending)

    def cancel(self) -> None:
        """Case D."""
        self.work.shares.remote_purgatory.cancel(self)
        for pending in self._pending.values():
            pending.cancel()
        for led in self._end():
            self.work.shares.wake(led.partition.topic_partition)

    def fail(self) -> None:
        """Answer without records."""
        self._end()
        self._on_done(self.work)
