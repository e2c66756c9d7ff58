"""A directory store dies in every file operation: a segment is there whole, or not at all."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from support.remote import remote_segment, segment_files
from tidelog.simulation.disk import MachineDiedError, SimDisk
from tidelog_storage.os_files import OsFileSystem
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.directory_store import DirectoryStore
from tidelog_storage.remote.layout import folder_name, object_name

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = bytes(range(256)) * 40
SEGMENT = remote_segment(size=len(CONTENT))
OTHER = remote_segment(2, size=len(CONTENT))
FOLDER = f"tier/{folder_name(SEGMENT.topic_id_partition)}"


class Machine:
    """A disk with the files of a local segment, and a store of its present life."""

    def __init__(self, seed):
        self.disk = SimDisk(seed)
        self.disk.on_death = self.disk.kill
        files = self.disk.files()
        files.make_dirs("log")
        self.data = segment_files("log", CONTENT, write=files.write_atomic)
        self.reboot()

    def copy(self):
        self.store.copy_segment(SEGMENT, self.data)

    def delete(self):
        self.store.delete_segment(SEGMENT)

    def reboot(self, *, power_failure=False):
        self.disk.unwinding = False
        if power_failure:
            self.disk.power_failure()
        self.files = self.disk.files()
        self.store = DirectoryStore(self.files, "tier")

    def dies_in(self, operation, call):
        """Whether the call was killed in its `operation`th change of the disk."""
        self.disk.die_at = self.disk.operations + operation
        try:
            call()
        except MachineDiedError:
            return True
        finally:
            self.disk.die_at = None
        return False

    def is_there(self, segment):
        """Whole (and then every byte of it is right), or not at all."""
        try:
            assert self.store.fetch_segment(segment, 0).read() == CONTENT
        except RemoteResourceNotFound:
            for kind in IndexKind:
                with pytest.raises(RemoteResourceNotFound):
                    self.store.fetch_index(segment, kind)
            return False
        indexes = [self.store.fetch_index(segment, kind).read() for kind in IndexKind]
        assert indexes == [b"offset" + CONTENT[:10], b"time", b"", b"x" * 34, b"0\n1\n0 0\n"]
        return True


@pytest.mark.parametrize("power_failure", [False, True])
def test_a_copy_is_whole_or_not_there(power_failure: bool) -> None:
    for operation in range(1, 200):
        machine = Machine(operation)
        died = machine.dies_in(operation, machine.copy)
        machine.reboot(power_failure=power_failure)
        there = machine.is_there(SEGMENT)
        if not died:
            assert there
            break
        machine.copy()
        machine.reboot(power_failure=power_failure)
        assert machine.is_there(SEGMENT)
        machine.delete()
        assert not machine.files.exists(FOLDER)
    assert operation > 20


@pytest.mark.parametrize("power_failure", [False, True])
def test_a_deletion_hides_all_and_is_finished_later(power_failure: bool) -> None:
    for operation in range(1, 200):
        machine = Machine(operation)
        for segment in (SEGMENT, OTHER):
            machine.store.copy_segment(segment, machine.data)
        died = machine.dies_in(operation, machine.delete)
        machine.reboot(power_failure=power_failure)
        there = machine.is_there(SEGMENT)
        if not died:
            assert not there
            break
        assert machine.is_there(OTHER)
        for segment in (SEGMENT, OTHER):
            machine.store.delete_segment(segment)
        assert not machine.files.exists(FOLDER)
    assert operation > 5


def test_a_finished_deletion_stays_finished() -> None:
    for seed in range(20):
        machine = Machine(seed)
        for segment in (SEGMENT, OTHER):
            machine.store.copy_segment(segment, machine.data)
        for segment in (SEGMENT, OTHER):  # the last one takes the folder with it
            machine.store.delete_segment(segment)
            machine.reboot(power_failure=True)
            stem = object_name(segment, "")
            assert not [name for name in machine.disk.names if stem in name]
        assert machine.disk.names


def test_a_folder_that_another_deletion_removes_meanwhile_is_no_error(tmp_path: Path) -> None:
    """Its removal is durable all the same."""
    synced = []

    class Files(OsFileSystem):
        def fsync_dir(self, path):
            if len(synced) == 1:  # the manifest is gone, and now all else
                self.remove_empty_dir(path)
            synced.append(path)
            super().fsync_dir(path)

    store = DirectoryStore(OsFileSystem(), f"{tmp_path}/tier")
    store.copy_segment(SEGMENT, segment_files(tmp_path, CONTENT))
    DirectoryStore(Files(), f"{tmp_path}/tier").delete_segment(SEGMENT)
    folder = f"{tmp_path}/{FOLDER}"
    assert synced == [folder, folder, f"{tmp_path}/tier"]
    assert list((tmp_path / "tier").iterdir()) == []


def test_copying_over_a_whole_segment_keeps_it_or_hides_it() -> None:
    for operation in range(1, 200):
        machine = Machine(operation)
        machine.copy()
        died = machine.dies_in(operation, machine.copy)
        machine.reboot(power_failure=True)
        machine.is_there(SEGMENT)
        if not died:
            break


def test_a_full_disk_is_a_matter_of_time() -> None:
    """And of nobody's help: each try has another id, so one that fails leaves nothing."""
    machine = Machine(0)
    before = machine.disk.used_bytes()
    for room in (0, 20, len(CONTENT) + 20, len(CONTENT) + 40):
        machine.disk.capacity_bytes = before + room
        with pytest.raises(RetriableRemoteStorageError, match="full"):
            machine.copy()
        assert not machine.is_there(SEGMENT)
        assert machine.disk.used_bytes() == before
        assert not machine.files.exists(FOLDER)
    machine.disk.capacity_bytes = None
    machine.copy()
    assert machine.is_there(SEGMENT)


@pytest.mark.parametrize(("number", "retriable"), [(errno.EIO, True), (errno.EACCES, False)])
def test_errors_of_the_disk(monkeypatch: pytest.MonkeyPatch, number: int, retriable: bool) -> None:
    machine = Machine(0)

    def fail(*_, **__):
        raise OSError(number, "it fails")

    machine.copy()
    monkeypatch.setattr(type(machine.files), "open", fail)
    for call in (
        lambda: machine.store.fetch_segment(SEGMENT, 0),
        machine.copy,
    ):
        with pytest.raises(RemoteStorageError, match="it fails") as caught:
            call()
        assert isinstance(caught.value, RetriableRemoteStorageError) is retriable
        assert not isinstance(caught.value, RemoteResourceNotFound)
