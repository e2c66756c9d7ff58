"""The directory store, telling which segments were read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from typing import BinaryIO

    from tidelog_storage.remote.api import RemoteSegment
    from tidelog_storage.seams import FileSystem

__all__ = ["TracedStore"]


class TracedStore(DirectoryStore):
    """`reads` are the ids of the segments whose records were asked for, until somebody clears it.

    Worker threads append to it, which needs no lock; it is looked at when they rest.
    """

    def __init__(self, files: FileSystem | None = None, directory: str | None = None) -> None:
        super().__init__(files, directory)
        self.reads: list[bytes] = []

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """As `DirectoryStore`."""
        self.reads.append(segment.segment_id)
        return super().fetch_segment(segment, start, end)
