"""All logs of a broker: its log directories, checkpoints, and the periodic work as plain methods.

A directory belongs to one process (`.lock`) and one broker (`meta.properties`). After an orderly
stop logs are loaded when they are first asked for; after a crash all are recovered in `open`. The
broker's timers call `upkeep`;
nothing here waits or looks at a clock. `__cluster_metadata` is left alone: `MetadataLog` owns it.

A log that is being moved (KIP-113) has a second one, its *future*, in another directory, in a
folder `topic-partition.<unique id>-future`. The broker copies into it what the current one has.
When both end at the same offset `replace_current` lets the future take the other's place, by two
renames, each durable before the next step: first the current folder becomes one to be deleted, then
the future's gets the plain name. So after a crash there is never a second current log, and a future
without a current log is whole: `adopt_futures` makes it the current one. (Kafka renames in the
other order, and does not start after a crash in between.)
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
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
from tidelog_storage.guarded_files import is_broken
from tidelog_storage.loading import LogContext
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.recovery import load_log
from tidelog_storage.removals import Removals
from tidelog_storage.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.guarded_files import GuardedFiles
    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.types import TopicPartition


class LogManager:
    """All logs: their folders, their life and their periodic work.

    Invariant: the current log of a partition lies in at most one directory, its future one in at
    most one other.
    """

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
        """`defaults` configure a loaded log until the broker sets its own, before which nothing is
        deleted; `report` gets a sentence for each repair."""
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
        self.upkeep = Upkeep(self, Removals(files.remove_tree))
        self.directories = [LogDirectory(files, path, self._logs, report) for path in log_dirs]
        self._without_logs: list[LogDirectory] = []
        self._metadata_dir: str | None = None
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that get no new logs, as long as another one can (KIP-1066)."""
        self.unadopted: set[TopicPartition] = set()
        """Partitions that were being moved, and whose current log may be in an unread directory."""
        self.on_roll: Callable[[Log], None] | None = None
        """Hears of every current log that has a newly sealed segment."""

    def add_metadata_dir(self, path: str) -> None:
        """Lock that of the metadata log too, which may hold no other logs. Before `open`."""
        self._metadata_dir = path
        if path not in self.log_dirs:
            self._without_logs.append(LogDirectory(self._files, path, {}))

    @property
    def log_dirs(self) -> list[str]:
        """Paths of the directories."""
        return [directory.path for directory in self.directories]

    @property
    def clean_broker_epoch(self) -> int:
        """Epoch of the broker's last life if that closed all directories in order and nothing is
        lost since, else -1: other replicas that are in sync have more than this broker then."""
        if self.missing() or len(self.live()) < len(self.directories):
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
        for directory in self.live():
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

        New directories are formatted with ids of `new_directory_id`, if that is given. One that
        cannot be read is offline in this life (KIP-112), unless it is the last or has the metadata
        log: then OSError. LogDirectoryError, with a sentence for the operator, if one is locked,
        another's or not formatted.
        """
        self._now_ms = now_ms
        try:
            for directory in self.taken():
                with self._passing_over(directory):
                    directory.take(cluster_id, node_id, new_directory_id)
            for directory in self.live():
                with self._passing_over(directory):
                    directory.open()
            self.adopt_futures()
        except BaseException:
            self._release()
            raise
        for directory in self.live():
            self.upkeep.removals.add(now_ms, directory.deleted_folders)
            if not directory.had_clean_shutdown:
                with self._passing_over(directory, self._drop_logs):
                    for partition in sorted(directory.partitions):
                        self.get(partition)

    @contextmanager
    def _passing_over(
        self,
        directory: LogDirectory,
        drop: Callable[[LogDirectory, OSError], None] = LogDirectory.set_offline,
    ) -> Iterator[None]:
        """Leave a directory out that fails meanwhile, if the others are enough."""
        try:
            yield
        except OSError as error:
            if lacks_descriptors(error):
                raise
            drop(directory, error)
            if directory.path == self._metadata_dir or not self.live():
                raise
            if self._report is not None:
                self._report(
                    f"log directory {directory.path} is offline until the next start: {error}"
                )

    def shutdown(self, now_ms: int = 0, *, broker_epoch: int = -1) -> None:
        """Close all logs in order, write the checkpoints, then mark the directories as clean.

        A directory in which a log cannot be closed gets no mark: it will be recovered. Of one whose
        disk fails nothing more is written. The first error is raised at the end; a directory that
        had failed before is none, as in Kafka: that is known.
        """
        del now_ms
        for _ in self.closing(broker_epoch):
            pass

    def closing(self, broker_epoch: int = -1) -> Iterator[None]:
        """Do what `shutdown` does, and yield after each log: thousands of them take seconds.

        The caller may stop early, and call `abandon`.
        """
        errors: list[Exception] = []
        for directory in self.directories:
            error = yield from self._close(directory, broker_epoch)
            if error is not None:
                errors.append(error)
        self._release()
        self._forget_all()
        if errors:
            raise errors[0]

    def _close(
        self, directory: LogDirectory, broker_epoch: int
    ) -> Generator[None, None, Exception | None]:
        """Close all logs of a directory in order, even after errors; return the first error."""
        failure: Exception | None = None
        had_failed = directory.failure is not None
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
            yield
        try:
            if directory.failure is None:
                directory.prepare_checkpoints()()
            if failure is None and not had_failed:
                directory.mark_clean(broker_epoch)
        except OSError as error:
            failure = failure or error
        return failure

    def abandon(self) -> None:
        """Release handles and locks without writing: the next start recovers."""
        for log in self.all_logs():
            log.release()
        self._forget_all()
        self._release()

    def _release(self) -> None:
        for directory in self.taken():
            directory.release()

    def live(self) -> list[LogDirectory]:
        """Return the directories whose disk has not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    def all_logs(self) -> list[Log]:
        """Return the loaded logs, including future ones."""
        futures = [log for one in self.directories for log in one.future_logs.values()]
        return [*self._logs.values(), *futures]

    def is_open(self, log: Log) -> bool:
        """Return whether a log is loaded: neither deleted nor replaced."""
        partition = log.topic_partition
        futures = (one.future_logs.get(partition) for one in self.directories)
        return self._logs.get(partition) is log or log in futures

    @property
    def unflushed(self) -> int:
        """Number of loaded logs with records that are not durable."""
        return sum(log.recovery_point < log.log_end_offset for log in self.all_logs())

    def _forget_all(self) -> None:
        self._logs.clear()
        for directory in self.directories:
            directory.future_logs.clear()

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
        self._drop_logs(self._directory_at(log_dir), error)

    def _drop_logs(self, directory: LogDirectory, error: OSError) -> None:
        directory.files.fail(error)
        logs = [self._logs.pop(key) for key in directory.partitions if key in self._logs]
        for log in (*logs, *directory.future_logs.values()):
            self.upkeep.rolled.discard(log)
            log.release()
        directory.future_logs.clear()

    def taken(self) -> list[LogDirectory]:
        """Return the directories whose locks this broker holds."""
        return [*self.directories, *self._without_logs]

    def files_of(self, log_dir: str) -> GuardedFiles:
        """Return the files of a log directory, or of that of the metadata log."""
        return self._taken_at(log_dir).files

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
                if directory.failure is not None:
                    break  # between two of them
                log = self.get(partition)
                if log is not None:
                    yield partition, log

    def topic_ids(self) -> dict[TopicPartition, bytes]:
        """Return all partitions with their topic ids; load nothing."""
        return {
            key: one for directory in self.directories for key, one in directory.partitions.items()
        }

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Set `producer.id.expiration.ms`, for loaded logs too."""
        self._producer_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producers.expiration_ms = expiration_ms

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
        directory.clear_for(partition)
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
        """Return the directory id of a log directory, or of that of the metadata log."""
        return self._taken_at(log_dir).directory_id

    def _wanted(self, partition: TopicPartition) -> LogDirectory:
        preferred = self._preferred.get(partition)
        if preferred is not None:
            return self._directory_at(preferred)
        live = self.live() or self.directories
        live = [one for one in live if one.path not in self.cordoned] or live
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
            self.upkeep.rolled.discard(log)
        directory.forget(partition)
        target = self._deleted_folder(directory, partition, log)
        self._files.rename(folder, target)
        self.upkeep.removals.add(now_ms + delay_ms, [target])

    def set_aside(
        self, partitions: Sequence[TopicPartition], log_dir: str | None = None
    ) -> list[str]:
        """Remove logs and their futures, in one directory or all, keep their folders as strays;
        return their new paths."""
        paths = []
        for directory in self.directories:
            if log_dir in (None, directory.path):
                self._close_in(directory, partitions)
                paths += directory.set_aside(partitions)
        return paths

    def _close_in(self, directory: LogDirectory, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            log = self._logs.get(partition)
            if log is not None and log.folder == f"{directory.path}/{partition}":
                del self._logs[partition]
            else:
                log = None
            for closed in (log, directory.future_logs.get(partition)):
                if closed is not None:
                    closed.release()
                    self.upkeep.rolled.discard(closed)

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

    def _taken_at(self, path: str) -> LogDirectory:
        return next(directory for directory in self.taken() if directory.path == path)

    def _directory_at(self, path: str) -> LogDirectory:
        return next(directory for directory in self.directories if directory.path == path)

    # -- lost logs ---------------------------------------------------------------------------------

    @property
    def has_new_directory(self) -> bool:
        """Return whether a directory is unused: it may replace a lost one."""
        return any(directory.is_new for directory in self.live())

    @property
    def has_unread_directory(self) -> bool:
        """Return whether a directory is offline since the start: its logs are unknown."""
        return any(directory.is_unread for directory in self.directories)

    def may_be_unread(self, directory_id: bytes) -> bool:
        """Return whether a directory id is that of a directory offline since the start, whose id
        may be unknown."""
        known = [one.directory_id for one in self.directories if not one.is_unread]
        return self.has_unread_directory and directory_id not in known

    def forget_offline(self, partition: TopicPartition) -> None:
        """Forget a deleted log in a failed directory: the next start finds it as a stray."""
        for directory in self.directories:
            if directory.failure is not None:
                directory.partitions.pop(partition, None)
                directory.futures.pop(partition, None)

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
        for directory in self.live():
            if directory.is_new or partitions:
                directory.prepare_recovery_points()()
                directory.is_new = False

    def forget_missing(self, partition: TopicPartition) -> None:
        """Allow a lost partition to start with an empty log."""
        for directory in self.live():
            directory.forget_missing(partition)

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
        target.prepare_checkpoints()()
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
        self.upkeep.rolled.discard(old)
        old.release()
        self.upkeep.removals.add(now_ms + old.config.file_delete_delay_ms, [deleted])
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
                if current is None and self.has_unread_directory:
                    # The current log may be there, and have more.
                    del directory.futures[partition]
                    self.unadopted.add(partition)
                elif current is None:
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
            directory.lower_recovery_point(partition, offset)

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
        self.upkeep.rolled.add(log)
        if self.on_roll is not None and self._logs.get(log.topic_partition, log) is log:
            self.on_roll(log)

    # -- periodic work -----------------------------------------------------------------------------

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
        return self._directory_of(partition).prepare_recovery_points()
