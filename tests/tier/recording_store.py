"""A plug-in store for tests: one of ours, and a history of what was asked of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.s3_store import S3Store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from tidelog_storage.remote.api import IndexKind, RemoteSegment, SegmentFiles

COPY, FETCH, INDEX, DELETE = "copy", "fetch", "index", "delete"


class Asked(NamedTuple):
    """One call that has succeeded."""

    node_id: int
    what: str
    segment: RemoteSegment
    kind: IndexKind | None = None


class History:
    """All calls of all brokers, in the order they ended."""

    def __init__(self) -> None:
        self._calls: list[Asked] = []
        self._lock = threading.Lock()

    def add(self, call: Asked) -> None:
        with self._lock:
            self._calls.append(call)

    def calls(self, what: str, topic: str, partition: int) -> list[Asked]:
        """Of one partition, oldest first."""
        with self._lock:
            return [
                call
                for call in self._calls
                if call.what == what
                and (call.segment.partition.topic, call.segment.partition.partition)
                == (topic, partition)
            ]


HISTORIES: dict[str, History] = {}


class RecordingStore:
    """`inner` is `directory` or `s3`, whose own properties follow; `history` a name."""

    def configure(self, config: Mapping[str, str]) -> None:
        self.node_id = int(config["node.id"])
        self.history = HISTORIES[config["history"]]
        self.inner: Any = S3Store() if config["inner"] == "s3" else DirectoryStore()
        self.inner.configure(config)

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> bytes | None:
        result = self.inner.copy_segment(segment, data)
        self.history.add(Asked(self.node_id, COPY, segment))
        return result

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        stream = self.inner.fetch_segment(segment, start, end)
        self.history.add(Asked(self.node_id, FETCH, segment))
        return stream

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        stream = self.inner.fetch_index(segment, kind)
        self.history.add(Asked(self.node_id, INDEX, segment, kind))
        return stream

    def delete_segment(self, segment: RemoteSegment) -> None:
        self.inner.delete_segment(segment)
        self.history.add(Asked(self.node_id, DELETE, segment))

    def close(self) -> None:
        self.inner.close()
