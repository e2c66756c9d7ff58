"""The real file system keeps the promises of `seams.py`, awkward moments included."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tidelog_storage import os_files
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog_storage.seams import File


@pytest.fixture
def files():
    return OsFileSystem()


@pytest.fixture
def file(files, tmp_path):
    file = files.open(f"{tmp_path}/f", create=True)
    yield file
    file.close()


def test_open_needs_create(files: OsFileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{tmp_path}/none")


def test_appends_and_reads(file: File, files: OsFileSystem, tmp_path: Path) -> None:
    assert file.append((b"one",)) == 3
    assert file.append((b"two", memoryview(b"three"), bytearray(b"4"))) == 9
    assert file.size() == 12
    assert file.pread(3, 3) == b"two"
    assert file.pread(11, 10) == b"4"
    assert file.pread(12, 10) == b""
    assert files.read_bytes(f"{tmp_path}/f") == b"onetwothree4"
    again = files.open(f"{tmp_path}/f")
    assert again.size() == 12
    again.append((b"!",))
    assert again.pread(0, 99) == b"onetwothree4!"
    again.close()


def test_appends_more_buffers_than_one_call_takes(file: File) -> None:
    buffers = [bytes([index % 256]) for index in range(3000)]
    assert file.append(buffers) == 3000
    assert file.pread(0, 3000) == b"".join(buffers)


@pytest.mark.parametrize("buffers", [(b"x" * 5000,), (b"x" * 10, b"y" * 5000)])
def test_a_failed_append_leaves_nothing(
    file: File, buffers: tuple[bytes] | tuple[bytes, bytes]
) -> None:
    """The file size limit stands for a full disk: a first part is written, then the call fails."""
    file.append((b"a" * 100,))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        with pytest.raises(OSError, match="large"):
            file.append(buffers)
        assert file.size() == 100
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    file.append((b"b",))
    assert file.pread(0, 9999) == b"a" * 100 + b"b"


def test_views_follow_the_growing_file(file: File) -> None:
    file.append((b"a" * 5000,))
    first = file.view(1000, 3000)
    assert first == b"a" * 3000
    file.append((b"b" * 5000,))
    assert file.view(4990, 20) == b"a" * 10 + b"b" * 10
    assert file.view(9990, 100) == b"b" * 10
    assert file.view(10000, 5) == b""
    assert first.readonly
    assert first == b"a" * 3000


def test_views_outlive_truncation_close_and_removal(
    file: File, files: OsFileSystem, tmp_path: Path
) -> None:
    file.append((b"a" * 100_000,))
    view = file.view(50_000, 50_000)
    file.append((b"b" * 100_000,))
    second = file.view(0, 200_000)
    file.truncate(10)
    assert view == b"a" * 50_000, "the pages behind a view must not go"
    assert second[150_000:] == b"b" * 50_000
    assert file.size() == os.path.getsize(f"{tmp_path}/f") == 10
    file.append((b"c" * 10,))
    assert files.read_bytes(f"{tmp_path}/f") == b"a" * 10 + b"c" * 10
    assert file.view(0, 20) == b"a" * 10 + b"c" * 10
    file.close()
    files.remove(f"{tmp_path}/f")
    assert view == b"a" * 50_000


def test_truncation_without_views_keeps_the_inode(file: File, tmp_path: Path) -> None:
    file.append((b"a" * 100_000,))
    view = file.view(0, 100_000)
    del view
    inode = os.stat(f"{tmp_path}/f").st_ino
    file.truncate(0)
    assert os.stat(f"{tmp_path}/f").st_ino == inode
    assert file.view(0, 5) == b""


def test_an_empty_file_is_not_cut(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 writes out a file that was cut to nothing: new logs would wait for the disk."""
    monkeypatch.setattr(os, "ftruncate", lambda *_: pytest.fail("the file was cut"))
    file.truncate(0)
    assert file.size() == 0


def test_sync_after_close_is_no_error(file: File) -> None:
    file.append((b"a",))
    file.fsync()
    file.close()
    file.close()
    file.fsync()


def test_write_atomic_replaces(files: OsFileSystem, tmp_path: Path) -> None:
    files.write_atomic(f"{tmp_path}/c", b"one")
    files.write_atomic(f"{tmp_path}/c", b"two")
    assert files.read_bytes(f"{tmp_path}/c") == b"two"
    assert files.list(str(tmp_path)) == ["c"]


def test_without_syncs_all_works_the_same(tmp_path: Path) -> None:
    files = OsFileSystem(syncs=False)
    files.write_atomic(f"{tmp_path}/c", b"one")
    files.fsync_dir(str(tmp_path))
    file = files.open(f"{tmp_path}/c")
    file.append((b"!",))
    file.fsync()
    file.close()
    assert files.read_bytes(f"{tmp_path}/c") == b"one!"


def test_new_files_and_folders_are_their_owners_alone(files: OsFileSystem, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    files.make_dirs(f"{tmp_path}/shared/a/b")
    files.open(f"{tmp_path}/shared/a/b/log", create=True).close()
    files.write_atomic(f"{tmp_path}/shared/a/b/checkpoint", b"1")
    modes = {
        path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "shared").rglob("*")
    }
    assert modes == {"a": "0o700", "b": "0o700", "log": "0o600", "checkpoint": "0o600"}
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755  # not ours


def test_folders(files: OsFileSystem, tmp_path: Path) -> None:
    root = f"{tmp_path}/a/b/c"
    files.make_dirs(root)
    files.make_dirs(root)
    files.open(f"{root}/z", create=True).close()
    files.write_atomic(f"{root}/y", b"12345")
    files.make_dirs(f"{root}/d")
    assert files.list(root) == ["d", "y", "z"]
    assert files.sizes(root) == {"y": 5, "z": 0}
    assert list(files.sizes(root)) == ["y", "z"]
    files.rename(f"{root}/y", f"{root}/x")
    assert not files.exists(f"{root}/y")
    files.fsync_dir(root)
    files.remove(f"{root}/none")
    files.rename(root, f"{tmp_path}/moved")
    assert files.exists(f"{tmp_path}/moved/x")
    files.remove_tree(f"{tmp_path}/moved")
    files.remove_tree(f"{tmp_path}/moved")
    assert files.list(str(tmp_path)) == ["a"]
    with pytest.raises(FileNotFoundError):
        files.list(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError):
        files.sizes(f"{tmp_path}/none")


def test_a_lock_holds_until_released_or_the_process_ends(
    files: OsFileSystem, tmp_path: Path
) -> None:
    path = f"{tmp_path}/.lock"
    code = (
        "import sys\nfrom tidelog_storage.os_files import OsFileSystem\n"
        "try: OsFileSystem().lock(sys.argv[1])\n"
        "except BlockingIOError: sys.exit(3)\n"
    )
    lock = files.lock(path)
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 3
    lock.release()
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 0
    files.lock(path).release()


def test_a_lock_names_its_previous_holder_and_a_copy_of_it_does_not(
    files: OsFileSystem, tmp_path: Path
) -> None:
    path, copy = tmp_path / ".lock", tmp_path / "copy"
    script = (
        "import os, signal, sys; from tidelog_storage.os_files import OsFileSystem\n"
        "lock = OsFileSystem().lock(sys.argv[1])\n"
        "lock.note(b'12345'), lock.note(b'67')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    shutil.copy2(path, copy)
    for file, noted in ((path, b"67"), (copy, b"")):
        lock = files.lock(str(file))
        assert lock.predecessor() == noted
        lock.release()


def test_a_lock_noted_before_the_system_started_names_no_holder(
    files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = files.lock(f"{tmp_path}/.lock")
    assert lock.predecessor() == b""
    lock.note(b"67")
    assert lock.predecessor() == b"67"
    other = tmp_path / "boot_id"
    other.write_text("another start\n")
    for boot_id in (other, tmp_path / "none"):
        monkeypatch.setattr("tidelog_storage.os_files._BOOT_ID", str(boot_id))
        assert lock.predecessor() == b""
    lock.release()


def test_what_is_in_memory_is_read_without_waiting(file: File) -> None:
    file.append((b"0123456789",))
    buffer = bytearray(4)
    read = file.pread_cached_into(2, memoryview(buffer))
    assert read in (0, 4)  # 0 where the system can't tell, or has thrown it out
    assert buffer == (b"2345" if read else bytes(4))
    assert file.pread_cached_into(10, memoryview(buffer)) == 0


def test_without_rwf_nowait_nothing_counts_as_in_memory(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.append((b"0123456789",))
    monkeypatch.setattr(os_files, "_RWF_NOWAIT", 0)
    assert file.pread_cached_into(0, memoryview(bytearray(4))) == 0


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="of Linux")
def test_other_errors_of_reading_from_memory_are_raised(
    file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match="broken"):
        file.pread_cached_into(0, memoryview(bytearray(4)))


@pytest.mark.parametrize("fails_at", ["write", "fsync", "rename"])
def test_a_file_that_cannot_be_replaced_leaves_no_temporary_one(
    files: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    """A full disk would keep them, one for each try."""
    files.write_atomic(f"{tmp_path}/f", b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails_at, fail)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(f"{tmp_path}/f", b"new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["f"]
    assert files.read_bytes(f"{tmp_path}/f") == b"old"


def test_short_reads_continue_to_the_end(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    file.append((b"0123456789",))
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))
    assert file.pread(1, 8) == b"12345678"
    assert file.pread(6, 99) == b"6789"


def test_a_file_that_has_become_shorter_is_an_error(file: File, tmp_path: Path) -> None:
    """What is missing must not pass for the end of a log: recovery would cut there."""
    file.append((b"0123456789",))
    os.truncate(f"{tmp_path}/f", 4)
    with pytest.raises(OSError, match="10 bytes expected, 4 found"):
        file.pread(0, 10)
    assert file.pread(0, 4) == b"0123"


def test_links_are_not_followed(tmp_path: Path) -> None:
    files = OsFileSystem()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a").write_bytes(b"a")
    (tmp_path / "folder").symlink_to(kept)
    (tmp_path / "file").symlink_to(kept / "a")
    assert files.is_link(f"{tmp_path}/folder")
    assert not files.is_link(f"{kept}")
    with pytest.raises(OSError, match="symbolic links"):
        files.open(f"{tmp_path}/file", create=True)
    with pytest.raises(OSError, match="symbolic links"):
        files.lock(f"{tmp_path}/file")
    for number in range(3):  # whatever the temporary file is called
        (tmp_path / f"checkpoint.{number}.tmp").symlink_to(kept / "a")
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomic(f"{tmp_path}/checkpoint", b"b")
    files.remove_tree(f"{tmp_path}/folder")
    assert (kept / "a").read_bytes() == b"a"
    assert not (tmp_path / "folder").exists()
