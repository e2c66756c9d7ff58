"""The snapshots of one metadata log: when to take one, and those on disk (KIP-630).

Kafka: SnapshotGenerator, and what KafkaMetadataLog does with snapshots.
"""

# ruff: noqa: PLC0415 - what reads and writes snapshots is imported with the first of them

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.levels_on_disk import ReadSnapshot
    from tidelog.cluster.metadata.settings import MetadataLogSettings
    from tidelog.cluster.metadata.snapshots import SnapshotId
    from tidelog_storage.log import Log

__all__ = ["Snapshotter"]


class Snapshotter:
    """Takes, lists and reads the snapshots of one log."""

    def __init__(self, settings: MetadataLogSettings) -> None:
        self.epoch = 0
        """Epoch of the newest snapshot when the log was loaded or replaced; 0 without one."""
        self.task: asyncio.Task[None] | None = None
        """The snapshot that is being written."""
        self._settings = settings
        self._taken_at = settings.clock.monotonic()  # the last one, or this log's start
        self._size = 0  # size of the log at the last snapshot

    # ---- loading ------------------------------------------------------------------------------

    def load(
        self, empty: ClusterImage, already_read: ReadSnapshot | None = None
    ) -> tuple[ClusterImage, int]:
        """Return the newest snapshot's image, or `empty`, and where the log starts."""
        files, folder = self._settings.files, self._settings.folder
        if not any(name.endswith(".checkpoint") for name in files.list(folder)):
            return empty, 0
        from tidelog.cluster.metadata.snapshots import read_snapshot

        snapshots = self.on_disk()
        if not snapshots:
            return empty, 0
        newest = snapshots[-1]
        self.epoch = newest.epoch
        if already_read is not None and already_read.snapshot == newest:
            return already_read.image, snapshots[0].end_offset
        image = read_snapshot(files, folder, newest, empty.cluster_id, empty.listener)
        return image, snapshots[0].end_offset

    def begin_log(self, log: Log, committed: int) -> None:
        """Let the log begin where the oldest snapshot ends."""
        from tidelog.cluster.metadata.snapshots import begin_at_oldest

        log.set_high_watermark(committed)
        begin_at_oldest(self._settings.files, self._settings.folder, log)
        self._size = log.size_in_bytes

    # ---- taking -------------------------------------------------------------------------------

    def maybe_take(self, log: Log, image: ClusterImage, is_closed: Callable[[], bool]) -> None:
        """Begin a snapshot of `image` if the log has grown enough, or for long enough, since the
        last one."""
        if self.task is None and self._is_due(log):
            loop = asyncio.get_running_loop()
            self.task = loop.create_task(
                self._take(log, image, is_closed), name="metadata-snapshot"
            )

    def _is_due(self, log: Log) -> bool:
        settings = self._settings
        if log.size_in_bytes - self._size >= settings.snapshot_bytes:
            return True
        interval_s = settings.snapshot_interval_s
        return interval_s > 0 and settings.clock.monotonic() - self._taken_at >= interval_s

    async def _take(self, log: Log, image: ClusterImage, is_closed: Callable[[], bool]) -> None:
        """Write one snapshot, then trim what the previous one covers."""
        from tidelog.cluster.metadata.snapshots import trim, write_snapshot

        settings = self._settings
        size, now_ms = log.size_in_bytes, settings.clock.wall_ms()
        try:
            await settings.executor.run(
                write_snapshot, settings.files, settings.folder, image, now_ms
            )
            if not is_closed():
                trim(settings.files, settings.folder, log, now_ms)
                size = log.size_in_bytes
        except (OSError, StorageError) as error:
            if settings.report is not None:
                settings.report(f"no snapshot of the metadata: {error}")  # the log still has it
        finally:
            self._size = size
            self._taken_at = settings.clock.monotonic()
            self.task = None

    def install(self, snapshot: SnapshotId, data: bytes, log: Log) -> None:
        """Replace the log and all older snapshots by a leader's snapshot."""
        from tidelog.cluster.metadata.snapshots import remove_before

        files, folder = self._settings.files, self._settings.folder
        files.write_atomic(f"{folder}/{snapshot.file_name}", data)
        log.truncate_fully_and_start_at(snapshot.end_offset, now_ms=self._settings.clock.wall_ms())
        remove_before(files, folder, snapshot)
        self.epoch, self._size = snapshot.epoch, 0

    # ---- reading ------------------------------------------------------------------------------

    def newest(self) -> SnapshotId | None:
        """Return end offset and epoch of the newest snapshot on disk."""
        return next(reversed(self.on_disk()), None)

    def oldest(self) -> SnapshotId | None:
        """Return those of the oldest one: a log that does not start at 0 starts at its end."""
        return next(iter(self.on_disk()), None)

    def on_disk(self) -> list[SnapshotId]:
        """Return the snapshots, oldest first."""
        from tidelog.cluster.metadata.snapshots import list_snapshots

        return list_snapshots(self._settings.files, self._settings.folder)

    def read(self, end_offset: int, epoch: int, position: int, size_max: int) -> tuple[int, bytes]:
        """Read the size of a snapshot, and its bytes from a position on. FileNotFoundError without
        it."""
        from tidelog.cluster.metadata.snapshots import SnapshotId

        name = SnapshotId(end_offset, epoch).file_name
        file = self._settings.files.open(f"{self._settings.folder}/{name}")
        try:
            return file.size(), file.pread(position, size_max)
        finally:
            file.close()
