"""Remote reads for consumers: fetches and look-ups by time, off the loop as far as they block.

Owns: which reads are under way, retries while somebody waits, the age of what is cached. Reads run
as the steps of `tidelog_storage.remote.reader` on the loop; what is not in memory is loaded in the
reader pool (`loading.py`). A read that finds everything in memory is done before `fetch` returns.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name
from tidelog.remote.loading import Ahead, Loader, LostError
from tidelog.remote.pools import PoolFullError
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.reader import NeedIndexes, Pause, read, read_at_hand, search
from tidelog_storage.remote.sources import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from tidelog.config.broker import BrokerConfig
    from tidelog.metrics.meters import Meters
    from tidelog.remote.pools import Pool
    from tidelog.remote.quotas import RateQuota
    from tidelog.seams import Clock, Rng
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, TopicIdPartition
    from tidelog_storage.remote.chunks import Chunk
    from tidelog_storage.remote.index_cache import RemoteIndexes
    from tidelog_storage.remote.reader import Need, RemoteRead, RemoteRecords, Steps
    from tidelog_storage.remote.sources import Leftovers, Sources
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


class PendingRead(Generic[T]):
    """A read under way, or its end: `is_done` with a `result` or an `error`.

    `trouble` is the error that it is being retried for. RemoteResourceNotFound stands for an offset
    that is in no remote segment; any other error is the remote tier's.
    """

    __slots__ = ("error", "is_done", "on_cancel", "result", "trouble")

    def __init__(self) -> None:
        self.is_done = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self.trouble: RetriableRemoteStorageError | None = None
        self.on_cancel: Callable[[], object] | None = None

    def cancel(self) -> None:
        """Nobody waits for it any more; nothing happens to one that is done."""
        on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None:
            on_cancel()


class _Run(Generic[T]):
    """One try of a read: its steps and what they need next, or their end."""

    __slots__ = ("is_done", "job", "need", "result", "steps")

    def __init__(self, steps: Steps[T]) -> None:
        self.steps = steps
        self.job: Job | None = None  # what is to be loaded for `need`
        self.result: T | None = None
        self.is_done = False
        self.need: Need = Pause()
        self.supply(None)

    def supply(self, value: Chunk | RemoteIndexes | int | None) -> None:
        """Give what is needed, go to the next need."""
        self.job = None
        try:
            self.need = self.steps.send(value)
        except StopIteration as stop:
            self.result = stop.value
            self.is_done = True


class _Ask(Generic[T]):
    """A read: how to begin a try of it, whom to tell, and when it began if it is a fetch: fetches
    alone are timed and counted, as in Kafka.

    `retry_ms` after its first failure nothing is tried again; None: as long as somebody waits.
    """

    __slots__ = ("begun_s", "end", "give_up_s", "on_done", "pending", "retry_ms", "steps", "topic")

    def __init__(
        self,
        topic: str,
        steps: Callable[[], Steps[T]],
        end: Callable[[T], None],
        on_done: Callable[[], None],
        *,
        begun_s: float | None = None,
        retry_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.begun_s = begun_s
        self.retry_ms = retry_ms
        self.give_up_s = math.inf
        self.steps = steps
        self.end = end
        self.on_done = on_done
        self.pending: PendingRead[T] = PendingRead()


class RemoteReads:
    """The remote reads of one broker (Kafka: RemoteLogManager.asyncRead, asyncOffsetRead).

    `fetch_wait_ms` is remote.fetch.max.wait.ms, `list_offsets_timeout_ms` is
    remote.list.offsets.request.timeout.ms, for those who wait.
    """

    def __init__(
        self,
        sources: Sources,
        metadata: RemoteLogMetadata,
        pool: Pool,
        *,
        quota: RateQuota,
        clock: Clock,
        rng: Rng,
        meters: Meters | None = None,
    ) -> None:
        """`pool` is the reader pool, `quota` remote.log.manager.fetch.max.bytes.per.second."""
        self.sources = sources
        self._metadata = metadata
        self.fetch_wait_ms = 500
        self.list_offsets_timeout_ms = 30_000
        self._pool = pool
        self._loader = Loader(sources, pool, self._now_ms)
        self._quota = quota
        self._clock = clock
        self._rng = rng
        self.meters = meters
        self._timer = None if meters is None else meters.timer(_READ_TIMER)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._cleaning: asyncio.TimerHandle | None = None
        self._failing: dict[str, None] = {}  # topics of which the last read failed
        self._is_closed = False

    def __len__(self) -> int:
        """Reads that are not done."""
        return len(self._tasks)

    @property
    def flights(self) -> int:
        """What is being loaded or waits for it."""
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
        self._mark(_REQUESTS, topic)
        begun_s = self._clock.monotonic()
        ask = _Ask(
            topic,
            lambda: read(request, log, self._metadata),
            lambda records: self._served(request, records, log),
            on_done,
            begun_s=begun_s,
        )
        records = self._at_hand(request, log)
        if records is None:
            return self._start(ask)
        self._finish(ask, records)
        return ask.pending

    def _at_hand(self, request: RemoteRead, log: Log) -> RemoteRecords | None:
        """What can be answered without a step; whatever is wrong, the steps tell it."""
        if self._is_closed:
            return None
        now_ms = self._now_ms()
        try:
            return read_at_hand(
                request,
                log,
                self._metadata,
                lambda segment, offset: self.sources.at_hand(segment, offset, now_ms),
            )
        except RemoteStorageError:
            return None

    def _served(self, request: RemoteRead, records: RemoteRecords, log: Log) -> None:
        if records.size:
            self._quota.record(records.size, self._clock.monotonic())
            self._mark(_BYTES, request.partition.topic, records.size)
            # First the answer goes: then the client is busy with it.
            asyncio.get_running_loop().call_soon(self._read_on, request, records, log)

    def offset_for_timestamp(
        self, timestamp: int, partition: TopicIdPartition, log: Log, on_done: Callable[[], None]
    ) -> PendingRead[OffsetAndTimestamp | None]:
        """Look for a remote record as new as `timestamp` (KIP-1075); None: look in the local part.
        `on_done` as in `fetch`. Who asks may wait far longer than a tier that is away is worth, and
        the other partitions of the request with it: what may heal has as long as for a fetch."""
        return self._start(
            _Ask(
                partition.topic,
                lambda: search(timestamp, partition, log, self._metadata),
                lambda _: None,
                on_done,
                retry_ms=self.fetch_wait_ms,
            )
        )

    def _start(self, ask: _Ask[T]) -> PendingRead[T]:
        """Go as far as memory reaches, then on in a task."""
        pending = ask.pending
        run: _Run[T] | None = None
        try:
            if self._is_closed:
                raise RemoteStorageError("the broker stops")
            self._keep_clean()
            run = _Run(ask.steps())
            self._advance(run)
        except RetriableRemoteStorageError as error:
            self._troubled(ask, error)
            run = None
        except RemoteStorageError as error:
            self._fail(ask, error)
            return pending
        if run is not None and run.is_done:
            self._finish(ask, run.result)
            return pending
        task = asyncio.get_running_loop().create_task(
            self._drive(ask, run), name=f"read of {ask.topic}"
        )
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        pending.on_cancel = task.cancel
        return pending

    def _finish(self, ask: _Ask[T], result: T | None) -> None:
        pending = ask.pending
        pending.is_done = True
        pending.result = result
        self._took(ask)
        self._failing.pop(ask.topic, None)
        ask.end(cast("T", result))  # it is what the steps have ended with

    def _troubled(self, ask: _Ask[Any], error: RetriableRemoteStorageError) -> None:
        """A try failed of what may heal: it is tried again unless that has gone on for too long.
        That metadata is still being read is no trouble of the store: look-ups wait for it."""
        if ask.retry_ms is not None and isinstance(error, RemoteStorageNotReady):
            return
        ask.pending.trouble = error
        now_s = self._clock.monotonic()
        if now_s >= ask.give_up_s:
            self._fail(ask, error)
        elif ask.retry_ms is not None:
            ask.give_up_s = min(ask.give_up_s, now_s + ask.retry_ms / 1000)

    def _fail(self, ask: _Ask[Any], error: BaseException) -> None:
        ask.pending.is_done = True
        ask.pending.error = error
        self._took(ask)
        if not isinstance(error, RemoteResourceNotFound):
            was_read = not isinstance(error, PoolFullError)  # in Kafka the readers count
            self.failed(ask.topic, error, of_fetch=was_read and ask.begun_s is not None)

    def failed(self, topic: str, error: BaseException, *, of_fetch: bool) -> None:
        """A consumer is told of a failure. Those who cancel a read that was in trouble for as long
        as they could wait tell here themselves."""
        if of_fetch:
            self._mark(_ERRORS, topic)
        level = logging.DEBUG if topic in self._failing else logging.WARNING
        self._failing[topic] = None
        _log.log(level, "read of %s in the remote tier failed: %s", topic, error)

    def _took(self, ask: _Ask[Any]) -> None:
        if self._timer is not None and ask.begun_s is not None:
            self._timer.record(self._clock.monotonic() - ask.begun_s)

    async def _drive(self, ask: _Ask[T], run: _Run[T] | None) -> None:
        """Bring a read to its end, trying again what may heal until then or until cancelled."""
        backoff_s = _BACKOFF_MIN_S
        is_lost = False
        pending = ask.pending
        while not pending.is_done:
            try:
                if run is None:
                    pause_s = backoff_s * self._rng.uniform(0.8, 1.2)
                    await asyncio.sleep(min(pause_s, ask.give_up_s - self._clock.monotonic()))
                    backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
                    run = _Run(ask.steps())
                await self._run_on(run)
                self._finish(ask, run.result)
            except RetriableRemoteStorageError as error:
                self._troubled(ask, error)
                run = None
            except LostError as error:
                # The store has no such object. If the segment was deleted meanwhile, its metadata
                # says so, and the next try what that means.
                if is_lost:
                    self._fail(ask, RemoteStorageError(str(error)))
                is_lost = True
                run = None
            except (RemoteStorageError, PoolFullError) as error:
                self._fail(ask, error)
            except Exception as error:  # noqa: BLE001 - plug-ins raise what they like
                _log.exception("read of %s in the remote tier", ask.topic)
                self._fail(ask, error)
        pending.on_cancel = None
        ask.on_done()

    async def _run_on(self, run: _Run[T]) -> None:
        """Load what is needed until the steps end."""
        self._advance(run)
        while not run.is_done:
            job = run.job
            if job is None:  # a pause
                await asyncio.sleep(0)
                run.supply(None)
            else:
                loaded = await self._loader.loaded(job)
                if self.sources.satisfies(job, run.need, loaded):
                    run.supply(loaded)  # type: ignore[arg-type]
            self._advance(run)

    def _advance(self, run: _Run[T]) -> None:
        """Feed the steps from memory until they end, pause or wait for a `job`."""
        now_ms = self._now_ms()
        while not run.is_done:
            need = run.need
            if isinstance(need, Pause):
                return
            found = self.sources.lookup(need, now_ms)
            if not isinstance(found, Job):
                run.supply(found)
            elif not isinstance(need, NeedIndexes) and need.is_optional:
                run.supply(None)
            else:
                run.job = found
                return

    # ---- what follows a read ------------------------------------------------------------------

    def _read_on(self, request: RemoteRead, records: RemoteRecords, log: Log) -> None:
        """A consumer was served: have ready what it asks for next, if it goes on like that."""
        if self._is_closed:
            return
        now_ms = self._now_ms()
        window = self.sources.read_ahead.read_on(
            request.partition, request.offset, records.next_offset, records.size, now_ms
        )
        if records.place is None:
            return
        segment, position = records.place
        is_near = self.sources.stopped(segment, records.next_offset, position, now_ms)
        if window.is_due or (is_near and window.bytes):
            ahead = Ahead(
                segment,
                position,
                request.max_bytes,
                window.bytes,
                lambda after: self._following(after, log),
            )
            if is_near:
                self._loader.make_ready(ahead)
            else:
                self._loader.fetch_ahead(ahead)

    def _following(self, segment: RemoteSegment, log: Log) -> RemoteSegment | None:
        """The segment that a reader comes to next."""
        offset = segment.end_offset + 1
        epoch = log.epochs.epoch_for_offset(offset)
        if epoch is None or offset >= log.local_log_start_offset:
            return None
        try:
            return self._metadata.segment_for(segment.topic_id_partition, epoch, offset)
        except RemoteStorageError:
            return None

    # ---- the caches ---------------------------------------------------------------------------

    def forget(self, segment_ids: Iterable[UUID]) -> None:
        """Segments were deleted: drop what is cached of them at once."""
        self.sources.forget(segment_ids, self._now_ms())

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow dynamic settings; the threads and the quota are their owners'."""
        self.fetch_wait_ms = config.remote_fetch_max_wait_ms
        self.list_offsets_timeout_ms = config.remote_list_offsets_request_timeout_ms
        size_bytes = config.remote_log_index_file_cache_total_size_bytes
        self.sources.indexes.resize(size_bytes, self._now_ms())

    def _keep_clean(self) -> None:
        """While there is something in the caches, look after it now and then."""
        if self._cleaning is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._cleaning = loop.call_later(_CLEAN_INTERVAL_S, self._clean)

    def _clean(self) -> None:
        self._cleaning = None
        leftovers = self.sources.expire(self._now_ms())
        if leftovers is not None:
            task = asyncio.get_running_loop().create_task(self._finish_cleaning(leftovers))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        if not self.sources.is_clean:
            self._keep_clean()

    async def _finish_cleaning(self, leftovers: Leftovers) -> None:
        """Close and remove files on a thread. While the queue is full the next cleaning gets them;
        what fails is left for the next start."""
        try:
            await self._pool.run(self.sources.clean, leftovers)
        except PoolFullError:
            self.sources.put_back(leftovers, self._now_ms())
            self._keep_clean()
        except Exception as error:  # noqa: BLE001 - a disk: nobody waits for this
            _log.warning("index cache: %s", error)

    async def close(self) -> None:
        """Cancel all reads and let go of the caches; what a thread has begun is left to it."""
        self._is_closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()
            self._cleaning = None
        waiting = list(self._tasks)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._loader.close()
        self.sources.clear()

    def _now_ms(self) -> int:
        return self._clock.wall_ms()

    def _mark(self, name: Name, topic: str, amount: float = 1) -> None:
        if self.meters is not None:
            self.meters.mark(name, amount, topic=topic)
