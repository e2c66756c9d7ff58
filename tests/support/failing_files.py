"""A real file system on which some writes fail, as a test wants it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog_storage.os_files import OsFile


class FailingFiles(OsFileSystem):
    """Files can't be made or replaced while `fails` says so of their paths, nor open ones be synced
    while `fails_to_sync` does."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.fails: Callable[[str], bool] = lambda _: False
        self.fails_to_sync: Callable[[str], bool] = lambda _: False

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file, or not."""
        if self.fails(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write_atomic(path, data)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open a file that may not be synced."""
        if create and self.fails(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        file = super().open(path, create=create)
        return _Unsynced(self, path, file)  # type: ignore[return-value]


class _Unsynced:
    """A file that asks before it is synced."""

    def __init__(self, files: FailingFiles, path: str, file: OsFile) -> None:
        self._files, self._path, self._file = files, path, file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def fsync(self) -> None:
        """Make it durable, or not."""
        if self._files.fails_to_sync(self._path):
            raise OSError(errno.EIO, "failed sync")
        self._file.fsync()
