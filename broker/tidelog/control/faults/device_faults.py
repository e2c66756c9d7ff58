"""The faults of one broker's disk and remote store.

A disk's faults hang on the broker's `OsFileSystem`, a store's on the object of the remote store;
both are untouched until the first fault. Slow operations block the thread that makes them, as a
slow disk does: appends and reads are made on the loop, which brokers of one process share. Nothing
is slow any more once the broker stops: an orderly stop makes many operations, and has a limit.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

from tidelog.control.errors import REFUSED, ControlError
from tidelog.control.faults.rules import Count, Trigger
from tidelog_storage.remote.api import RetriableRemoteStorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.server import BrokerServer

__all__ = ["SECONDS_MAX", "Device", "DeviceFaults"]

SECONDS_MAX = 60.0
_STORE_VERBS = {
    "copy_segment": "copies",
    "fetch_segment": "fetches",
    "fetch_index": "fetches",
    "open_segment": "fetches",
    "delete_segment": "deletions",
}


@dataclass(frozen=True)
class Device:
    """A fault of a broker's disk or of its remote store.

    - `full`: the disk takes no more bytes (ENOSPC)
    - `fails`: `operations` fail, of a disk with EIO
    - `slow`: each of `operations` takes `seconds` more
    - `throttled`: the store takes `bytes_per_second` of copies

    `topic` limits it to files or segments of that topic.
    """

    broker: int
    device: Literal["disk", "store"]
    kind: Literal["full", "fails", "slow", "throttled"]
    operations: Literal["all", "reads", "writes", "syncs", "copies", "fetches", "deletions"] = "all"
    seconds: float = 0.0
    bytes_per_second: int = 0
    topic: str | None = None
    trigger: Trigger = field(default_factory=Trigger)
    hits: int = 0
    """How often it has applied since the broker started."""
    id: int = 0
    """Its number: the same fault may be added again, and counts apart."""


class DeviceFaults:
    """The faults of one broker's disk and store."""

    def __init__(self, server: BrokerServer) -> None:
        self._node_id = server.config.node_id
        self._files: Any = server.runtime.files
        self._store: Any = None if server.tier is None else server.tier.storage
        self._disk: list[tuple[Device, Count]] = []
        self._remote: list[tuple[Device, Count]] = []
        self._is_ending = Event()  # waited for on any thread
        server.at_end.append(self._is_ending.set)

    def check(self, device: Device) -> None:
        """Refuse a fault of what this broker does not have."""
        if device.device == "store" and self._store is None:
            text = f"broker {self._node_id} has no remote tier"
            raise ControlError(text, field="broker", status=REFUSED)
        if device.device == "disk" and not hasattr(self._files, "trouble"):
            text = f"the files of broker {self._node_id} are not the system's"
            raise ControlError(text, field="broker", status=REFUSED)

    def set(self, devices: Sequence[Device]) -> None:
        """Have these faults from now on, and no others; those that stay keep their counts."""
        own = [device for device in devices if device.broker == self._node_id]
        known = dict((*self._disk, *self._remote))
        counted = [(device, known.get(device) or Count()) for device in own]
        self._disk = [each for each in counted if each[0].device == "disk"]
        self._remote = [each for each in counted if each[0].device == "store"]
        if hasattr(self._files, "trouble"):
            self._files.trouble = self._on_disk if self._disk else None
        if self._store is not None:
            self._wrap_store()

    def hits(self) -> tuple[Device, ...]:
        """Return the faults with their hits."""
        return tuple(
            replace(device, hits=count.hits) for device, count in (*self._disk, *self._remote)
        )

    def _on_disk(self, operation: str, path: str) -> None:
        """Apply the faults of the disk to an operation: reads, writes or syncs."""
        for device, count in self._disk:
            if device.topic is not None and not _is_of_topic(path, device.topic):
                continue
            operations = "writes" if device.kind == "full" else device.operations
            if operations not in ("all", operation) or not count.applies(device.trigger):
                continue
            if device.kind == "slow":
                self._is_ending.wait(device.seconds)
                continue
            number = errno.ENOSPC if device.kind == "full" else errno.EIO
            raise OSError(number, os.strerror(number), path)

    def _wrap_store(self) -> None:
        """Put the faults before the methods of the store, or take them away."""
        store = self._store
        for name, operation in _STORE_VERBS.items():
            vars(store).pop(name, None)
            if self._remote and hasattr(store, name):
                setattr(store, name, self._remote_call(getattr(store, name), operation))

    def _remote_call(self, method: Any, operation: str) -> Any:
        def call(segment: Any, *args: Any, **named: Any) -> Any:
            self._on_store(operation, segment)
            return method(segment, *args, **named)

        return call

    def _on_store(self, operation: str, segment: Any) -> None:
        """Apply the faults of the store, on the thread of the operation."""
        for device, count in list(self._remote):
            if device.topic not in (None, segment.topic):
                continue
            operations = "copies" if device.kind == "throttled" else device.operations
            if operations not in ("all", operation) or not count.applies(device.trigger):
                continue
            if device.kind == "fails":
                raise RetriableRemoteStorageError(f"{operation}: the store fails on purpose")
            seconds = device.seconds
            if device.kind == "throttled":
                seconds = min(SECONDS_MAX, segment.size / device.bytes_per_second)
            self._is_ending.wait(seconds)


def _is_of_topic(path: str, topic: str) -> bool:
    """Return whether a path is in the folder of a topic's partition."""
    return any(folder.rpartition("-")[0] == topic for folder in path.split("/"))
