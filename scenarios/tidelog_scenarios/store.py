"""A directory store that records which segments are read, and fails or delays on order."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from typing import BinaryIO
    from uuid import UUID

    from tidelog_storage.remote.api import (
        IndexKind,
        RemoteSegment,
        RemoteStorageError,
        SegmentFiles,
    )
    from tidelog_storage.seams import FileSystem

__all__ = ["Order", "TracedStore"]


class Order(NamedTuple):
    """The behaviour of a store: delay one operation (`copy`, `fetch`, `fetch_index`, `delete`) or
    `all`, then raise the error, if any."""

    operation: str
    error: type[RemoteStorageError] | None
    delay_s: float
    loop: asyncio.AbstractEventLoop | None
    """The loop whose timer measures the delay. A reader's time-out is a timer of the same loop, so
    the two stay in order on a busy machine."""

    def obey(self, operation: str) -> None:
        """Delay and fail as ordered; runs on a worker thread."""
        if self.operation not in ("all", operation):
            return
        if self.delay_s:
            assert self.loop is not None
            asyncio.run_coroutine_threadsafe(asyncio.sleep(self.delay_s), self.loop).result()
        if self.error is not None:
            raise self.error(f"{operation} as ordered")


_NONE = Order("all", None, 0, None)


class TracedStore(DirectoryStore):
    """`reads` collects the ids of the segments whose records are read, without a copier's own check
    of its copy. `waiting` has the delayed operations.

    Worker threads use these and `order` without a lock: each access is atomic.
    """

    def __init__(self, files: FileSystem | None = None, directory: str | None = None) -> None:
        super().__init__(files, directory)
        self.reads: list[UUID] = []
        self.waiting: list[str] = []
        self.order = _NONE
        self._copied = threading.local()

    def _obey(self, operation: str) -> None:
        self.waiting.append(operation)
        try:
            self.order.obey(operation)
        finally:
            self.waiting.remove(operation)

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        """Copy as `DirectoryStore`, after the order."""
        self._obey("copy")
        super().copy_segment(segment, data)
        self._copied.segment_id = segment.segment_id

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Fetch as `DirectoryStore`, after the order, and record the read."""
        self._obey("fetch")
        if vars(self._copied).pop("segment_id", None) != segment.segment_id:
            self.reads.append(segment.segment_id)
        return super().fetch_segment(segment, start, end)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Fetch as `DirectoryStore`, after the order."""
        self._obey("fetch_index")
        return super().fetch_index(segment, kind)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete as `DirectoryStore`, after the order."""
        self._obey("delete")
        super().delete_segment(segment)
