"""Files share few descriptors: whichever gives its own up goes on as if it had kept it."""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tidelog_storage.open_files import OpenFiles, lacks_descriptors
from tidelog_storage.os_files import OsFile, OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

DESCRIPTORS = "/proc/self/fd"

pytestmark = pytest.mark.skipif(not os.path.exists(DESCRIPTORS), reason="counts Linux descriptors")


@pytest.fixture
def open_files():
    return OpenFiles(limit=4)


@pytest.fixture
def files(open_files):
    return OsFileSystem(open_files=open_files)


def open_many(files, folder, count):
    opened = [files.open(f"{folder}/{index}", create=True) for index in range(count)]
    for index, file in enumerate(opened):
        file.append((b"%04d" % index,))
    return opened


def opened_in(folder) -> list[str]:
    """Names of the files in a folder that descriptors of this process are open to."""
    links = [os.path.realpath(f"{DESCRIPTORS}/{name}") for name in os.listdir(DESCRIPTORS)]
    return [os.path.basename(link) for link in links if os.path.dirname(link) == str(folder)]


def give_up_all(open_files):
    while open_files.make_room():
        pass


def take_all(taken):
    """Open descriptors until there are none."""
    with suppress(OSError):
        while True:
            taken.append(os.open("/", os.O_RDONLY))


def test_many_files_hold_few_descriptors(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    opened = open_many(files, tmp_path, 100)
    assert len(open_files) == len(opened_in(tmp_path)) <= 4
    for index, file in enumerate(opened):
        assert file.view(0, 4) == file.pread(0, 9) == b"%04d" % index
    assert len(opened_in(tmp_path)) <= 2 * 4, "a mapping has a descriptor of its own"
    for file in opened:
        file.close()
    assert opened_in(tmp_path) == []
    assert len(open_files) == 0


def test_a_file_in_use_keeps_its_descriptor(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    favourite, *others = open_many(files, tmp_path, 40)
    give_up_all(open_files)
    favourite.pread(0, 1)
    for file in others:
        file.pread(0, 1)
        favourite.pread(0, 1)
        assert "0" in opened_in(tmp_path)


def test_a_file_without_descriptor_is_written_and_cut_at_its_end(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    (file,) = open_many(files, tmp_path, 1)
    for cut in (False, True):
        give_up_all(open_files)
        if cut:
            file.truncate(4)
        else:
            file.append((b"more", b"!"))
    assert file.size() == 4
    assert files.read_bytes(f"{tmp_path}/0") == b"0000"


def test_views_survive_and_protect_the_bytes_of_a_file_without_descriptor(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    file = files.open(f"{tmp_path}/f", create=True)
    file.append((b"a" * 100_000,))
    view = file.view(50_000, 50_000)
    give_up_all(open_files)
    file.truncate(10)
    assert view == b"a" * 50_000, "the pages behind a view must not go"
    assert files.read_bytes(f"{tmp_path}/f") == b"a" * 10
    give_up_all(open_files)
    assert file.view(0, 10) == b"a" * 10


def test_unsynced_bytes_of_a_file_without_descriptor_are_synced(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = open_many(files, tmp_path, 1)
    synced = []
    sync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (sync(descriptor), synced.append(os.fstat(descriptor)))
    )
    give_up_all(open_files)
    file.fsync()
    assert [stat.st_ino for stat in synced] == [os.stat(f"{tmp_path}/0").st_ino]


def test_a_closed_file_stays_closed(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    file, gone = open_many(files, tmp_path, 2)
    give_up_all(open_files)
    files.remove(f"{tmp_path}/1")
    gone.fsync()
    gone.close()
    file.close()
    file.fsync()
    with pytest.raises(OSError, match="closed"):
        file.pread(0, 4)


def test_all_descriptors_gone_takes_those_of_files(tmp_path: Path) -> None:
    """The open calls of everything else push the files out, and not the other way round."""
    open_files = OpenFiles(limit=1000)
    files = OsFileSystem(open_files=open_files)
    opened = open_many(files, tmp_path, 64)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir(DESCRIPTORS)) + 3, hard))
        take_all(others)
        assert len(open_files) == 64
        files.write_atomic(f"{tmp_path}/checkpoint", b"whole")
        take_all(others)
        assert files.list(str(tmp_path)) == sorted(["checkpoint", *map(str, range(64))])
        assert files.sizes(str(tmp_path))["checkpoint"] == 5
        assert [file.pread(0, 4) for file in opened] == [b"%04d" % i for i in range(64)]
        assert len(open_files) < 64
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in others:
            os.close(descriptor)


def test_none_left_to_take_is_an_error_of_its_own(files: OsFileSystem) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "none")

    with pytest.raises(OSError, match="none") as raised:
        OpenFiles().retry(fail)
    assert lacks_descriptors(raised.value)
    assert not lacks_descriptors(OSError(errno.EIO, "broken"))


def test_readers_on_threads_are_not_disturbed(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path
) -> None:
    """Four threads read and sync eight files, which take the four descriptors from each other."""
    opened = open_many(files, tmp_path, 8)
    wrong = []

    def work(first: int) -> None:
        try:
            for step in range(1500):
                index = (first + step * 3) % 8
                if opened[index].pread(0, 4) != b"%04d" % index:
                    wrong.append(index)
                if step % 10 == 0:
                    opened[index].fsync()
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(open_files) <= 5, "a file may be put back by a thread that has just closed it"


def test_a_planted_bug_is_found_that_syncs_no_file_without_descriptor(
    files: OsFileSystem, open_files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that gave its descriptor up counts as closed, and its sync as done."""
    give_up = OsFile.give_up

    def close(file):
        give_up(file)
        file._is_closed = True

    monkeypatch.setattr(OsFile, "give_up", close)
    with pytest.raises(AssertionError):
        test_unsynced_bytes_of_a_file_without_descriptor_are_synced(
            files, open_files, tmp_path, monkeypatch
        )
