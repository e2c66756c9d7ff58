"""After a failure of a log directory's disk, nothing there is made durable in the same life."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from tidelog.simulation.disk import SimDisk
from tidelog_storage.guarded_files import GuardedFiles

PATH = "data/t-0/log"


class Guarded(GuardedFiles):
    """The directory `data` with a file in it."""

    def __init__(self):
        self.disk = SimDisk(0)
        super().__init__(self.disk.files())
        self.heard = []
        self.on_failure = self.heard.append
        self.make_dirs("data/t-0")
        self.file = self.open(PATH, create=True)
        self.file.append([b"one"])

    def syncs(self):
        """How often anything was synced."""
        before = self.disk.syncs
        for sync in (
            self.file.fsync,
            lambda: self.write_atomic("data/checkpoint", b"x"),
            lambda: self.fsync_dir("data"),
        ):
            with suppress(OSError):
                sync()
        return self.disk.syncs - before


def failing(number):
    def fail(*_args, **_options):
        raise OSError(number, "no")

    return fail


def test_without_a_failure_everything_is_synced() -> None:
    files = Guarded()
    assert files.syncs() == 2  # a folder's sync is not counted
    assert files.failure is None


def test_after_a_failed_sync_nothing_is_synced_though_the_disk_is_well_again() -> None:
    files = Guarded()
    files.disk.trouble.sync_fails = lambda _: True
    with pytest.raises(OSError, match="failed sync"):
        files.file.fsync()
    assert files.failure.filename == PATH
    assert files.heard == [files.failure]
    assert files.syncs() == 0
    assert files.disk.trouble.violation is None
    assert not files.exists("data/checkpoint")
    assert files.heard == [files.failure]


@pytest.mark.parametrize("what", ["pread", "append", "truncate"])
def test_an_error_of_a_broken_disk_ends_its_use(what: str) -> None:
    files = Guarded()
    setattr(files.file._file, what, failing(errno.EIO))
    with pytest.raises(OSError, match="no"):
        getattr(files.file, what)(*{"pread": (0, 1), "append": ([b"x"],), "truncate": (0,)}[what])
    assert files.failure.filename == PATH
    assert files.syncs() == 0


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("fsync", errno.ENOENT),
        ("fsync", errno.EMFILE),
        ("append", errno.ENOSPC),
        ("write_atomic", errno.ENOSPC),
        ("read_bytes", errno.ENOENT),
    ],
)
def test_a_full_disk_and_what_is_not_there_are_no_failures(what: str, number: int) -> None:
    files = Guarded()
    owner, arguments = {
        "fsync": (files.file._file, ()),
        "append": (files.file._file, ([b"x"],)),
        "write_atomic": (files._files, ("data/checkpoint", b"x")),
        "read_bytes": (files._files, ("data/none",)),
    }[what]
    original = getattr(owner, what)
    setattr(owner, what, failing(number))
    door = files.file if owner is files.file._file else files
    with pytest.raises(OSError, match="no"):
        getattr(door, what)(*arguments)
    setattr(owner, what, original)
    assert files.failure is None
    assert files.syncs() == 2


def test_a_full_disk_that_loses_pages_in_a_sync_is_a_failure() -> None:
    files = Guarded()
    files.file._file.fsync = failing(errno.ENOSPC)
    with pytest.raises(OSError, match="no"):
        files.file.fsync()
    assert files.failure is not None
