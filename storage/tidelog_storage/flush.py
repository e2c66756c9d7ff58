"""Make a log durable in two steps, so that fsync never blocks the loop.

`Log.prepare_flush` gives a `FlushTask`, which holds frozen values and may run on any thread; then
call `Log.flushed(task)`. A task has the truncation count of its creation: records truncated
meanwhile do not count as durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.seams import File, FileSystem
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments


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
    _, private = segment.files_to_sync(with_indexes=True)
    try:
        for file in private:
            file.fsync()
    finally:
        for file in private:
            file.close()
    segment.offset_index.is_synced = segment.time_index.is_synced = True
    return recovery_point


class FlushTask:
    """Call it once, anywhere: afterwards everything below `offset` is durable. OSError if not."""

    __slots__ = (
        "_files",
        "_folder",
        "_private",
        "_records",
        "indexed_offset",
        "offset",
        "truncations",
    )

    def __init__(
        self,
        *,
        offset: int,
        indexed_offset: int,
        truncations: int,
        records: Sequence[File],
        private: Sequence[File],
        files: FileSystem,
        folder: str | None,
    ) -> None:
        """`private` handles are closed after their sync; `folder` is synced if not None.

        Of segments below `indexed_offset` the indexes are synced too.
        """
        self.offset = offset
        self.indexed_offset = indexed_offset
        self.truncations = truncations
        self._records = records
        self._private = private
        self._files = files
        self._folder = folder

    @classmethod
    def of(
        cls,
        segments: Segments,
        files: FileSystem,
        folder: str,
        *,
        from_offset: int,
        offset: int,
        truncations: int,
        closing: bool = False,
    ) -> FlushTask:
        """Create the task for the segments of [from_offset, offset).

        The active segment's indexes are left out unless the log is `closing`: recovery rebuilds
        them in any case.
        """
        records: list[File] = []
        private: list[File] = []
        has_new_files = False
        for segment in segments.from_floor(from_offset):
            if segment.base_offset < offset:
                shared, own = segment.files_to_sync(
                    with_indexes=closing or segment is not segments.active
                )
                records += shared
                private += own
                has_new_files = has_new_files or segment.base_offset >= from_offset
        return cls(
            offset=offset,
            indexed_offset=offset if closing else min(offset, segments.active.base_offset),
            truncations=truncations,
            records=records,
            private=private,
            files=files,
            folder=folder if has_new_files else None,
        )

    def __call__(self) -> None:
        """Sync the files, then the entries of new ones and of the folder itself."""
        try:
            for file in (*self._records, *self._private):
                file.fsync()
        finally:
            for file in self._private:
                file.close()
        if self._folder is not None:
            try:
                self._files.fsync_dir(self._folder)
                self._files.fsync_dir(self._folder.rpartition("/")[0] or "/")
            except FileNotFoundError:
                return  # the partition was deleted meanwhile
