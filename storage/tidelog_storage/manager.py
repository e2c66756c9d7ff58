"""All logs of a broker: its log directories, checkpoints, and the periodic work as plain methods.

A directory belongs to one process (`.lock`) and one broker (`meta.properties`). After an orderly
stop logs are loaded when they are first asked for; after a crash all are recovered in `open`. The
broker's timers call `flush_dirty`, `retention`, `prepare_checkpoints` and `prepare_removals`;
nothing here waits or looks at a clock. `__cluster_metadata` is left alone: `MetadataLog` owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import write_partition_metadata
from tidelog_storage.directory import DELETE_SUFFIX, LogDirectory
from tidelog_storage.recovery import load_log
from tidelog_storage.removals import Removals
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.flush import FlushTask
    from tidelog_storage.log import Log
    from tidelog_storage.log_state import LogState
    from tidelog_storage.seams import FileSystem

_FOLDER_NAME_MAX = 255


class LogManager:
    """Logs by partition. Invariant: a partition lies in at most one directory."""

    def __init__(
        self,
        files: FileSystem,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        *,
        producer_expiration_ms: int = 86_400_000,
        remote_storage_system_enable: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`defaults` configure a loaded log until the broker sets its own, and nothing of it is
        deleted before; `report` hears of repairs, a sentence each."""
        assert log_dirs
        self._files = files
        self._defaults = defaults
        self._producer_expiration_ms = producer_expiration_ms
        self._remote_storage_system_enable = remote_storage_system_enable
        self._report = report
        self._now_ms = 0  # when opened; loading a log later needs no better time
        self._logs: dict[TopicPartition, Log] = {}
        self._rolled: set[TopicPartition] = set()  # have sealed segments that are not durable
        self._removals = Removals(files.remove_tree)  # folders of deleted partitions
        self.directories = [LogDirectory(files, path) for path in log_dirs]
        self.on_roll: Callable[[LogState], None] | None = None
        """Hears of every log that has a newly sealed segment."""

    @property
    def log_dirs(self) -> list[str]:
        """Paths of the directories."""
        return [directory.path for directory in self.directories]

    @property
    def clean_broker_epoch(self) -> int:
        """Epoch of the broker's last life if that closed all directories in order, else -1."""
        epochs = {directory.clean_broker_epoch for directory in self.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    # -- life --------------------------------------------------------------------------------------

    def open(
        self,
        *,
        now_ms: int,
        cluster_id: str,
        node_id: int,
        new_directory_id: Callable[[], bytes],
    ) -> None:
        """Take the directories, and recover all logs of those that were not closed in order.

        LogDirectoryError, with a sentence for the operator, if one is locked or another's.
        """
        self._now_ms = now_ms
        try:
            for directory in self.directories:
                directory.open(cluster_id, node_id, new_directory_id)
        except BaseException:
            for directory in self.directories:
                directory.release()
            raise
        for directory in self.directories:
            self._removals.add(now_ms, directory.deleted_folders)
            if not directory.had_clean_shutdown:
                for partition in sorted(directory.partitions):
                    self.get(partition)

    def shutdown(self, now_ms: int = 0, *, broker_epoch: int = -1) -> None:
        """Close all logs in order, write the checkpoints, then mark the directories as clean.

        A directory that fails gets no mark: it will be recovered. The first error is raised at the
        end.
        """
        del now_ms
        failed: dict[str, Exception] = {}
        for partition, log in self._logs.items():
            try:
                log.close()
            except (OSError, StorageError) as error:
                failed.setdefault(self._directory_of(partition).path, error)
        for directory in self.directories:
            try:
                directory.prepare_checkpoints(self._logs)()
                if directory.path not in failed:
                    directory.mark_clean(broker_epoch)
            except OSError as error:
                failed.setdefault(directory.path, error)
            directory.release()
        self._logs.clear()
        if failed:
            raise next(iter(failed.values()))

    def abandon(self) -> None:
        """Give up handles and locks, writing nothing: the next start will recover."""
        for log in self._logs.values():
            log.release()
        self._logs.clear()
        for directory in self.directories:
            directory.release()

    # -- partitions --------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, loaded if it lies in one of the directories; else None."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        for directory in self.directories:
            if partition in directory.partitions:
                return self._load(directory, partition, None, None)
        return None

    def items(self) -> Iterator[tuple[TopicPartition, Log]]:
        """All partitions with their logs, which are loaded."""
        for directory in self.directories:
            for partition in sorted(directory.partitions):
                log = self.get(partition)
                if log is not None:
                    yield partition, log

    def create(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """A new, empty log in the directory that holds the fewest; an existing one gets the
        configuration.

        The caller has compared topic ids. OSError if the directory fails.
        """
        log = self.get(partition)
        if log is not None:
            log.config = config
        else:
            directory = self._emptiest()
            directory.clear_for(partition, self._logs)
            log = self._load(directory, partition, config, topic_id)
            try:
                write_partition_metadata(self._files, log.folder, topic_id)
            except OSError:
                self._logs.pop(partition).release()
                raise
            log.topic_id = topic_id
            directory.partitions.add(partition)
        return log

    def log_dir(self, partition: TopicPartition) -> str:
        """The directory in which a partition's log lies; KeyError if it has none."""
        return self._directory_of(partition).path

    def log_dir_wanted(self, partition: TopicPartition) -> str:
        """The directory in which a partition's log lies, or would now be created."""
        try:
            return self.log_dir(partition)
        except KeyError:
            return self._emptiest().path

    def _emptiest(self) -> LogDirectory:
        return min(self.directories, key=lambda directory: len(directory.partitions))

    def delete(self, partition: TopicPartition, now_ms: int = 0) -> None:
        """Take a log out at once; its folder is renamed now and removed later.

        No error if there is none.
        """
        try:
            directory = self._directory_of(partition)
        except KeyError:
            return
        folder = f"{directory.path}/{partition}"
        delay_ms = self._defaults.file_delete_delay_ms
        log = self._logs.pop(partition, None)
        if log is not None:
            log.release()
            delay_ms = log.config.file_delete_delay_ms
        self._rolled.discard(partition)
        directory.forget(partition)
        target = self._deleted_folder(directory, partition, log)
        self._files.rename(folder, target)
        self._removals.add(now_ms + delay_ms, [target])

    def _deleted_folder(
        self, directory: LogDirectory, partition: TopicPartition, log: Log | None
    ) -> str:
        """A name of its own for each incarnation: what had it may be being removed right now.

        Topic ids never repeat, but a replica of one may go, come back, and go again.
        """
        topic_id = ((log.topic_id if log else None) or bytes(16)).hex()
        tail = f".{topic_id}{DELETE_SUFFIX}"
        number = 1
        while True:
            target = f"{directory.path}/{f'{partition}'[: _FOLDER_NAME_MAX - len(tail)]}{tail}"
            if not self._files.exists(target):
                return target
            number += 1
            tail = f".{topic_id}-{number}{DELETE_SUFFIX}"

    def _directory_of(self, partition: TopicPartition) -> LogDirectory:
        for directory in self.directories:
            if partition in directory.partitions:
                return directory
        raise KeyError(partition)

    def _load(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        config: LogConfig | None,
        topic_id: bytes | None,
    ) -> Log:
        log = load_log(
            self._files,
            f"{directory.path}/{partition}",
            partition,
            self._defaults.keeping_all() if config is None else config,
            now_ms=self._now_ms,
            had_clean_shutdown=directory.had_clean_shutdown,
            checkpointed=directory.checkpointed(partition),
            topic_id=topic_id,
            producer_expiration_ms=self._producer_expiration_ms,
            is_provisional=config is None,
            remote_storage_system_enable=self._remote_storage_system_enable,
            on_roll=self._note_roll,
            on_recovery_point_lowered=self._note_lowered,
            report=self._report,
        )
        self._logs[partition] = log
        return log

    # -- periodic work -----------------------------------------------------------------------------

    def _note_roll(self, log: LogState) -> None:
        self._rolled.add(log.topic_partition)
        if self.on_roll is not None:
            self.on_roll(log)

    def _note_lowered(self, log: LogState) -> None:
        """A crash must not take bytes written after a truncation for durable ones."""
        self._directory_of(log.topic_partition).lower_recovery_point(log, self._logs)

    def flush_dirty(self, now_ms: int) -> list[tuple[Log, FlushTask]]:
        """What should become durable now: sealed segments, and logs whose `flush.ms` is over.

        Run each task off the loop, then call `log.flushed(task)`. Every ten seconds will do.
        """
        tasks: list[tuple[Log, FlushTask]] = []
        rolled, self._rolled = self._rolled, set()
        for partition, log in self._logs.items():
            if now_ms - log.last_flushed_ms >= log.config.flush_ms:
                log.last_flushed_ms = now_ms
                task = log.prepare_flush()
            elif partition in rolled:
                task = log.prepare_flush(log.segments.active.base_offset)
            else:
                continue
            if task is not None:
                tasks.append((log, task))
        return tasks

    def retention(self, now_ms: int) -> int:
        """One pass over all logs; how many segments went. Every log.retention.check.interval.ms.

        Producers that are idle for too long are forgotten, and unused handles given up.
        """
        count = 0
        for log in self._logs.values():
            count += log.delete_old_segments(now_ms)
            log.producers.expire(now_ms)
            log.segments.release_idle(log.recovery_point)
        return count

    def prepare_removals(self, now_ms: int) -> list[Callable[[], None]]:
        """Removals of files and folders of what was deleted `file.delete.delay.ms` ago; call them
        off the loop."""
        waiting = [*(log.removals for log in self._logs.values()), self._removals]
        prepared = (removals.prepare(now_ms) for removals in waiting if len(removals))
        return [remove for remove in prepared if remove is not None]

    def prepare_checkpoints(self) -> Callable[[], None]:
        """Recovery points, high watermarks and log starts of now; call the result off the loop.

        One at a time: two at once would write the same file.
        """
        writes = [directory.prepare_checkpoints(self._logs) for directory in self.directories]

        def write() -> None:
            for one in writes:
                one()

        return write

    # -- compaction --------------------------------------------------------------------------------

    def loaded(self) -> Iterable[Log]:
        """The logs that somebody has asked for since the start."""
        return self._logs.values()

    def is_current(self, log: Log) -> bool:
        """Whether the log was neither deleted nor created anew."""
        return self._logs.get(log.topic_partition) is log

    def compacted_to(self, partition: TopicPartition) -> int | None:
        """Up to which offset a log is compacted, by its directory's checkpoint."""
        return self._directory_of(partition).compacted_to(partition)

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
        writes = [directory.prepare_high_watermarks(self._logs) for directory in self.directories]
        return [write for write in writes if write is not None]
