"""The broker's periodic work: flush, retention, compaction, checkpoints. The loop runs the timers;
fsync leaves the loop.

It starts last and stops first, because it needs everything else. Each kind has one run at a time; a
run that exceeds its interval delays the next one.
"""

# ruff: noqa: PLC0415 - compaction is imported when it is first due

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog_storage.open_files import lacks_descriptors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tidelog.config.broker import BrokerConfig
    from tidelog.seams import Clock, Executor, Timeline
    from tidelog_storage.compaction.cleaner import CleanerLimits, Cleaning, LogCleaner
    from tidelog_storage.compaction.rewriting import Progress
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

__all__ = ["Maintenance"]

log = logging.getLogger("tidelog.maintenance")

POLL_S = 0.01
FLUSH_INTERVAL_MS = 10_000  # sealed segments become durable, deleted files are removed, and
# log directories looked for


class Maintenance:
    """Timers over the methods of a `LogManager`."""

    def __init__(
        self,
        *,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        work: Timeline,
        executor: Executor,
        on_failure: Callable[[OSError], None],
    ) -> None:
        """`on_failure` gets the error if data could not be made durable."""
        self._logs = logs
        self._config = config
        self._clock = clock
        self._time = work
        self._executor = executor
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._cleaner: LogCleaner | None = None
        self._compactors: set[int] = set()  # numbers of the tasks that compact
        self._is_running = False

    def start(self) -> None:
        """Begin after log.initial.task.delay.ms; compaction at once, as Kafka's LogCleaner."""
        config = self._config
        flush_ms = min(config.log_flush_scheduler_interval_ms, FLUSH_INTERVAL_MS)
        checkpoint_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        works = [
            ("retention", config.log_retention_check_interval_ms, self._retention),
            ("flush", flush_ms, self._flush),
            ("checkpoints", checkpoint_ms, self._checkpoint),
        ]
        if not config.is_alone():  # a lone broker finds it in its log
            interval_ms = config.replica_high_watermark_checkpoint_interval_ms
            works.append(("high-watermarks", interval_ms, self._checkpoint_high_watermarks))
        for name, interval_ms, work in works:
            self._begin(name, config.log_initial_task_delay_ms, interval_ms, work)
        expiry_ms = config.producer_id_expiration_check_interval_ms
        if expiry_ms < config.log_retention_check_interval_ms:  # else retention forgets them
            self._begin("producers", expiry_ms, expiry_ms, self._expire_producers)
        self._is_running = True
        self._begin_compactors()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow `log.cleaner.*`; a pass that runs keeps its map, a pause its length."""
        self._config = config
        if self._cleaner is not None:
            self._cleaner.limits = self._cleaner_limits()
        if self._is_running:
            self._begin_compactors()

    def _begin_compactors(self) -> None:
        """Begin what is missing of `log.cleaner.threads`; what is too many ends by itself."""
        if not self._config.log_cleaner_enable:
            return
        for number in range(self._config.log_cleaner_threads):
            if number not in self._compactors:
                self._compactors.add(number)
                self._add(f"compaction-{number}", self._repeat_compaction(number))

    def _begin(
        self, name: str, delay_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        self._add(name, self._repeat(delay_ms, interval_ms, work))

    def _add(self, name: str, repeated: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(repeated, name=f"maintenance-{name}")
        self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    async def stop(self) -> None:
        """Stop, even in the middle of a run: `LogManager.shutdown` repeats all of it."""
        self._is_running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(
        self, delay_ms: int, interval_ms: int, work: Callable[[], Awaitable[None]]
    ) -> None:
        await self._time.sleep(delay_ms / 1000)
        while True:
            await self._attempt(work)
            await self._time.sleep(max(interval_ms, 1) / 1000)

    async def _repeat_compaction(self, number: int) -> None:
        """Compact while `log.cleaner.threads` is above this number."""
        await self._time.sleep(0)
        while number < self._config.log_cleaner_threads:
            await self._attempt(self._compact)
            await self._time.sleep(max(self._config.log_cleaner_backoff_ms, 1) / 1000)
        self._compactors.discard(number)

    async def _attempt(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OSError as error:
            self._note(error)
        except Exception:
            log.exception("periodic work failed and will be retried")

    def _note(self, error: OSError) -> None:
        if lacks_descriptors(error):
            log.warning("periodic work failed and will be retried: %s", error)
        else:
            self._on_failure(error)

    async def _retention(self) -> None:
        now_ms = self._clock.wall_ms()
        removed = 0
        for count in self._logs.upkeep.retention(now_ms):
            removed += count
            await asyncio.sleep(0)  # others have a turn
        if removed:
            log.info("retention deleted %d segments", removed)
        await self._remove(now_ms)

    async def _expire_producers(self) -> None:
        for _ in self._logs.upkeep.expire_producers(self._clock.wall_ms()):
            await asyncio.sleep(0)

    async def _flush(self) -> None:
        now_ms = self._clock.wall_ms()
        for error in self._logs.upkeep.gone():
            self._note(error)
        await self._remove(now_ms)
        for due in self._logs.upkeep.flush_dirty(now_ms):
            if due is None:
                await asyncio.sleep(0)
                continue
            partition_log, task = due
            try:
                await self._executor.run(task)
            except OSError as error:  # other directories may still work
                self._note(error)
            else:
                partition_log.flushed(task)

    async def _remove(self, now_ms: int) -> None:
        for remove in self._logs.upkeep.prepare_removals(now_ms):
            if remove is None:
                await asyncio.sleep(0)
                continue
            try:
                await self._executor.run(remove)
            except OSError as error:  # other directories may still work
                self._note(error)

    async def _checkpoint(self) -> None:
        await self._note_offsets()
        await self._executor.run(self._logs.upkeep.prepare_noted_checkpoints())

    async def _note_offsets(self) -> None:
        for _ in self._logs.upkeep.note_offsets():
            await asyncio.sleep(0)

    async def _checkpoint_high_watermarks(self) -> None:
        await self._note_offsets()
        for write in self._logs.upkeep.prepare_high_watermarks():
            await self._executor.run(write)

    # -- compaction --------------------------------------------------------------------------------

    async def _compact(self) -> None:
        """Compact in passes, as long as a log is dirty enough."""
        if not any(
            one.config.is_compacted and len(one.segments) > 1 for one in self._logs.loaded()
        ):
            return
        cleaner = self._log_cleaner()
        while (cleaning := cleaner.begin(self._clock.wall_ms())) is not None:
            try:
                if not await self._clean(cleaner, cleaning):
                    return
            finally:
                cleaner.end(cleaning)

    async def compact_now(self, log: Log) -> int:
        """Compact a log, however little of it is dirty; return the number of passes. OSError."""
        cleaner, passes = self._log_cleaner(), 0
        while cleaner.is_running(log):  # noqa: ASYNC110 - seldom
            await asyncio.sleep(POLL_S)
        while (cleaning := cleaner.begin(self._clock.wall_ms(), log)) is not None:
            try:
                if not await self._clean(cleaner, cleaning):
                    break
            except OSError as error:
                self._note(error)
                raise
            finally:
                cleaner.end(cleaning)
            passes += 1
        return passes

    def _log_cleaner(self) -> LogCleaner:
        if self._cleaner is None:
            from tidelog_storage.compaction.cleaner import LogCleaner

            self._cleaner = LogCleaner(self._logs, self._cleaner_limits())
        return self._cleaner

    def _cleaner_limits(self) -> CleanerLimits:
        from tidelog_storage.compaction.cleaner import CleanerLimits

        config = self._config
        return CleanerLimits(
            config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1),
            config.log_cleaner_io_buffer_load_factor,
        )

    async def _clean(self, cleaner: LogCleaner, cleaning: Cleaning) -> bool:
        """Run one pass; False if the next one should wait.

        OSError of a flush, a checkpoint or a swap: the state of the disk is unknown.
        """
        run = self._executor.run
        flush = cleaning.prepare_flush()
        if flush is not None:
            await run(flush)
            cleaning.log.flushed(flush)
        checkpoint = cleaner.prepare_checkpoint(cleaning)
        if checkpoint is None:
            return False
        await run(checkpoint)
        while True:
            started_s = self._clock.monotonic()
            progress = await self._step(cleaner, cleaning)
            if progress is None:
                return False
            if not cleaner.advance(cleaning, progress, self._clock.wall_ms()):
                break
            # Python code on a thread blocks the loop, so the loop gets the same time for itself.
            busy_s = self._clock.monotonic() - started_s
            moved_bytes = progress.read_bytes + progress.written_bytes
            rate = self._config.log_cleaner_io_max_bytes_per_second
            await asyncio.sleep(max(busy_s, moved_bytes / rate - busy_s))
        checkpoint = cleaner.finish(cleaning) if progress.is_done else None
        if checkpoint is not None:
            await run(checkpoint)
            log.info("compacted %s", cleaning)
        return True

    async def _step(self, cleaner: LogCleaner, cleaning: Cleaning) -> Progress | None:
        """Run one step of a pass; None if it failed."""
        try:
            return await self._executor.run(cleaning.rewriting.step)
        except OSError as error:
            if cleaner.is_alive(cleaning):
                log.warning(
                    "compaction of %s failed and will be retried: %s",
                    cleaning.log.topic_partition,
                    error,
                )
        except Exception:
            if cleaner.is_alive(cleaning):
                cleaner.leave_alone(cleaning)
                log.exception("%s is not compacted any more", cleaning.log.topic_partition)
        return None
