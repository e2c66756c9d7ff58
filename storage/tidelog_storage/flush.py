"""Make a log durable in two steps, so that fsync never blocks the loop.

`Log.prepare_flush` gives a `FlushTask`, which holds frozen values and may run on any thread; then
call `Log.flushed(task)`. A task has the truncation count of its creation: records truncated
meanwhile do not count as durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.seams import File, FileSystem
    from tidelog_storage.segment import Segment


def sync_all(shared: Iterable[File], private: Iterable[File]) -> None:
    """Sync files, then close the private ones in any case."""
    try:
        for file in (*shared, *private):
            file.fsync()
    finally:
        for file in private:
            file.close()


def seal(segment: Segment, recovery_point: int, end_offset: int) -> int:
    """The recovery point after the active segment was sealed, its indexes written, at `end_offset`.

    Recovery trusts the indexes of segments that end below the recovery point, and flushes leave
    those of an active segment out. So either they are flushed again with their segment, or, if
    the recovery point is at its end already, they are synced here and now. OSError if not.
    """
    if recovery_point <= segment.base_offset or not segment.has_unsynced_indexes:
        return recovery_point
    if recovery_point < end_offset:
        return segment.base_offset
    sync_all((), segment.files_to_sync(with_indexes=True))
    segment.offset_index.is_synced = segment.time_index.is_synced = True
    return recovery_point


class FlushTask:
    """Call it once, anywhere: afterwards everything below `offset` is durable. OSError if not.

    `private` handles are closed after their sync; `folder` is synced if not None. Of segments below
    `indexed_offset` the indexes are synced too.
    """

    __slots__ = (
        "files",
        "folder",
        "indexed_offset",
        "offset",
        "private",
        "records",
        "truncations",
    )

    def __init__(self, log: Log, offset: int, *, closing: bool) -> None:
        """Take the segments from the log's recovery point up to `offset`.

        The active segment's indexes are left out unless the log is `closing`: recovery rebuilds
        them in any case.
        """
        records: list[File] = []
        private: list[File] = []
        active, has_new_files = log.segments.active, False
        for segment in log.segments.from_floor(log.recovery_point):
            if segment.base_offset < offset:
                with_indexes = closing or segment is not active
                private += segment.files_to_sync(with_indexes=with_indexes)
                records.append(segment.records)
                has_new_files = has_new_files or segment.base_offset >= log.recovery_point
        self.offset = offset
        self.indexed_offset = offset if closing else min(offset, active.base_offset)
        self.truncations = log.truncations
        self.records: Sequence[File] = records
        self.private: Sequence[File] = private
        self.files: FileSystem = active.files
        self.folder = log.folder if has_new_files else None

    def __call__(self) -> None:
        """Sync the files, then the entries of new ones and of the folder itself."""
        sync_all(self.records, self.private)
        if self.folder is not None:
            try:
                self.files.fsync_dir(self.folder)
                self.files.fsync_dir(self.folder.rpartition("/")[0] or "/")
            except FileNotFoundError:
                return  # the partition was deleted meanwhile
