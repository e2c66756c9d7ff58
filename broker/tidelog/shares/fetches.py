"""The ShareFetch that waits for records.

A fetch takes records in the step in which it finds enough of them, so each new record goes to one
waiting fetch. A fetch waits in the purgatory of fetches and wakes at the same events: appends,
watermarks, roles, and the changes of share partitions.

Kafka: DelayedShareFetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.purgatory import DelayedOperation
from tidelog.shares.remote_fetches import RemoteShareFetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.replication.reads import ReadResult
    from tidelog.shares.fetch_work import ShareFetchWork
    from tidelog.shares.led_partition import LedPartition

__all__ = ["DelayedShareFetch"]


class DelayedShareFetch(DelayedOperation[tuple[str, int]]):
    """A ShareFetch without enough records yet.

    Case A: `min_bytes` can be read where the group goes on: they are acquired in the same step.
    Case B: a share partition is void, or a read fails: answered with its error.
    Case C: what is next is in the remote tier: `remote_fetches.py` goes on with the fetch.
    Case D: another request waits on the connection, or the deadline: what there is, is acquired;
    nothing is read in the remote tier.
    Case E: the connection is gone: cancelled, and nothing is acquired.
    Woken by: the partitions, for which share partitions tell their changes too.
    """

    __slots__ = ("_on_done", "_remote", "_taken", "work")

    def __init__(
        self,
        work: ShareFetchWork,
        on_done: Callable[[ShareFetchWork], None],
    ) -> None:
        """`on_done` answers; it is called once, unless the fetch is cancelled."""
        super().__init__()
        self.work = work
        self._on_done = on_done
        self._remote: RemoteShareFetch | None = None
        self._taken = False

    def begin(self, max_wait_ms: int) -> None:
        """Answer at once, or wait."""
        purgatory = self.work.shares.replicas.fetch_purgatory
        if self._try():
            self.closed = True
            self.complete(expired=False)
        elif not self.closed:
            if max_wait_ms <= 0:
                self.closed = True
                self.complete(expired=True)
            else:
                purgatory.park(self, self.work.keys(), max_wait_ms)

    def touch(self, key: tuple[str, int]) -> bool:
        """Cases A, B and C."""
        del key
        return self._try()

    def _try(self) -> bool:
        if self._taken:  # by another of the partitions that changed in this turn
            return True
        work = self.work
        results = work.read_due()
        remote = {led: result for led, result in results.items() if result.remote is not None}
        reads = work.shares.remote
        if remote and reads is not None and not reads.is_throttled():
            if self.watched_keys:
                work.shares.replicas.fetch_purgatory.cancel(self)
            self.closed = True
            self._remote = RemoteShareFetch(reads, work, remote, self._on_done)
            self._remote.begin()
            return False
        has_error = work.has_failed or any(result.error for result in results.values())
        size = sum(result.size for result in results.values())
        if not has_error and (not results or size < work.wish.min_bytes):
            return False
        self._take(results)
        return True

    def _take(self, results: dict[LedPartition, ReadResult]) -> None:
        self._taken = True
        for led, result in results.items():
            if result.remote is None:
                self.work.take(led, result)

    def complete(self, *, expired: bool) -> None:
        """All cases but C and E."""
        del expired
        if not self._taken:  # case D
            self._take(self.work.read_due())
        self.work.note_failures()
        self._on_done(self.work)

    def fail(self) -> None:
        """Answer without records."""
        self._on_done(self.work)

    def hurry(self) -> None:
        """Case D: another request waits on the connection."""
        if self.watched_keys:
            self.work.shares.replicas.fetch_purgatory.finish(self)

    def cancel(self) -> None:
        """Case E."""
        if self._remote is not None:
            self._remote.cancel()
        elif self.watched_keys:
            self.work.shares.replicas.fetch_purgatory.cancel(self)
