"""A store's copy is looked at before anybody counts on it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.remote import WatchedStore, remote_segment, segment_files
from tidelog.simulation.disk import SimDisk
from tidelog_storage.remote.api import RemoteStorageError, RetriableRemoteStorageError
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.proof import TAIL_BYTES, copy_and_look, look

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = bytes(range(256)) * 40


class World:
    """A segment on the local disk and a store on the same one, which may answer something else."""

    def __init__(self, content=CONTENT):
        self.files = SimDisk(0).files()
        self.files.make_dirs("log")
        self.data = segment_files("log", content, write=self.files.write_atomic)
        self.segment = remote_segment(size=len(content))
        self.store = WatchedStore(DirectoryStore(self.files, "tier"))

    def copy(self):
        return copy_and_look(self.store, self.segment, self.data, self.files)


@pytest.mark.parametrize("size", [1, 100, TAIL_BYTES, TAIL_BYTES + 1, len(CONTENT)])
def test_an_honest_store_is_asked_for_the_end_alone(size: int) -> None:
    world = World(CONTENT[:size])
    copied = world.copy()
    assert copied == (None, CONTENT[:size][-TAIL_BYTES:], None)
    assert [row[1] for row in world.store.fetched] == [max(0, size - TAIL_BYTES)]


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (lambda _: b"", "1024 of the last 1024 bytes are missing"),
        (lambda data: data[:-1], "1 of the last 1024 bytes are missing"),
        (lambda data: data[:-1] + b"?", "it ends with other bytes"),
        (lambda data: data + b"?", "it ends with other bytes"),
    ],
)
def test_bytes_that_differ_from_the_copy_are_reported(
    change: Callable[[bytes], bytes], doubt: str
) -> None:
    world = World()
    world.store.change = change
    copied = world.copy()
    assert copied.doubt == doubt
    assert look(world.store, world.segment, copied.tail) == doubt
    world.store.change = lambda data: data
    assert look(world.store, world.segment, copied.tail) is None


@pytest.mark.parametrize("error", [RetriableRemoteStorageError("away"), ValueError("a plug-in's")])
def test_whatever_a_look_raises_is_a_doubt(error: Exception) -> None:
    world = World()
    world.store.error = error
    world.store.copy_segment = lambda *_: None
    assert world.copy().doubt == f"{type(error).__name__}: {error}"


def test_a_copy_that_was_none_is_doubted() -> None:
    world = World()
    world.store.copy_segment = lambda *_: None
    assert world.copy().doubt.startswith("RemoteResourceNotFound: ")


def test_a_store_is_asked_with_what_it_has_answered() -> None:
    world = World()
    asked = []

    def fetch_segment(segment, start, end=None):
        asked.append(segment)
        return io.BytesIO(CONTENT[start:])

    world.store.copy_segment = lambda *_: b"where it is"
    world.store.fetch_segment = fetch_segment
    assert world.copy() == (b"where it is", CONTENT[-TAIL_BYTES:], None)
    assert asked == [replace(world.segment, custom_metadata=b"where it is")]


def test_a_local_file_that_is_gone_or_was_cut_is_not_copied() -> None:
    world = World()
    world.store.copy_segment = None  # it is not asked
    world.files.write_atomic(world.data.log, CONTENT[:-1])
    with pytest.raises(RetriableRemoteStorageError, match="truncated"):
        world.copy()
    world.files.remove(world.data.log)
    with pytest.raises(RetriableRemoteStorageError, match=r"\.log"):
        world.copy()


def test_what_a_copy_raises_is_raised() -> None:
    world = World()

    def copy_segment(*_):
        raise RemoteStorageError("no")

    world.store.copy_segment = copy_segment
    with pytest.raises(RemoteStorageError, match="no"):
        world.copy()
    assert world.store.fetched == []
