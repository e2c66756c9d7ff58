"""One log directory: its lock, its owner, its partitions' folders and its checkpoint files."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CheckpointError,
    MetaProperties,
    OffsetCheckpoint,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from tidelog_storage.folders import STRAY_SUFFIX, free_folder, make_durable_folder, scan
from tidelog_storage.guarded_files import GuardedFiles
from tidelog_storage.loading import Checkpointed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.seams import FileLock, FileSystem
    from tidelog_storage.types import TopicPartition

LOCK_NAME = ".lock"
LOGS_AT_ONCE = 1000  # of one part of periodic work: 2 to 8 ms
STRAYS_NAMED_MAX = 20  # in one line
_EVERYWHERE = (1 << 63) - 1
_LOST = -1  # recovery point of a lost log


_REPLACED = (
    REPLICATION_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    CLEAN_SHUTDOWN_MARKER,
)
_TEMPORARY = re.compile(rf"({'|'.join(map(re.escape, _REPLACED))})(\.[0-9]+)?\.tmp")


class LogDirectoryError(Exception):
    """This broker cannot use a directory; the message is for the operator."""


def named(paths: Sequence[str]) -> str:
    """Join paths for a log line, up to a limit."""
    more = len(paths) - STRAYS_NAMED_MAX
    return ", ".join(paths[:STRAYS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


class LogDirectory:
    """A directory of partition folders.

    `partitions` are those whose folder is here, with their topic ids; `futures` those that are
    being moved here, with the folder's name; `future_logs` are the loaded ones of these. Checkpoint
    entries of unloaded logs are kept and written again.

    Invariant: a partition has only one of the two here. After a `failure` of the disk `files` makes
    nothing durable, and no log of the directory is loaded.
    """

    def __init__(
        self,
        files: FileSystem,
        path: str,
        logs: Mapping[TopicPartition, Log],
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`logs` are the broker's loaded ones; `report` gets one sentence for each event that an
        operator should know."""
        self.files = self._files = GuardedFiles(files)
        self._logs = logs
        self._report = report or (lambda _sentence: None)
        self._lock: FileLock | None = None
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._log_starts_are_lost = False
        self.points_are_lost = False  # the recovery points: the durable offsets are unknown
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._compacted: dict[TopicPartition, int] = {}  # up to which offset
        self._compacted_has_changed = False
        self._gone: dict[TopicPartition, int] = {}
        """Partitions that the files may still tell of, and how often these had been prepared."""
        self._prepared = 0
        self._recovery_file = OffsetCheckpoint(self._files, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        self._log_start_file = OffsetCheckpoint(
            self._files, f"{path}/{LOG_START_OFFSET_CHECKPOINT}"
        )
        self._high_watermark_file = OffsetCheckpoint(
            self._files, f"{path}/{REPLICATION_OFFSET_CHECKPOINT}"
        )
        self._compacted_file = OffsetCheckpoint(self._files, f"{path}/{CLEANER_OFFSET_CHECKPOINT}")
        self.path = path
        self.directory_id = bytes(16)
        self.had_clean_shutdown = True
        self.clean_broker_epoch = -1  # of the life that closed it cleanly; -1 if none did
        self.ended_broker_epoch = -1  # of the previous life, if it has certainly ended
        self.partitions: dict[TopicPartition, bytes] = {}
        self.futures: dict[TopicPartition, str] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        self.deleted_folders: list[str] = []
        self._unwritten: list[TopicPartition] = []
        self.missing: set[TopicPartition] = set()
        """Partitions that the recovery points name and that have no folder here, not even a deleted
        one. The recovery points keep them until `forget_missing`."""
        self.is_new = True  # no broker has used it
        self.is_unread = False  # offline since the start

    @property
    def failure(self) -> OSError | None:
        """The error that ended the use of the directory until a restart."""
        return self.files.failure

    def set_offline(self, error: OSError) -> None:
        """Do not use the directory, which could not be read, until the next start."""
        self.is_unread = True
        self.files.fail(error)
        self.release()
        for found in (self.partitions, self.futures, self.missing, self.deleted_folders):
            found.clear()

    def take(
        self, cluster_id: str, node_id: int, new_directory_id: Callable[[], bytes] | None
    ) -> None:
        """Lock the directory (made if missing) and check its owner.

        A new one gets an id from `new_directory_id`, or is refused without it.
        """
        self._files.make_dirs(self.path)
        lock = f"{self.path}/{LOCK_NAME}"
        if self._files.is_link(lock):  # a line would be written to where it leads
            raise LogDirectoryError(f"{lock} is a symbolic link, and none is followed")
        try:
            self._lock = self._files.lock(lock)
        except BlockingIOError:
            raise LogDirectoryError(
                f"log directory {self.path} is locked: another broker is using it"
            ) from None
        noted = self._lock.predecessor()
        self.ended_broker_epoch = int(noted) if noted.isdigit() else -1
        try:
            owner = read_meta_properties(self._files, self.path)
        except CheckpointError as error:
            raise LogDirectoryError(str(error)) from error
        if owner is None:
            if new_directory_id is None:
                raise LogDirectoryError(f"log directory {self.path} is not formatted")
            owner = MetaProperties(cluster_id, node_id, new_directory_id())
            make_durable_folder(self._files, self.path)
            write_meta_properties(self._files, self.path, owner)
        if owner.cluster_id != cluster_id or owner.node_id != node_id:
            raise LogDirectoryError(
                f"log directory {self.path} belongs to node {owner.node_id} of cluster"
                f" {owner.cluster_id}, not to node {node_id} of cluster {cluster_id}"
            )
        self.directory_id = owner.directory_id

    def open(self) -> None:
        """Read the content of the locked directory."""
        marked = take_clean_shutdown(self._files, self.path)
        self.clean_broker_epoch = -1 if marked is None else marked
        self._remove_temporary()
        self._list_folders()
        self.had_clean_shutdown = marked is not None or not (self.partitions or self.futures)
        self._recovery_points = self._read(self._recovery_file)
        self._log_starts = self._read(self._log_start_file)
        self._log_starts_are_lost = marked is not None and not self._log_start_file.is_whole()
        if self._log_starts_are_lost and self.partitions:
            self._report(
                f"{self._log_start_file.path} is lost: logs begin where their leader epochs do"
            )
        self._high_watermarks = self._read(self._high_watermark_file)
        compacted = self._read(self._compacted_file)
        self._compacted = {key: compacted[key] for key in compacted if key in self.partitions}
        was_used = marked is not None or self.partitions or self.futures or self.deleted_folders
        has_file = self._files.exists(self._recovery_file.path)
        self.is_new = not (was_used or has_file)  # perhaps only the file was lost
        is_orderly = marked is not None or self.is_new
        self.points_are_lost = not is_orderly and not self._recovery_file.is_whole()
        # After a clean stop the recovery points name the logs here. After a crash they also name
        # logs deleted since they were written, whose files stay until the next write.
        deleted = self.deleted_folders if marked is None else []
        names = [folder.rpartition("/")[2] for folder in deleted]
        names += [f"{partition}." for partition in self._unwritten]
        for offsets in (self._recovery_points, self._log_starts, self._high_watermarks):
            for partition in offsets.keys() - self.partitions.keys() - self.futures.keys():
                was_deleted = any(name.startswith(f"{partition}.") for name in names)
                if offsets is self._recovery_points and (
                    offsets[partition] == _LOST or not was_deleted
                ):
                    self.missing.add(partition)
                else:
                    del offsets[partition]
                    self._gone[partition] = 0

    def note_missing(self, partition: TopicPartition) -> None:
        """Record a lost log of this directory, or of one that it replaces."""
        self.missing.add(partition)
        self._recovery_points[partition] = _LOST

    def forget_missing(self, partition: TopicPartition) -> None:
        """Drop a lost log that is not needed any more, or was found elsewhere."""
        if partition in self.missing:
            self.missing.remove(partition)
            del self._recovery_points[partition]
            self._gone[partition] = 0
            self.prepare_recovery_points()()

    def _remove_temporary(self) -> None:
        """Remove temporary files that a crash left."""
        for name in self._files.sizes(self.path):
            if _TEMPORARY.fullmatch(name):
                self._files.remove(f"{self.path}/{name}")

    def _list_folders(self) -> None:
        try:
            found = scan(self._files, self.path)
        except CheckpointError as error:
            raise LogDirectoryError(f"{error}: restore the file, or move its folder away") from None
        self.partitions, self.futures = found.current, found.futures
        self.deleted_folders, self._unwritten = found.deleted, found.unwritten
        if found.strays:
            self._report(
                f"{self.path} keeps {len(found.strays)} stray logs, which nothing uses: "
                f"{named(found.strays)}"
            )
        for partition in found.without_id:
            stray = self._rename_to_stray(f"{partition}", partition, bytes(16))
            self._report(f"{partition} has no partition.metadata: its log is kept as {stray}")

    def set_aside(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """Rename the folders of partitions, current and future, to strays, durably; their new
        paths. They are neither deleted nor used (LogManager.addStrayLog).

        The recovery points drop them first: after a crash they would count as lost.
        """
        found = []
        for partition in partitions:
            topic_id = self.partitions.get(partition, bytes(16))
            if partition in self.partitions:
                found.append((f"{partition}", partition, topic_id))
            if partition in self.futures:
                found.append((self.futures[partition], partition, topic_id))
            self.forget(partition)
        if found:
            self.prepare_recovery_points()()
        return [self._rename_to_stray(*one) for one in found]

    def _rename_to_stray(self, name: str, partition: TopicPartition, topic_id: bytes) -> str:
        stray = free_folder(self._files, self.path, partition, topic_id, STRAY_SUFFIX)
        self._files.rename(f"{self.path}/{name}", stray)
        self._files.fsync_dir(self.path)
        return stray

    def _read(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read()
        except CheckpointError as error:
            # The others are hints, which a start can do without.
            if self.had_clean_shutdown and checkpoint is self._recovery_file:
                raise LogDirectoryError(str(error)) from error
            self._report(f"{error}: it is left out")
            return {}

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def note_broker_epoch(self, broker_epoch: int) -> None:
        """Write this life's epoch for the next holder of the lock, when this life has ended."""
        assert self._lock is not None
        self._lock.note(b"%d" % broker_epoch)

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the clean-shutdown marker, last in a clean stop."""
        write_clean_shutdown(self._files, self.path, broker_epoch)

    def promote(
        self, partition: TopicPartition, topic_id: bytes, compacted_to: int | None = None
    ) -> None:
        """Make the future log the partition's current one, with its compacted offset."""
        del self.futures[partition]
        self.future_logs.pop(partition, None)
        self.partitions[partition] = topic_id
        if compacted_to is not None:
            self._compacted[partition] = compacted_to
            self._compacted_file.prepare(self._compacted)
            self._compacted_has_changed = True

    def forget(self, partition: TopicPartition) -> None:
        """Drop a partition whose folder, current or future, is gone."""
        self.partitions.pop(partition, None)
        self.futures.pop(partition, None)
        self.future_logs.pop(partition, None)
        self._gone[partition] = self._prepared
        for offsets in (self._recovery_points, self._log_starts, self._high_watermarks):
            offsets.pop(partition, None)
        if self._compacted.pop(partition, None) is not None:
            # Otherwise a new topic of that name would count as compacted.
            self._compacted_file.prepare(self._compacted)
            self._compacted_has_changed = True

    # -- checkpoints -------------------------------------------------------------------------------

    def clear_for(self, partition: TopicPartition) -> None:
        """Remove the entries of a partition that is about to be created again.

        Otherwise, after a crash, a new topic with a deleted topic's name would start with its
        recovery point, and lose records.
        """
        if partition in self._gone:
            self.prepare_checkpoints()()
            self._gone.clear()

    def checkpointed(self, partition: TopicPartition) -> Checkpointed:
        """Return the checkpoint entries of a partition."""
        return Checkpointed(
            had_clean_shutdown=self.had_clean_shutdown,
            recovery_point=max(0, self._recovery_points.get(partition, 0)),
            log_start_offset=self._log_starts.get(partition),
            high_watermark=self._high_watermarks.get(partition, 0),
            # Without recovery points, a gap of compaction looks like one left by a crash.
            compacted_to=self._compacted.get(partition, _EVERYWHERE if self.points_are_lost else 0),
            log_starts_are_lost=self._log_starts_are_lost,
        )

    def _here(self) -> list[tuple[TopicPartition, Log]]:
        """Return the loaded logs of this directory, including future ones."""
        logs = self._logs
        here = [(key, logs[key]) for key in sorted(self.partitions) if key in logs]
        return [*here, *self.future_logs.items()]

    def note_offsets(self) -> Iterator[None]:
        """Note the offsets of the logs here, and yield after each `LOGS_AT_ONCE`."""
        for number, (partition, log) in enumerate(self._here(), 1):
            if number % LOGS_AT_ONCE == 0:
                yield
            if not self._is_here(partition, log):
                continue  # deleted or moved meanwhile
            if log.log_end_offset:
                self._recovery_points[partition] = log.recovery_point
            else:  # a power failure may remove its folder without a loss
                self._recovery_points.pop(partition, None)
            self._high_watermarks[partition] = log.high_watermark
            if log.has_lost_epochs:
                continue  # its start may be invented: keep the entry of the file
            if log.is_tiered or log.log_start_offset != log.segments.first.base_offset:
                self._log_starts[partition] = log.log_start_offset
            else:
                self._log_starts.pop(partition, None)

    def _note(self) -> None:
        for _ in self.note_offsets():
            pass

    def _is_here(self, partition: TopicPartition, log: Log) -> bool:
        if self.future_logs.get(partition) is log:
            return True
        return partition in self.partitions and self._logs.get(partition) is log

    def prepare_checkpoints(self) -> Callable[[], None]:
        """Prepare all files; call the result to write them, on any thread."""
        self._note()
        return self.prepare_noted_checkpoints()

    def prepare_noted_checkpoints(self) -> Callable[[], None]:
        """The same, as `note_offsets` has noted them."""
        self._recovery_file.prepare(self._recovery_points)
        self._log_start_file.prepare(self._log_starts)
        self._high_watermark_file.prepare(self._high_watermarks)
        starts = [
            start
            for partition, log in self._here()
            if partition in self._log_starts and (start := log.prepare_start()) is not None
        ]
        # One at a time: the last prepared content is on disk by now, this one is not.
        last, self._prepared = self._prepared, self._prepared + 1
        self._gone = {gone: since for gone, since in self._gone.items() if since >= last}

        def write() -> None:
            self.check_presence()
            self._recovery_file.write_prepared()
            for prepared in starts:
                with suppress(FileNotFoundError):  # the partition was deleted meanwhile
                    prepared()
            self._log_start_file.write_prepared()
            self._high_watermark_file.write_prepared()
            if self._compacted_has_changed:
                self._write_compacted()

        return write

    def prepare_high_watermarks(self) -> Callable[[], None] | None:
        """Prepare that one file, as `note_offsets` has noted them; None if it is up to date."""
        if not self._high_watermark_file.prepare(self._high_watermarks):
            return None
        return self._write_high_watermarks

    def _write_high_watermarks(self) -> None:
        self.check_presence()
        self._high_watermark_file.write_prepared()

    def check_presence(self) -> None:
        """FileNotFoundError if the directory was removed, emptied or unmounted: its checkpoints
        would be written to whatever is there now."""
        owner = f"{self.path}/{META_PROPERTIES}"
        if not self._files.exists(owner) and not self._files.exists(f"{self.path}/{LOCK_NAME}"):
            raise FileNotFoundError(errno.ENOENT, "the log directory is gone", owner)

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Write that one file now, before the log is truncated to `offset`; also the compacted
        offset, if it is above."""
        self._note()
        self._recovery_points[partition] = offset
        self._recovery_file.write(self._recovery_points)
        if self._compacted.get(partition, 0) > offset:
            self.prepare_compacted(partition, offset)()

    def prepare_recovery_points(self) -> Callable[[], None]:
        """Prepare that one file; call the result to write it, on any thread."""
        self._note()
        return self.prepare_noted_recovery_points()

    def prepare_noted_recovery_points(self) -> Callable[[], None]:
        """The same, as `note_offsets` has noted them."""
        self._recovery_file.prepare(self._recovery_points)
        return self._recovery_file.write_prepared

    def compacted_to(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a partition is compacted; None if it never was."""
        return self._compacted.get(partition)

    def prepare_compacted(self, partition: TopicPartition, offset: int) -> Callable[[], None]:
        """Record that a partition is compacted up to an offset, and prepare
        `cleaner-offset-checkpoint`; call the result to write it, on any thread."""
        self._compacted[partition] = offset
        self._compacted_file.prepare(self._compacted)
        return self._write_compacted

    def _write_compacted(self) -> None:
        self._compacted_has_changed = False
        self._compacted_file.write_prepared()
