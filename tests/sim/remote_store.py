"""A remote store for simulated brokers: a directory on a machine that never dies, in bad weather.

    remote.log.storage.manager.class.name = sim.remote_store.SimStore
    rsm.config.dir = remote/<name>

All brokers whose directory has this name share `weather_of(name)`: its disk and its faults. An
error is retriable or not, comes before anything is done, in the middle of it, or after all of it
(then only the answer is lost).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from sim.disk import SimDisk
from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.layout import object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from tidelog_storage.remote.api import IndexKind, RemoteSegment, SegmentFiles

NAME = "sim.remote_store.SimStore"
PREFIX = "remote/"


class Weather:
    """What becomes of calls: `bad` is the chance of an error, 1.0 an outage."""

    def __init__(self, name: str) -> None:
        self.disk = SimDisk(name)
        self.files = self.disk.files()
        self.rng = random.Random(f"{name}:weather")
        self.bad = 0.0
        self.calls: dict[str, int] = {}
        self.errors: dict[str, int] = {}

    def do(self, verb: str, work: Callable[[], Any], half: Callable[[], None] | None = None) -> Any:
        """Do it, or not, or in part, or without telling."""
        self.calls[verb] = self.calls.get(verb, 0) + 1
        if self.rng.random() >= self.bad:
            return work()
        self.errors[verb] = self.errors.get(verb, 0) + 1
        how = self.rng.randrange(3)
        if how == 1 and half is not None:
            half()
        elif how == 2 and self.bad < 1.0:
            work()
        kind = RetriableRemoteStorageError if self.rng.random() < 0.7 else RemoteStorageError
        raise kind(f"{verb} in bad weather")


_WEATHERS: dict[str, Weather] = {}


def weather_of(name: str) -> Weather:
    """Shared by all stores of a directory."""
    return _WEATHERS.setdefault(name, Weather(name))


def new_weather(name: str) -> Weather:
    """For a run that begins with an empty store."""
    weather = _WEATHERS[name] = Weather(name)
    return weather


class _Routed:
    """The machine's own files, but for those of the remote directory."""

    def __init__(self, local: Any, remote: Any) -> None:
        self._local, self._remote = local, remote

    def __getattr__(self, verb: str) -> Any:
        def call(path: str, *args: Any, **options: Any) -> Any:
            is_remote = path == PREFIX.rstrip("/") or path.startswith(PREFIX)
            return getattr(self._remote if is_remote else self._local, verb)(path, *args, **options)

        return call


class SimStore(DirectoryStore):
    """A directory store in the weather of its directory."""

    def __init__(self, files: Any) -> None:
        super().__init__(files)
        self._local = files

    def configure(self, config: Mapping[str, str]) -> None:
        self._weather = weather_of(config["dir"].removeprefix(PREFIX))
        self._files = _Routed(self._local, self._weather.files)
        super().configure(config)

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        def half() -> None:
            """Some bytes of the log, and no manifest."""
            files, folder = self._place(segment)
            self._make_folder(files, folder)
            files.open(f"{folder}/{object_name(segment, '.log')}.tmp", create=True).append([b"ha"])

        self._weather.do("copy", lambda: super(SimStore, self).copy_segment(segment, data), half)

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        fetched: BinaryIO = self._weather.do(
            "fetch", lambda: super(SimStore, self).fetch_segment(segment, start, end)
        )
        return fetched

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        fetched: BinaryIO = self._weather.do(
            "fetch index", lambda: super(SimStore, self).fetch_index(segment, kind)
        )
        return fetched

    def delete_segment(self, segment: RemoteSegment) -> None:
        def half() -> None:
            files, folder = self._place(segment)
            files.remove(f"{folder}/{object_name(segment, '.index')}")

        self._weather.do("delete", lambda: super(SimStore, self).delete_segment(segment), half)


def missing(error: BaseException) -> bool:
    """Whether the store says that there is no such segment."""
    return isinstance(error, RemoteResourceNotFound)
