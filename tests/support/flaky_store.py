"""A remote store that does what tests tell it, in front of a directory; plugged in by its name.

    remote.log.storage.manager.class.name = support.flaky_store.FlakyStore

All stores of one directory share one `Faults`: `faults_of(directory)`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tidelog_storage.remote.directory_store import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO
    from uuid import UUID

    from tidelog_storage.remote.api import IndexKind, RemoteSegment, SegmentFiles

NAME = "support.flaky_store.FlakyStore"
HANG_S_MAX = 60.0


class Faults:
    """`errors` by the verb that raises them; calls wait for `gate`. `calls` are (verb, node id,
    topic, start offset) as they came, `answers` the custom metadata by the copied segment's id. The
    verb is `look` for a fetch by who has just copied, on the same thread, what it fetches.

    `lie` is what is done in place of a copy, which then succeeds.
    """

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.custom_metadata: bytes | None = None
        self.lie: Callable[[DirectoryStore, RemoteSegment, SegmentFiles], None] | None = None
        self.calls: list[tuple[str, int, str, int]] = []
        self.answers: dict[UUID, bytes | None] = {}

    def count(self, verb: str, node_id: int | None = None) -> int:
        return sum(1 for call in list(self.calls) if call[0] == verb and node_id in (None, call[1]))

    def pass_by(self, verb: str, node_id: int, segment: RemoteSegment) -> None:
        self.calls.append((verb, node_id, segment.topic, segment.start_offset))
        self.waiting += 1
        assert self.gate.wait(HANG_S_MAX)
        self.waiting -= 1
        if verb in self.errors:
            raise self.errors[verb]


_FAULTS: dict[str, Faults] = {}


def faults_of(directory: str) -> Faults:
    return _FAULTS.setdefault(directory, Faults())


def new_faults(directory: str) -> Faults:
    """Of a test that begins with an empty store; one before it may have had the same folder."""
    faults = _FAULTS[directory] = Faults()
    return faults


class FlakyStore:
    def configure(self, config: Mapping[str, str]) -> None:
        self._node_id = int(config["node.id"])
        self._faults = faults_of(config["dir"])
        self._store = DirectoryStore()
        self._store.configure(config)
        self._copied = threading.local()

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> bytes | None:
        self._faults.pass_by("copy", self._node_id, segment)
        lie = self._faults.lie
        if lie is None:
            self._store.copy_segment(segment, data)
        else:
            lie(self._store, segment, data)
        self._copied.segment_id = segment.segment_id
        answer = self._faults.answers[segment.segment_id] = self._faults.custom_metadata
        return answer

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        is_look = vars(self._copied).pop("segment_id", None) == segment.segment_id
        self._faults.pass_by("look" if is_look else "fetch", self._node_id, segment)
        return self._store.fetch_segment(segment, start, end)

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        self._faults.pass_by("fetch_index", self._node_id, segment)
        return self._store.fetch_index(segment, kind)

    def delete_segment(self, segment: RemoteSegment) -> None:
        """As of a store that finds its objects by what it has answered."""
        self._faults.pass_by("delete", self._node_id, segment)
        if segment.custom_metadata != self._faults.answers.get(segment.segment_id):
            return
        self._store.delete_segment(segment)

    def close(self) -> None:
        self._store.close()
