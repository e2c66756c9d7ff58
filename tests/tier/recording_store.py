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
HELD_S_MAX = 120.0


class Asked(NamedTuple):
    """One call that has succeeded."""

    node_id: int
    what: str
    segment: RemoteSegment
    kind: IndexKind | None = None


class History:
    """All calls of all brokers, in the order they ended; and calls that are held before they begin.

    `held` are those that wait now, as (what, node id).
    """

    def __init__(self) -> None:
        self._calls: list[Asked] = []
        self._lock = threading.Lock()
        self._gates: dict[tuple[str, int], threading.Event] = {}
        self.held: list[tuple[str, int]] = []

    def hold(self, what: str, node_id: int) -> None:
        """Hold calls of this kind by this broker, from now on."""
        self._gates[what, node_id] = threading.Event()

    def release(self, what: str, node_id: int) -> None:
        """Let them go on, and all that follow."""
        self._gates.pop((what, node_id)).set()

    def release_all(self) -> None:
        """Nobody is held any more."""
        while self._gates:
            self._gates.popitem()[1].set()

    def begin(self, what: str, node_id: int) -> None:
        """A call comes."""
        gate = self._gates.get((what, node_id))
        if gate is not None:
            self.held.append((what, node_id))
            assert gate.wait(HELD_S_MAX)
            self.held.remove((what, node_id))

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
                and (call.segment.topic, call.segment.partition) == (topic, partition)
            ]


HISTORIES: dict[str, History] = {}


class RecordingStore:
    """`inner` is `directory` or `s3`, whose own properties follow; `history` a name.

    A copier looks, on its own thread, at what it has copied: no fetch of the history, in which
    consumers' fetches are looked for, and Kafka's copier does nothing of that kind.
    """

    def configure(self, config: Mapping[str, str]) -> None:
        self.node_id = int(config["node.id"])
        self.history = HISTORIES[config["history"]]
        self.inner: Any = S3Store() if config["inner"] == "s3" else DirectoryStore()
        self.inner.configure(config)
        self._copied = threading.local()

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> bytes | None:
        self.history.begin(COPY, self.node_id)
        result = self.inner.copy_segment(segment, data)
        self.history.add(Asked(self.node_id, COPY, segment))
        self._copied.segment_id = segment.segment_id
        return result

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        if self._is_look(segment):
            return self.inner.fetch_segment(segment, start, end)
        self.history.begin(FETCH, self.node_id)
        stream = self.inner.fetch_segment(segment, start, end)
        self.history.add(Asked(self.node_id, FETCH, segment))
        return stream

    def _is_look(self, segment: RemoteSegment) -> bool:
        copied = vars(self._copied).pop("segment_id", None)
        return bool(copied == segment.segment_id)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        self.history.begin(INDEX, self.node_id)
        stream = self.inner.fetch_index(segment, kind)
        self.history.add(Asked(self.node_id, INDEX, segment, kind))
        return stream

    def delete_segment(self, segment: RemoteSegment) -> None:
        self.history.begin(DELETE, self.node_id)
        self.inner.delete_segment(segment)
        self.history.add(Asked(self.node_id, DELETE, segment))

    def close(self) -> None:
        self.inner.close()
