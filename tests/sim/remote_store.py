"""A remote store for simulated brokers: a directory on a machine that never dies, in bad weather.

    remote.log.storage.manager.class.name = sim.remote_store.SimStore
    rsm.config.dir = remote/<name>

All brokers whose directory has this name share `weather_of(name)`: its disk and its faults. An
error is retriable or not, comes before anything is done, in the middle of it, or after all of it
(then only the answer is lost). What was copied may be seen late; what is read may be other bytes,
or end early, or end with an error. A copy may be a lie: nothing of it is there, or not its end.
"""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING, Any

from tidelog.simulation.disk import SimDisk
from tidelog_storage.folders import make_durable_folder
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.layout import object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO
    from uuid import UUID

    from tidelog_storage.remote.api import OpenSegment, RemoteSegment, SegmentFiles

NAME = "sim.remote_store.SimStore"
NEAR_NAME = "sim.remote_store.NearSimStore"  # its segments may be read on the loop
PREFIX = "remote/"


# Of these a flipped bit is found by a checksum; of the other kinds, in Kafka's formats, by nobody.
# Rot comes between the store, which has looked at its own checksums by then, and the broker, as
# from stores that have none; our own stores' checks are tested in tests/storage.
_CHECKED = (None, IndexKind.PRODUCER_SNAPSHOT)
_CUT_MAX = 7  # bytes at the end of an index: less than any entry, so that it is seen


class Weather:
    """What becomes of calls: `bad` is the chance of an error, 1.0 an outage.

    `late_s`: how long what was copied may be out of sight, but for who looks at its own copy at
    once. `rotten`: the chance that what is read is not what was written, `lying` that a copy is
    none. `deleted` are the segments that calls have deleted, even in part; whoever looks at them
    takes them away.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = SimDisk(name)
        self.files = self.disk.files()
        self.rng = random.Random(f"{name}:weather")
        self.bad = 0.0
        self.late_s = 0.0
        self.rotten = 0.0
        self.lying = 0.0
        self.now: Callable[[], float] = lambda: 0.0
        self.calls: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.deleted: list[RemoteSegment] = []
        self._seen_at: dict[UUID, float] = {}
        self._rot_rng = random.Random(f"{name}:rot")
        self._lie_rng = random.Random(f"{name}:lies")
        self._copied: UUID | None = None

    def calm(self) -> None:
        """From now on all is well."""
        self.bad = self.late_s = self.rotten = self.lying = 0.0

    def copied(self, segment_id: UUID) -> None:
        """A copy was written: it is seen at once, or in a while."""
        self._copied = segment_id
        if self.late_s:
            self._seen_at[segment_id] = self.now() + self._rot_rng.uniform(0, self.late_s)

    def look_for(self, segment_id: UUID) -> None:
        """RemoteResourceNotFound while a copy is out of sight."""
        if self._seen_at.get(segment_id, 0.0) > self.now():
            self.errors["late"] = self.errors.get("late", 0) + 1
            raise RemoteResourceNotFound("it is not to be seen yet")

    def draws_lie(self) -> bool:
        """Whether this copy is one."""
        if not self.lying or self._lie_rng.random() >= self.lying:
            return False
        self.errors["lie"] = self.errors.get("lie", 0) + 1
        return True

    def cuts(self, size: int) -> int:
        """How much of a file is there after a lie; 0 for no file."""
        return self._lie_rng.choice((0, self._lie_rng.randrange(size)))

    def is_look(self, segment_id: UUID) -> bool:
        """Whether it is the copier that fetches, in the same call, what it has just copied. That
        has its own fortune: what befalls all other calls does not change with it."""
        copied, self._copied = self._copied, None
        return copied == segment_id

    def look(self, work: Callable[[], Any]) -> Any:
        """As `do`, for the copier's look."""
        if self._lie_rng.random() < self.bad:
            self.errors["look"] = self.errors.get("look", 0) + 1
            raise RetriableRemoteStorageError("look in bad weather")
        return work()

    def through(self, stream: BinaryIO, kind: IndexKind | None) -> BinaryIO:
        """What is read of a stream; `kind` None is a segment."""
        rng = self._rot_rng
        if not self.rotten or rng.random() >= self.rotten:
            return stream
        with stream:
            data = bytearray(stream.read())
        self.errors["rot"] = self.errors.get("rot", 0) + 1
        how = rng.randrange(3)
        if how == 0:
            return _Broken(bytes(data))
        if how == 1 and kind in _CHECKED and data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind is None:
            del data[rng.randint(0, len(data)) :]
        else:
            del data[max(0, len(data) - rng.randint(1, _CUT_MAX)) :]
        return io.BytesIO(bytes(data))

    def into(self, buffer: memoryview) -> int:
        """What is read into a buffer: how much of it is left, as it is then."""
        rng = self._rot_rng
        if not self.rotten or not buffer or rng.random() >= self.rotten:
            return len(buffer)
        self.errors["rot"] = self.errors.get("rot", 0) + 1
        if rng.random() < 0.3:
            return rng.randrange(len(buffer))
        buffer[rng.randrange(len(buffer))] ^= 1 << rng.randrange(8)
        return len(buffer)

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


def forget_weather(name: str) -> None:
    """The run is over."""
    _WEATHERS.pop(name, None)


class _Broken(io.BytesIO):
    """The connection is lost in the middle."""

    def read(self, _size: int | None = -1, /) -> bytes:
        raise RetriableRemoteStorageError("the stream broke off")

    def readinto(self, _buffer: Any, /) -> int:
        raise RetriableRemoteStorageError("the stream broke off")


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

    def copy_half(self, segment: RemoteSegment) -> None:
        """Some bytes of the log, and no manifest."""
        files, folder = self._place(segment)
        make_durable_folder(files, folder)
        files.open(f"{folder}/{object_name(segment, '.log')}.tmp", create=True).append([b"ha"])

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> None:
        def copy() -> None:
            super(SimStore, self).copy_segment(segment, data)
            self._weather.copied(segment.segment_id)
            if self._weather.draws_lie():
                self._cut(segment)

        self._weather.do("copy", copy, lambda: self.copy_half(segment))

    def _cut(self, segment: RemoteSegment) -> None:
        files, folder = self._place(segment)
        size = self._weather.cuts(segment.size)
        file = files.open(f"{folder}/{object_name(segment, '.log')}")
        file.truncate(size)
        file.close()
        if not size:
            super().delete_segment(segment)

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        if self._weather.is_look(segment.segment_id):

            def look() -> BinaryIO:
                return super(SimStore, self).fetch_segment(segment, start, end)

            looked: BinaryIO = self._weather.look(look)
            return looked

        def fetch() -> BinaryIO:
            self._weather.look_for(segment.segment_id)
            stream = super(SimStore, self).fetch_segment(segment, start, end)
            return self._weather.through(stream, None)

        fetched: BinaryIO = self._weather.do("fetch", fetch)
        return fetched

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        def fetch() -> BinaryIO:
            self._weather.look_for(segment.segment_id)
            return self._weather.through(super(SimStore, self).fetch_index(segment, kind), kind)

        fetched: BinaryIO = self._weather.do("fetch index", fetch)
        return fetched

    def delete_segment(self, segment: RemoteSegment) -> None:
        def half() -> None:
            self._weather.deleted.append(segment)
            files, folder = self._place(segment)
            files.remove(f"{folder}/{object_name(segment, '.index')}")

        def delete() -> None:
            self._weather.deleted.append(segment)
            super(SimStore, self).delete_segment(segment)

        self._weather.do("delete", delete, half)


class _Open:
    """An open segment in the weather."""

    def __init__(self, weather: Weather, real: OpenSegment) -> None:
        self._weather, self._real = weather, real

    def read_now(self, position: int, buffer: memoryview) -> int:
        def read() -> int:
            return self._weather.into(buffer[: self._real.read_now(position, buffer)])

        size: int = self._weather.do("read now", read)
        return size

    def close(self) -> None:
        self._real.close()


class NearSimStore(SimStore):
    """One that keeps segments open for who reads them on the loop."""

    def open_segment(self, segment: RemoteSegment) -> OpenSegment:
        def open_segment() -> OpenSegment:
            self._weather.look_for(segment.segment_id)
            return _Open(self._weather, DirectoryStore.open_segment(self, segment))

        opened: OpenSegment = self._weather.do("open", open_segment)
        return opened
