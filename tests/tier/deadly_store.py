"""A directory store that kills its broker's process (SIGKILL) at a point of a copy or a deletion.

    remote.log.storage.manager.class.name = tier.deadly_store.DeadlyStore
    remote.log.storage.manager.class.path = the folder of the tests

The point is what the file `die` in `dir`'s parent says; it is taken away before. Points are:

- `before STATE`, `after STATE`: an event of this state is published, and was read by its broker;
- `file N`: of a segment that is copied, N files are there under their names;
- `removed N`: of a segment that is deleted, N files are gone;
- `local`: a local file has been renamed, to be removed later.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles
    from tidelog_storage.seams import FileSystem

NAME = "tier.deadly_store.DeadlyStore"
COMMAND = "die"

_publish = TopicBasedMetadata._publish
_rename = os.rename  # the broker's file systems hold methods of their own already


class Reaper:
    """Reads its orders; one for a process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._counts: dict[str, int] = {}

    def passes(self, point: str) -> None:
        """Kill the process if the order names this point."""
        try:
            with open(self._path) as file:
                order = file.read()
        except FileNotFoundError:
            return
        if order == point:
            os.remove(self._path)
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, what: str) -> None:
        self._counts[what] = 0

    def counts(self, what: str) -> None:
        """One more of these."""
        self._counts[what] = self._counts.get(what, 0) + 1
        self.passes(f"{what} {self._counts[what]}")


class _Files:
    """A file system that tells of what becomes and goes."""

    def __init__(self, files: FileSystem, reaper: Reaper) -> None:
        self._files = files
        self._reaper = reaper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def rename(self, source: str, target: str) -> None:
        self._files.rename(source, target)
        self._reaper.counts("file")

    def remove(self, path: str) -> None:
        is_there = self._files.exists(path)
        self._files.remove(path)
        if is_there:
            self._reaper.counts("removed")


class DeadlyStore(DirectoryStore):
    """The store itself, and the broker around it."""

    def __init__(self, files: FileSystem) -> None:
        self._real = files
        super().__init__(files)

    def configure(self, config: Mapping[str, str]) -> None:
        reaper = self._reaper = Reaper(f"{os.path.dirname(config['dir'])}/{COMMAND}")
        super().configure(config)
        self._files = _Files(self._real, reaper)  # type: ignore[assignment]

        async def publish(metadata: TopicBasedMetadata, event: Any) -> None:
            reaper.passes(f"before {event.state.name}")
            await _publish(metadata, event)
            reaper.passes(f"after {event.state.name}")

        def rename(source: str, target: str) -> None:
            _rename(source, target)
            if target.endswith(".deleted"):
                reaper.passes("local")

        TopicBasedMetadata._publish = publish  # type: ignore[method-assign]
        os.rename = rename  # type: ignore[assignment]

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        self._reaper.begin("file")
        super().copy_segment(segment, data)

    def delete_segment(self, segment: RemoteSegment) -> None:
        self._reaper.begin("removed")
        super().delete_segment(segment)
