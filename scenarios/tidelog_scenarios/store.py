"""The directory store, telling which segments were read from it; it fails and is slow where a step
says so."""

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
    """What a store is to do: of one operation (`copy`, `fetch`, `fetch_index`, `delete`) or of
    `all`, wait so long, then raise this error if there is one."""

    operation: str
    error: type[RemoteStorageError] | None
    delay_s: float
    loop: asyncio.AbstractEventLoop | None
    """Whose timer it waits for: no reader's time-out, which is a timer of the same loop, comes late
    for it on a busy machine."""

    def obey(self, operation: str) -> None:
        """On a worker thread."""
        if self.operation not in ("all", operation):
            return
        if self.delay_s:
            assert self.loop is not None
            asyncio.run_coroutine_threadsafe(asyncio.sleep(self.delay_s), self.loop).result()
        if self.error is not None:
            raise self.error(f"{operation} as ordered")


_NONE = Order("all", None, 0, None)


class TracedStore(DirectoryStore):
    """`reads` are the ids of the segments whose records were asked for, until somebody clears it,
    without the look that a copier takes on its thread at what it has copied; `waiting` is what
    waits as ordered.

    Worker threads write these and look up the `order`, which needs no lock: each step of it is
    atomic.
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
        """As `DirectoryStore`, if the order lets it; so do all."""
        self._obey("copy")
        super().copy_segment(segment, data)
        self._copied.segment_id = segment.segment_id

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """As `DirectoryStore`."""
        self._obey("fetch")
        if vars(self._copied).pop("segment_id", None) != segment.segment_id:
            self.reads.append(segment.segment_id)
        return super().fetch_segment(segment, start, end)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """As `DirectoryStore`."""
        self._obey("fetch_index")
        return super().fetch_index(segment, kind)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """As `DirectoryStore`."""
        self._obey("delete")
        super().delete_segment(segment)
