"""The periodic work over all logs of a manager, in parts: the caller lets others have turns.

The broker's timers call it; nothing here waits or looks at a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage import directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidelog_storage.flush import FlushTask
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager
    from tidelog_storage.removals import Removals

__all__ = ["Upkeep"]


class Upkeep:
    """Flushes, retention, removals and checkpoints of the logs of one manager."""

    def __init__(self, logs: LogManager, removals: Removals) -> None:
        """`removals` are of the folders of deleted partitions."""
        self._logs = logs
        self.removals = removals
        self.rolled: set[Log] = set()
        """Logs with sealed segments that are not durable."""

    def _in_parts(self) -> Iterator[Log | None]:
        """Yield the logs, and None after each `LOGS_AT_ONCE`: others have a turn then, and may
        delete logs."""
        for number, log in enumerate(self._logs.all_logs(), 1):
            if self._logs.is_open(log):
                yield log
            if number % directory.LOGS_AT_ONCE == 0:
                yield None

    def flush_dirty(self, now_ms: int) -> Iterator[tuple[Log, FlushTask] | None]:
        """Yield the flushes that are due: sealed segments, and logs whose `flush.ms` has passed;
        None between parts.

        Run each task off the loop, then call `log.flushed(task)`, before the next is asked for:
        preparing it may write the log's epochs. Every ten seconds will do.
        """
        rolled, self.rolled = self.rolled, set()
        for log in self._in_parts():
            if log is None:
                yield None
                continue
            if now_ms - log.last_flushed_ms >= log.config.flush_ms:
                log.last_flushed_ms = now_ms
                task = log.prepare_flush()
            elif log in rolled:
                task = log.prepare_flush(log.segments.active.base_offset)
            else:
                continue
            if task is not None:
                yield log, task

    def gone(self) -> Iterator[OSError]:
        """Yield an error for each directory that was removed, emptied or unmounted.

        Kafka meets one within 15 s, at its next checkpoint or look for logs to be compacted.
        """
        for each in self._logs.live():
            try:
                each.check_presence()
            except FileNotFoundError as error:
                yield error

    def retention(self, now_ms: int) -> Iterator[int]:
        """Run one pass of retention over all logs, every log.retention.check.interval.ms; yield the
        number of deleted segments of each part.

        It also expires idle producers and closes unused handles. Logs that are being moved are kept
        whole, as in Kafka.
        """
        count = 0
        for log in self._in_parts():
            if log is None:
                yield count
                count = 0
                continue
            if not self._logs.is_moving(log.topic_partition):
                count += log.delete_old_segments(now_ms)
            log.producers.expire(now_ms)
            log.segments.release_idle(log.recovery_point)
        yield count

    def expire_producers(self, now_ms: int) -> Iterator[None]:
        """Forget idle producers of all logs; yield between parts."""
        for log in self._in_parts():
            if log is None:
                yield
            else:
                log.producers.expire(now_ms)

    def prepare_removals(self, now_ms: int) -> Iterator[Callable[[], None] | None]:
        """Yield removals of files and folders of what was deleted `file.delete.delay.ms` ago, None
        between parts. Call each off the loop.

        A folder is removed once the recovery points no longer name it; before that it would count
        as lost after a crash.
        """
        for log in self._in_parts():
            if log is None:
                yield None
            elif len(log.removals) and (remove := log.removals.prepare(now_ms)) is not None:
                yield remove
        if self.removals.is_due(now_ms):
            yield from self.note_offsets()
            writes = [each.prepare_noted_recovery_points() for each in self._logs.live()]
            yield self.removals.prepare(now_ms, lambda: _call_all(writes))

    def note_offsets(self) -> Iterator[None]:
        """Note the recovery points, high watermarks and log starts of all logs, and yield between
        parts, for what is prepared next."""
        for each in self._logs.live():
            yield from each.note_offsets()

    def prepare_checkpoints(self) -> Callable[[], None]:
        """Recovery points, high watermarks and log starts of now; call the result off the loop.

        One at a time: two at once would write the same file.
        """
        for _ in self.note_offsets():
            pass
        return self.prepare_noted_checkpoints()

    def prepare_noted_checkpoints(self) -> Callable[[], None]:
        """The same, as `note_offsets` has noted them."""
        writes = [each.prepare_noted_checkpoints() for each in self._logs.live()]
        return lambda: _call_all(writes)

    def prepare_high_watermarks(self) -> list[Callable[[], None]]:
        """Writes of `replication-offset-checkpoint`, one for each directory in which a high
        watermark that `note_offsets` has noted moved since the last; call them off the loop. Every
        replica.high.watermark.checkpoint.interval.ms."""
        writes = [each.prepare_high_watermarks() for each in self._logs.live()]
        return [write for write in writes if write is not None]


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()
