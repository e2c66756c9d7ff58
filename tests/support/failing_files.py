"""A real file system on which some writes fail, as a test wants it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable


class FailingFiles(OsFileSystem):
    """Whole files can't be replaced while `fails` says so of their paths."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self.fails: Callable[[str], bool] = lambda _: False

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file, or not."""
        if self.fails(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        super().write_atomic(path, data)
