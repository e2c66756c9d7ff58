"""All logs of a broker: its log directories, checkpoints, and the periodic work as plain methods.

A directory belongs to one process (`.lock`) and one broker (`meta.properties`). After an orderly
stop logs are loaded when they are first asked for; after a crash all are recovered in `open`. The
broker's timers call `flush_dirty`, `retention`, `prepare_checkpoints` and `prepare_removals`;
nothing here waits or looks at a clock. `__cluster_metadata` is left alone: `MetadataLog` owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.guarded_files import is_broken
from tidelog_storage.log_folders import LogFolders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog_storage.directory import LogDirectory
    from tidelog_storage.flush import FlushTask
    from tidelog_storage.log import Log
    from tidelog_storage.types import TopicPartition


class LogManager(LogFolders):
    """All logs: their life, and their periodic work."""

    @property
    def clean_broker_epoch(self) -> int:
        """Epoch of the broker's last life if that closed all directories in order and nothing is
        lost since, else -1: other replicas that are in sync have more than this broker then."""
        if self.missing():
            return -1
        epochs = {directory.clean_broker_epoch for directory in self.directories}
        if len(epochs) > 1 or any(log.has_lost_records for _, log in self.items()):
            return -1
        return epochs.pop()

    @property
    def ended_broker_epoch(self) -> int:
        """Epoch of the newest life of the broker that certainly has ended, -1 if none is known.

        Each life held the locks that this one holds. A copied directory does not count.
        """
        return max(directory.ended_broker_epoch for directory in self.directories)

    def note_broker_epoch(self, broker_epoch: int) -> None:
        """Note this life's epoch beside the locks."""
        for directory in self.directories:
            directory.note_broker_epoch(broker_epoch)

    # -- life --------------------------------------------------------------------------------------

    def open(
        self,
        *,
        now_ms: int,
        cluster_id: str,
        node_id: int,
        new_directory_id: Callable[[], bytes] | None = None,
    ) -> None:
        """Take the directories, and recover all logs of those that were not closed in order.

        New directories are formatted with ids of `new_directory_id`, if that is given.
        LogDirectoryError, with a sentence for the operator, if one is locked, another's or not
        formatted.
        """
        self._now_ms = now_ms
        try:
            for directory in self.taken():
                directory.take(cluster_id, node_id, new_directory_id)
            for directory in self.directories:
                directory.open()
            self.adopt_futures()
        except BaseException:
            self._release()
            raise
        for directory in self.directories:
            self._removals.add(now_ms, directory.deleted_folders)
            if not directory.had_clean_shutdown:
                for partition in sorted(directory.partitions):
                    self.get(partition)

    def shutdown(self, now_ms: int = 0, *, broker_epoch: int = -1) -> None:
        """Close all logs in order, write the checkpoints, then mark the directories as clean.

        A directory in which a log cannot be closed gets no mark: it will be recovered. Of one whose
        disk fails nothing more is written. The first error is raised at the end.
        """
        del now_ms
        errors: list[Exception] = []
        for directory in self.directories:
            error = self._close(directory, broker_epoch)
            if error is not None:
                errors.append(error)
        self._release()
        self._forget_all()
        if errors:
            raise errors[0]

    def _close(self, directory: LogDirectory, broker_epoch: int) -> Exception | None:
        """Close all logs of a directory in order, even after errors; return the first error."""
        failure: Exception | None = directory.failure
        logs = [self._logs[key] for key in sorted(directory.partitions) if key in self._logs]
        for log in (*logs, *directory.future_logs.values()):
            try:
                if directory.failure is None:
                    log.close()
            except Exception as error:  # noqa: BLE001 - it is raised when the others are closed
                failure = failure or error
                if isinstance(error, OSError) and is_broken(error):
                    directory.files.fail(error)
            log.release()
        try:
            if directory.failure is None:
                directory.prepare_checkpoints(self._logs)()
            if failure is None:
                directory.mark_clean(broker_epoch)
        except OSError as error:
            failure = failure or error
        return failure

    def abandon(self) -> None:
        """Release handles and locks without writing: the next start recovers."""
        for log in self._all():
            log.release()
        self._forget_all()
        self._release()

    def _release(self) -> None:
        for directory in self.taken():
            directory.release()

    def _live(self) -> list[LogDirectory]:
        """Return the directories whose disk has not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    def _all(self) -> list[Log]:
        """Return the loaded logs, including future ones."""
        futures = [log for one in self.directories for log in one.future_logs.values()]
        return [*self._logs.values(), *futures]

    def _forget_all(self) -> None:
        self._logs.clear()
        for directory in self.directories:
            directory.future_logs.clear()

    # -- periodic work -----------------------------------------------------------------------------

    def flush_dirty(self, now_ms: int) -> Iterator[tuple[Log, FlushTask]]:
        """Return the flushes that are due: sealed segments, and logs whose `flush.ms` has passed.

        Run each task off the loop, then call `log.flushed(task)`, before the next is asked for:
        preparing it may write the log's epochs. Every ten seconds will do.
        """
        rolled, self._rolled = self._rolled, set()
        for log in self._all():
            if not self._is_open(log):
                continue  # deleted since the last task
            if now_ms - log.last_flushed_ms >= log.config.flush_ms:
                log.last_flushed_ms = now_ms
                task = log.prepare_flush()
            elif log in rolled:
                task = log.prepare_flush(log.segments.active.base_offset)
            else:
                continue
            if task is not None:
                yield log, task

    def _is_open(self, log: Log) -> bool:
        partition = log.topic_partition
        futures = (one.future_logs.get(partition) for one in self.directories)
        return self._logs.get(partition) is log or log in futures

    def retention(self, now_ms: int) -> int:
        """Run one pass of retention over all logs, every log.retention.check.interval.ms; return
        the number of deleted segments.

        It also expires idle producers and closes unused handles. Logs that are being moved are kept
        whole, as in Kafka.
        """
        count = 0
        for log in self._all():
            if not self.is_moving(log.topic_partition):
                count += log.delete_old_segments(now_ms)
            log.producers.expire(now_ms)
            log.segments.release_idle(log.recovery_point)
        return count

    def prepare_removals(self, now_ms: int) -> list[Callable[[], None]]:
        """Removals of files and folders of what was deleted `file.delete.delay.ms` ago; call them
        off the loop."""
        prepared = [log.removals.prepare(now_ms) for log in self._all() if len(log.removals)]
        return [
            remove
            for remove in (*prepared, self._prepare_folder_removals(now_ms))
            if remove is not None
        ]

    def _prepare_folder_removals(self, now_ms: int) -> Callable[[], None] | None:
        """Remove a folder once the recovery points no longer name it; before that it would count as
        lost after a crash."""
        if not self._removals.is_due(now_ms):
            return None
        writes = [directory.prepare_recovery_points(self._logs) for directory in self.directories]

        def write_all() -> None:
            for write in writes:
                write()

        return self._removals.prepare(now_ms, write_all)

    def prepare_checkpoints(self) -> Callable[[], None]:
        """Recovery points, high watermarks and log starts of now; call the result off the loop.

        One at a time: two at once would write the same file.
        """
        writes = [directory.prepare_checkpoints(self._logs) for directory in self._live()]

        def write() -> None:
            for one in writes:
                one()

        return write

    # -- compaction --------------------------------------------------------------------------------

    def is_cleanable(self, log: Log) -> bool:
        """Return whether the log is current, and not being moved."""
        partition = log.topic_partition
        return self._logs.get(partition) is log and not self.is_moving(partition)

    def compacted_to(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a log is compacted, by its directory's checkpoint."""
        return self._directory_of(partition).compacted_to(partition)

    def may_have_gaps(self, log: Log) -> bool:
        """Return whether offsets may be missing in a log: it is, or was, compacted."""
        return log.config.is_compacted or self.compacted_to(log.topic_partition) is not None

    def prepare_compacted(self, partition: TopicPartition, offset: int) -> Callable[[], None]:
        """A log is compacted up to an offset; call the result off the loop to checkpoint it."""
        return self._directory_of(partition).prepare_compacted(partition, offset)

    def prepare_recovery_points(self, partition: TopicPartition) -> Callable[[], None]:
        """The recovery points of the directory in which a log lies; call the result off the
        loop."""
        return self._directory_of(partition).prepare_recovery_points(self._logs)

    def prepare_high_watermarks(self) -> list[Callable[[], None]]:
        """Writes of `replication-offset-checkpoint`, one for each directory in which a high
        watermark moved since the last; call them off the loop. Every
        replica.high.watermark.checkpoint.interval.ms."""
        writes = [directory.prepare_high_watermarks(self._logs) for directory in self._live()]
        return [write for write in writes if write is not None]
