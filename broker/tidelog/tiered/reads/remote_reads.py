"""Remote reads for consumers: fetches and look-ups by time (Kafka: RemoteLogManager.asyncRead).

Owns: which reads are under way, retries while a client waits, the age of what is cached.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tidelog.awaiting import begun
from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog.tiered.pools import PoolFullError
from tidelog.tiered.reads.loading import Loader, LostError
from tidelog.tiered.reads.reader import read, search, segment_at
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from uuid import UUID

    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.seams import Runtime
    from tidelog.tiered.pools import Pool
    from tidelog.tiered.quotas import RateQuota
    from tidelog.tiered.reads.reader import RemoteRead, RemoteRecords, SegmentAt
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.sources import Sources
    from tidelog_storage.types import OffsetAndTimestamp

__all__ = ["PendingRead", "RemoteReads"]

T = TypeVar("T")

_READ_TIMER = Name("kafka.log.remote", "RemoteLogManager", "RemoteLogReaderFetchRateAndTimeMs")

_log = logging.getLogger(__name__)

_BACKOFF_MIN_S = 0.02
_BACKOFF_MAX_S = 0.4
_CLEAN_INTERVAL_S = 10.0
_BYTES = Name(*BROKER_TOPIC_METRICS, "RemoteFetchBytesPerSec")
_REQUESTS = Name(*BROKER_TOPIC_METRICS, "RemoteFetchRequestsPerSec")
_ERRORS = Name(*BROKER_TOPIC_METRICS, "RemoteFetchErrorsPerSec")


@dataclass(slots=True, eq=False)
class PendingRead(Generic[T]):
    """A read in progress or done: `is_done` with a `result` or an `error`.

    `trouble` is the error for which the read is retried. RemoteResourceNotFound: the offset is in
    no remote segment; other errors are failures of the remote tier. `begun_s` is set for fetches:
    only these are timed and counted, as in Kafka. Retries end `retry_ms` after the first failure;
    None: they continue while a client waits.
    """

    topic: str
    on_done: Callable[[], None]
    begun_s: float | None = None
    retry_ms: int | None = None
    give_up_s: float = math.inf
    is_done: bool = False
    result: T | None = None
    error: BaseException | None = None
    trouble: RetriableRemoteStorageError | None = None
    task: asyncio.Task[None] | None = None  # of a read that waits

    def cancel(self) -> None:
        """Cancel the read unless it is done: no client waits for it."""
        if self.task is not None and not self.is_done:
            self.task.cancel()


class RemoteReads:
    """The remote reads of one broker (Kafka: RemoteLogManager.asyncRead, asyncOffsetRead).

    `fetch_wait_ms` is remote.fetch.max.wait.ms, `list_offsets_timeout_ms` is
    remote.list.offsets.request.timeout.ms: how long clients wait.
    """

    def __init__(
        self,
        sources: Sources,
        metadata: RemoteLogMetadata,
        pool: Pool,
        *,
        quota: RateQuota,
        runtime: Runtime,
        meters: Meters,
    ) -> None:
        """`pool` is the reader pool, `quota` remote.log.manager.fetch.max.bytes.per.second."""
        self.sources = sources
        self._metadata = metadata
        self.segment_at: SegmentAt = segment_at
        """The rule of fetches; `tidelog scenario` shows an older one, too."""
        self.fetch_wait_ms = 500
        self.list_offsets_timeout_ms = 30_000
        self._pool = pool
        self._loader = Loader(sources, pool, self._now_ms)
        self._quota = quota
        self._clock, self._rng = runtime.clock, runtime.rng
        self.meters = meters
        self._timer = meters.timer(_READ_TIMER)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._cleaning: asyncio.TimerHandle | None = None
        self._failing: dict[str, None] = {}  # topics of which the last read failed
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of reads that are not done."""
        return len(self._tasks)

    def watch_damage(self, on_damage: Callable[[RemoteSegment], None] | None) -> None:
        """Call `on_damage` with segments that the store does not return as they were copied."""
        self._loader.on_damage = on_damage

    @property
    def flights(self) -> int:
        """The number of loads that run or wait for a thread."""
        return len(self._loader)

    # ---- reads --------------------------------------------------------------------------------

    def is_throttled(self) -> bool:
        """Whether the fetch quota is used up (KIP-956): partitions answer empty meanwhile."""
        return self._quota.is_exceeded(self._clock.monotonic())

    def fetch(
        self, request: RemoteRead, log: Log, on_done: Callable[[], None]
    ) -> PendingRead[RemoteRecords]:
        """Read for a consumer. `on_done` is called later, unless the read is done at once or
        cancelled first."""
        topic = request.partition.topic
        self.meters.mark(_REQUESTS, topic=topic)

        async def work() -> RemoteRecords:
            records = await read(request, log, self._metadata, self._loader, self.segment_at)
            self._served(request, records, log)
            return records

        begun_s = self._clock.monotonic()
        return self._start(PendingRead(topic, on_done, begun_s=begun_s), work)

    def _served(self, request: RemoteRead, records: RemoteRecords, log: Log) -> None:
        if records.size and records.place is not None:
            self._quota.record(records.size, self._clock.monotonic())
            self.meters.mark(_BYTES, records.size, topic=request.partition.topic)
            # The answer is sent first; the client then takes time to handle it.
            asyncio.get_running_loop().call_soon(
                self._loader.read_on,
                request.partition,
                (request.offset, records.next_offset),
                records.place,
                request.max_bytes,
                partial(self._following, log),
            )

    def _following(self, log: Log, segment: RemoteSegment) -> RemoteSegment | None:
        """Return the next segment for a reader."""
        offset = segment.end_offset + 1
        epoch = log.epochs.epoch_for_offset(offset)
        if epoch is None or offset >= log.local_log_start_offset:
            return None
        try:
            return self._metadata.segment_for(segment.topic_id_partition, epoch, offset)
        except RemoteStorageError:
            return None

    def offset_for_timestamp(
        self, timestamp: int, partition: TopicIdPartition, log: Log, on_done: Callable[[], None]
    ) -> PendingRead[OffsetAndTimestamp | None]:
        """Look for a remote record as new as `timestamp` (KIP-1075); None: look in the local part.

        `on_done` as in `fetch`. Retries end as early as those of a fetch: the client's time-out may
        be much longer, and the other partitions of its request would wait with it.
        """
        pending: PendingRead[OffsetAndTimestamp | None] = PendingRead(
            partition.topic, on_done, retry_ms=self.fetch_wait_ms
        )
        return self._start(
            pending, lambda: search(timestamp, partition, log, self._metadata, self._loader)
        )

    def _start(
        self, pending: PendingRead[T], work: Callable[[], Coroutine[Any, Any, T]]
    ) -> PendingRead[T]:
        """Read from memory at once, and the rest in a task."""
        if self._is_closed:
            self._fail(pending, RemoteStorageError("the broker stops"))
            return pending
        self._keep_clean()
        rest = begun(self._drive(pending, work))
        if rest is not None:
            name = f"read of {pending.topic}"
            task = pending.task = asyncio.get_running_loop().create_task(rest, name=name)
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        return pending

    async def _drive(
        self, pending: PendingRead[T], work: Callable[[], Coroutine[Any, Any, T]]
    ) -> None:
        """Run a read to its end; retriable failures are retried until then or until cancelled."""
        backoff_s = _BACKOFF_MIN_S
        is_lost = False
        while True:
            try:
                self._finish(pending, await work())
            except RetriableRemoteStorageError as error:
                self._troubled(pending, error)
            except LostError as error:
                # The store has no such object. If the segment was deleted meanwhile, the next
                # attempt sees that in the metadata.
                if is_lost:
                    if self._loader.on_damage is not None:
                        self._loader.on_damage(error.segment)
                    self._fail(pending, RemoteStorageError(str(error)))
                is_lost = True
            except (RemoteStorageError, PoolFullError) as error:
                self._fail(pending, error)
            except Exception as error:  # noqa: BLE001 - plug-ins raise what they like
                _log.exception("read of %s in the remote tier", pending.topic)
                self._fail(pending, error)
            if pending.is_done:
                break
            pause_s = backoff_s * self._rng.uniform(0.8, 1.2)
            await asyncio.sleep(min(pause_s, pending.give_up_s - self._clock.monotonic()))
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        if pending.task is not None:
            pending.on_done()

    def _finish(self, pending: PendingRead[T], result: T) -> None:
        pending.is_done = True
        pending.result = result
        self._took(pending)
        self._failing.pop(pending.topic, None)

    def _troubled(self, pending: PendingRead[Any], error: RetriableRemoteStorageError) -> None:
        """Note a retriable failure; fail the read after too many. Metadata that is not ready is no
        failure of the store: look-ups wait for it."""
        if pending.retry_ms is not None and isinstance(error, RemoteStorageNotReady):
            return
        pending.trouble = error
        now_s = self._clock.monotonic()
        if now_s >= pending.give_up_s:
            self._fail(pending, error)
        elif pending.retry_ms is not None:
            pending.give_up_s = min(pending.give_up_s, now_s + pending.retry_ms / 1000)

    def _fail(self, pending: PendingRead[Any], error: BaseException) -> None:
        pending.is_done = True
        pending.error = error
        self._took(pending)
        if not isinstance(error, RemoteResourceNotFound):
            was_read = not isinstance(error, PoolFullError)  # in Kafka the readers count
            self.failed(pending.topic, error, of_fetch=was_read and pending.begun_s is not None)

    def failed(self, topic: str, error: BaseException, *, of_fetch: bool) -> None:
        """Count and log a failure that a consumer gets. A caller that cancels a read in trouble at
        its time-out reports the failure here."""
        if of_fetch:
            self.meters.mark(_ERRORS, topic=topic)
        level = logging.DEBUG if topic in self._failing else logging.WARNING
        self._failing[topic] = None
        _log.log(level, "read of %s in the remote tier failed: %s", topic, error)

    def _took(self, pending: PendingRead[Any]) -> None:
        if pending.begun_s is not None:
            self._timer.record(self._clock.monotonic() - pending.begun_s)

    # ---- the caches ---------------------------------------------------------------------------

    def forget(self, segment_ids: Iterable[UUID]) -> None:
        """Drop the cached data of deleted segments."""
        self.sources.forget(segment_ids, self._now_ms())

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow dynamic settings, except those of the threads and the quota."""
        self.fetch_wait_ms = config.remote_fetch_max_wait_ms
        self.list_offsets_timeout_ms = config.remote_list_offsets_request_timeout_ms
        size_bytes = config.remote_log_index_file_cache_total_size_bytes
        self.sources.indexes.resize(size_bytes, self._now_ms())

    def _keep_clean(self) -> None:
        """Schedule the next cleaning of the caches."""
        if self._cleaning is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._cleaning = loop.call_later(_CLEAN_INTERVAL_S, self._clean)

    def _clean(self) -> None:
        """Expire cached data. A thread closes and removes files, unless the queue is full."""
        self._cleaning = None
        leftovers = None if self._pool.is_full else self.sources.expire(self._now_ms())
        if leftovers is not None:
            self._pool.begin(self.sources.clean, leftovers).add_done_callback(_cleaned)
        if not self.sources.is_clean:
            self._keep_clean()

    async def close(self) -> None:
        """Cancel all reads and clear the caches; threads finish what they have begun."""
        self._is_closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None
        waiting = list(self._tasks)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._loader.close()
        self.sources.clear()

    def _now_ms(self) -> int:
        return self._clock.wall_ms()


def _cleaned(ended: asyncio.Future[None]) -> None:
    """Log a failed removal; the next start removes the files."""
    error = None if ended.cancelled() else ended.exception()
    if error is not None:
        _log.warning("index cache: %s", error)
