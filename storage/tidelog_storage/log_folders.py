"""The logs of a broker and their folders: create, load, delete, move between directories.

The lower half of `manager.py`, which adds the manager's life and its periodic work.

A log that is being moved (KIP-113) has a second one, its *future*, in another directory, in a
folder `topic-partition.<unique id>-future`. The broker copies into it what the current one has.
When both end at the same offset `replace_current` lets the future take the other's place, by two
renames, each durable before the next step: first the current folder becomes one to be deleted, then
the future's gets the plain name. So after a crash there is never a second current log, and a future
without a current log is whole: `adopt_futures` makes it the current one. (Kafka renames in the
other order, and does not start after a crash in between.)
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import read_partition_metadata
from tidelog_storage.directory import LogDirectory
from tidelog_storage.folders import (
    DELETE_SUFFIX,
    free_folder,
    future_folder,
    has_begun,
    make_folder,
)
from tidelog_storage.loading import LogContext
from tidelog_storage.recovery import load_log
from tidelog_storage.removals import Removals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.guarded_files import GuardedFiles
    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.types import TopicPartition


class LogFolders:
    """Logs by partition. Invariant: the current log of a partition lies in at most one directory,
    its future one in at most one other."""

    def __init__(
        self,
        files: FileSystem,
        log_dirs: Sequence[str],
        defaults: LogConfig,
        *,
        metadata_dir: str | None = None,
        producer_expiration_ms: int = 86_400_000,
        remote_storage_system_enable: bool = False,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`defaults` configure a loaded log until the broker sets its own, before which nothing is
        deleted; `report` gets a sentence for each repair. `metadata_dir` is locked too, and may
        hold no logs."""
        assert log_dirs
        self._files = files
        self._defaults = defaults
        self._provisional = defaults.keeping_all()
        self._producer_expiration_ms = producer_expiration_ms
        self._remote_storage_system_enable = remote_storage_system_enable
        self._report = report
        self._now_ms = 0  # the time of opening, which is good enough for later loads
        self._logs: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self._rolled: set[Log] = set()  # have sealed segments that are not durable
        self._removals = Removals(files.remove_tree)  # folders of deleted partitions
        self.directories = [LogDirectory(files, path, report) for path in log_dirs]
        self._without_logs: list[LogDirectory] = []
        if metadata_dir is not None and metadata_dir not in log_dirs:
            self._without_logs.append(LogDirectory(files, metadata_dir))
        self.on_roll: Callable[[Log], None] | None = None
        """Hears of every current log that has a newly sealed segment."""

    @property
    def log_dirs(self) -> list[str]:
        """Paths of the directories."""
        return [directory.path for directory in self.directories]

    # -- current logs ------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, loading it if one of the directories has it; else None.

        OSError if that directory has failed.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        for directory in self.directories:
            if partition in directory.partitions:
                return self._load(directory, partition)
        return None

    def fail(self, log_dir: str, error: OSError) -> None:
        """Drop the logs of a directory whose disk has failed, as in a crash.

        Nothing in it is made durable before the next start. No error if it had already failed.
        """
        directory = self._directory_at(log_dir)
        directory.files.fail(error)
        logs = [self._logs.pop(key) for key in directory.partitions if key in self._logs]
        for log in (*logs, *directory.future_logs.values()):
            self._rolled.discard(log)
            log.release()
        directory.future_logs.clear()

    def taken(self) -> list[LogDirectory]:
        """Return the directories whose locks this broker holds."""
        return [*self.directories, *self._without_logs]

    def files_of(self, log_dir: str) -> GuardedFiles:
        """Return the files of a log directory, or of that of the metadata log."""
        return next(directory.files for directory in self.taken() if directory.path == log_dir)

    def holder_of(self, path: str) -> str | None:
        """Return the directory that holds a file or folder; None if none does."""
        for directory in self.directories:
            if path.startswith(f"{directory.path}/"):
                return directory.path
        return None

    def items(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Return all partitions with their logs, loading them, without failed directories."""
        for directory in self.directories:
            if directory.failure is not None:
                continue
            for partition in sorted(directory.partitions):
                log = self.get(partition)
                if log is not None:
                    yield partition, log

    def topic_ids(self) -> dict[TopicPartition, bytes]:
        """Return all partitions with their topic ids; load nothing."""
        return {
            key: one for directory in self.directories for key, one in directory.partitions.items()
        }

    def loaded(self) -> Iterable[Log]:
        """Return the logs loaded since the start."""
        return self._logs.values()

    def create(self, partition: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """Create an empty log in the preferred directory, or the one with the fewest; an existing
        log gets the configuration.

        The caller has compared topic ids. OSError if the directory fails.
        """
        log = self.get(partition)
        if log is not None:
            log.config = config
        else:
            directory = self._wanted(partition)
            log = self._make(directory, f"{partition}", partition, topic_id, config)
            self._logs[partition] = log
            directory.partitions[partition] = topic_id
            self._preferred.pop(partition, None)
        return log

    def _make(
        self,
        directory: LogDirectory,
        name: str,
        partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
    ) -> Log:
        """Create an empty log in a new folder, after removing all of an earlier log of that
        name."""
        self.forget_missing(partition)
        directory.clear_for(partition, self._logs)
        make_folder(directory.files, f"{directory.path}/{name}", topic_id)
        return self._load_from(directory, name, partition, config, topic_id)

    def prefer(self, partition: TopicPartition, log_dir: str) -> None:
        """Create a missing partition in that directory later, if ever."""
        self._preferred[partition] = log_dir

    def log_dir(self, partition: TopicPartition) -> str:
        """Return the directory of a partition's log; KeyError if it has none."""
        return self._directory_of(partition).path

    def log_dir_wanted(self, partition: TopicPartition) -> str:
        """Return the directory of a partition's log, or the one in which it would be created."""
        try:
            return self.log_dir(partition)
        except KeyError:
            return self._wanted(partition).path

    def directory_id(self, log_dir: str) -> bytes:
        """Return the directory id of a directory."""
        return self._directory_at(log_dir).directory_id

    def _wanted(self, partition: TopicPartition) -> LogDirectory:
        preferred = self._preferred.get(partition)
        if preferred is not None:
            return self._directory_at(preferred)
        live = [one for one in self.directories if one.failure is None] or self.directories
        if len(live) > 1:  # continue what a crash left, else it would stay beside the log
            begun = [one for one in live if has_begun(one.files, f"{one.path}/{partition}")]
            live = begun or live
        return min(live, key=lambda one: len(one.partitions) + len(one.futures))

    def delete(self, partition: TopicPartition, now_ms: int = 0) -> None:
        """Remove a log and its future at once; rename their folders now and remove them later.

        No error if there is none.
        """
        self.delete_future(partition, now_ms)
        try:
            directory = self._directory_of(partition)
        except KeyError:
            return
        log = self._logs.pop(partition, None)
        self._take_out(directory, f"{directory.path}/{partition}", partition, log, now_ms)

    def _take_out(
        self,
        directory: LogDirectory,
        folder: str,
        partition: TopicPartition,
        log: Log | None,
        now_ms: int,
    ) -> None:
        delay_ms = self._defaults.file_delete_delay_ms
        if log is not None:
            log.release()
            delay_ms = log.config.file_delete_delay_ms
            self._rolled.discard(log)
        directory.forget(partition)
        target = self._deleted_folder(directory, partition, log)
        self._files.rename(folder, target)
        self._removals.add(now_ms + delay_ms, [target])

    def set_aside(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Remove logs and their futures, keep their folders as strays; return their new paths."""
        for partition in partitions:
            current = self._logs.pop(partition, None)
            futures = [directory.future_logs.get(partition) for directory in self.directories]
            for log in (current, *futures):
                if log is not None:
                    log.release()
                    self._rolled.discard(log)
        return [
            path
            for directory in self.directories
            for path in directory.set_aside(partitions, self._logs)
        ]

    def _deleted_folder(
        self, directory: LogDirectory, partition: TopicPartition, log: Log | None
    ) -> str:
        """Return a new folder name, because an earlier incarnation may still be being removed."""
        topic_id = (log.topic_id if log else None) or bytes(16)
        return free_folder(self._files, directory.path, partition, topic_id, DELETE_SUFFIX)

    def _directory_of(self, partition: TopicPartition) -> LogDirectory:
        for directory in self.directories:
            if partition in directory.partitions:
                return directory
        raise KeyError(partition)

    def _directory_at(self, path: str) -> LogDirectory:
        return next(directory for directory in self.directories if directory.path == path)

    # -- lost logs ---------------------------------------------------------------------------------

    @property
    def has_new_directory(self) -> bool:
        """Return whether a directory is unused: it may replace a lost one."""
        return any(directory.is_new for directory in self.directories)

    def missing(self) -> set[TopicPartition]:
        """Return partitions that had a log at the last checkpoint, and have none now."""
        known = {*self.topic_ids(), *self.future_partitions()}
        named = set().union(*(directory.missing for directory in self.directories))
        for partition in named & known:  # moved to another directory
            self.forget_missing(partition)
        return named - known

    def keep_missing(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember across restarts that these logs are lost. From now on no directory is new."""
        for partition in partitions:
            self._wanted(partition).note_missing(partition)
        for directory in self.directories:
            if directory.is_new or partitions:
                directory.prepare_recovery_points(self._logs)()
                directory.is_new = False

    def forget_missing(self, partition: TopicPartition) -> None:
        """Allow a lost partition to start with an empty log."""
        for directory in self.directories:
            directory.forget_missing(partition, self._logs)

    # -- future logs -------------------------------------------------------------------------------

    def is_moving(self, partition: TopicPartition) -> bool:
        """Return whether there is a future log; until the move ends, the current one is neither
        compacted nor shortened by retention."""
        return self._future_directory(partition) is not None

    def future_partitions(self) -> list[TopicPartition]:
        """Return all partitions that are being moved."""
        return [partition for directory in self.directories for partition in directory.futures]

    def future_log_dir(self, partition: TopicPartition) -> str | None:
        """Return the directory to which a partition is being moved."""
        directory = self._future_directory(partition)
        return None if directory is None else directory.path

    def future(self, partition: TopicPartition) -> Log | None:
        """Return the future log, loading it if there is one."""
        directory = self._future_directory(partition)
        if directory is None:
            return None
        log = directory.future_logs.get(partition)
        if log is None:
            log = self._load_from(directory, directory.futures[partition], partition, None, None)
            directory.future_logs[partition] = log
        return log

    def create_future(
        self, partition: TopicPartition, log_dir: str, unique_id: str, config: LogConfig
    ) -> Log:
        """Create an empty future log in another directory than the current one's. OSError, without
        a future log, if that fails."""
        current = self.get(partition)
        directory = self._directory_at(log_dir)
        assert current is not None
        assert current.topic_id is not None
        assert directory is not self._directory_of(partition)
        assert not self.is_moving(partition)
        name = future_folder(partition, unique_id)
        try:
            log = self._make(directory, name, partition, current.topic_id, config)
            directory.files.fsync_dir(directory.path)
        except OSError:
            with suppress(OSError):
                self._files.remove_tree(f"{directory.path}/{name}")
            raise
        directory.futures[partition] = name
        directory.future_logs[partition] = log
        return log

    def delete_future(self, partition: TopicPartition, now_ms: int = 0) -> None:
        """Cancel a move; no error if there is none."""
        directory = self._future_directory(partition)
        if directory is None:
            return
        folder = f"{directory.path}/{directory.futures[partition]}"
        log = directory.future_logs.get(partition)
        self._take_out(directory, folder, partition, log, now_ms)
        directory.files.fsync_dir(directory.path)  # otherwise it might return beside a newer one

    def replace_current(self, partition: TopicPartition, now_ms: int) -> Log:
        """Replace the current log by the future one, which has the same end; return it.

        An OSError leaves both unchanged.
        """
        source, target = self._directory_of(partition), self._future_directory(partition)
        assert target is not None
        old, new = self._logs[partition], target.future_logs[partition]
        assert old.log_end_offset == new.log_end_offset
        target.prepare_checkpoints(self._logs)()
        deleted = self._deleted_folder(source, partition, old)
        folder, future = f"{target.path}/{partition}", new.folder
        try:
            self._files.rename(old.folder, deleted)
            source.files.fsync_dir(source.path)
            self._files.rename(future, folder)
            target.files.fsync_dir(target.path)
        except OSError:
            self._undo([(target, folder, future), (source, deleted, old.folder)])
            raise
        new.move_to(folder)
        topic_id = source.partitions[partition]
        target.promote(partition, topic_id, source.compacted_to(partition))
        source.forget(partition)
        self._logs[partition] = new
        self._rolled.discard(old)
        old.release()
        self._removals.add(now_ms + old.config.file_delete_delay_ms, [deleted])
        return new

    def _undo(self, renames: list[tuple[LogDirectory, str, str]]) -> None:
        """Undo renames. If that fails, the state is that after a crash."""
        for directory, now, before in renames:
            with suppress(OSError):
                if self._files.exists(now):
                    self._files.rename(now, before)
                    directory.files.fsync_dir(directory.path)

    def adopt_futures(self) -> None:
        """At the start, complete the last step of moves that a crash interrupted, and remove
        futures that cannot be completed."""
        moving: set[TopicPartition] = set()
        for directory in self.directories:
            for partition, name in list(directory.futures.items()):
                folder = f"{directory.path}/{name}"
                current = next((d for d in self.directories if partition in d.partitions), None)
                if current is None:
                    topic_id = read_partition_metadata(self._files, folder)
                    assert topic_id is not None, "a future without one is none"
                    self._files.rename(folder, f"{directory.path}/{partition}")
                    directory.files.fsync_dir(directory.path)
                    directory.promote(partition, topic_id)
                    if self._report is not None:
                        self._report(f"{partition}: moved to {directory.path} at last")
                elif current is directory or partition in moving:
                    del directory.futures[partition]
                    directory.deleted_folders.append(folder)
                else:
                    moving.add(partition)

    def _future_directory(self, partition: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if partition in directory.futures:
                return directory
        return None

    # -- loading -----------------------------------------------------------------------------------

    def _load(self, directory: LogDirectory, partition: TopicPartition) -> Log:
        topic_id = directory.partitions[partition]
        log = self._load_from(directory, f"{partition}", partition, None, topic_id)
        self._logs[partition] = log
        return log

    def _load_from(
        self,
        directory: LogDirectory,
        name: str,
        partition: TopicPartition,
        config: LogConfig | None,
        topic_id: bytes | None,
    ) -> Log:
        if directory.failure is not None:
            raise directory.failure

        def note_lowered(offset: int) -> None:
            """Record a lowered recovery point, so that after a crash bytes written since a
            truncation do not count as durable."""
            directory.lower_recovery_point(partition, offset, self._logs)

        context = LogContext(
            directory.files,
            f"{directory.path}/{name}",
            partition,
            self._now_ms,
            topic_id=topic_id,
            producer_expiration_ms=self._producer_expiration_ms,
            remote_storage_system_enable=self._remote_storage_system_enable,
            on_roll=self._note_roll,
            on_recovery_point_lowered=note_lowered,
            report=self._report,
        )
        log = load_log(
            context,
            self._provisional if config is None else config,
            directory.checkpointed(partition),
            is_provisional=config is None,
        )
        if directory.points_are_lost:
            # before its recovery point is written again, which decides about gaps: see `recover`
            log.flush()
        return log

    def _note_roll(self, log: Log) -> None:
        self._rolled.add(log)
        if self.on_roll is not None and self._logs.get(log.topic_partition, log) is log:
            self.on_roll(log)
