"""The files of one log directory; after one failure every later sync fails.

Linux reports a failed write-back once and marks the lost pages as clean: the next fsync of the same
file succeeds although the data is not on disk. So after the first failed sync, or the first error
of a broken disk, every later sync and durable replacement in the directory fails too, until a
restart recovers the logs. Kafka closes its log directory (LogDirFailureChannel).

Safe on any thread, like the files themselves.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_storage.seams import Buffer, File, FileLock, FileSystem

P = ParamSpec("P")
T = TypeVar("T")

_BROKEN = frozenset(
    getattr(errno, name, errno.EIO)
    for name in ("EIO", "EROFS", "ENODEV", "ENXIO", "ESTALE", "EUCLEAN")
)
_NOTHING_WAS_LOST = frozenset({errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.EACCES})
"""Nothing was synced: the folder is gone or may not be read, or there are no descriptors now."""
_NOTHING_WAS_REPLACED = _NOTHING_WAS_LOST | {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_broken(error: OSError) -> bool:
    """Return whether this error means a broken disk, rather than a full one or a missing file."""
    return error.errno in _BROKEN


class GuardedFile:
    """An open file of a guarded directory; see `seams.File`."""

    __slots__ = ("_file", "_guard", "_path", "close", "size", "view")

    size: Callable[[], int]
    view: Callable[[int, int], memoryview]
    close: Callable[[], None]

    def __init__(self, guard: GuardedFiles, path: str, file: File) -> None:
        self._guard, self._path, self._file = guard, path, file
        self.size, self.view, self.close = file.size, file.view, file.close

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`."""
        try:
            return self._file.pread(position, length)
        except OSError as error:
            self._guard.met(error, self._path)
            raise

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as the buffer takes."""
        return self._heed(self._file.pread_into, position, buffer)

    def pread_cached_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as are in memory."""
        return self._heed(self._file.pread_cached_into, position, buffer)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, or none."""
        try:
            return self._file.append(buffers)
        except OSError as error:
            self._guard.met(error, self._path)
            raise

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self._heed(self._file.truncate, size)

    def _heed(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            self._guard.met(error, self._path)
            raise

    def fsync(self) -> None:
        """Make the content durable, unless the directory has failed."""
        self._guard.sync(self._file.fsync, self._path, _NOTHING_WAS_LOST)


class GuardedFiles:
    """The `FileSystem` of one log directory. `failure` is the error that ended its use."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self.failure: OSError | None = None
        self.on_failure: Callable[[OSError], object] | None = None
        """Called once with the failure, on the thread that met it."""
        self.read_bytes, self.rename = self._heeding(files.read_bytes), self._heeding(files.rename)
        self.list, self.sizes = self._heeding(files.list), self._heeding(files.sizes)
        self.make_dirs, self.remove = self._heeding(files.make_dirs), self._heeding(files.remove)
        self.remove_tree = self._heeding(files.remove_tree)
        self.remove_empty_dir, self.exists = files.remove_empty_dir, files.exists
        self.is_link = files.is_link

    def _heeding(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except OSError as error:
                self.met(error, str(args[0]) if args else "")
                raise

        return call

    def open(self, path: str, *, create: bool = False) -> GuardedFile:
        """Open for reading and appending."""
        try:
            return GuardedFile(self, path, self._files.open(path, create=create))
        except OSError as error:
            self.met(error, path)
            raise

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file durably, unless the directory has failed."""
        self.sync(lambda: self._files.write_atomic(path, data), path, _NOTHING_WAS_REPLACED)

    def fsync_dir(self, path: str) -> None:
        """Make a folder's entries durable, unless the directory has failed."""
        self.sync(lambda: self._files.fsync_dir(path), path, _NOTHING_WAS_LOST)

    def lock(self, path: str) -> FileLock:
        """Take the exclusive lock file."""
        return self._files.lock(path)

    # -- failures ----------------------------------------------------------------------------------

    def sync(self, do: Callable[[], None], path: str, harmless: frozenset[int]) -> None:
        """Make something durable. OSError, which names the file, if that fails, or if anything
        failed before; other errors than the `harmless` are the directory's failure."""
        failure = self.failure
        if failure is not None:
            raise OSError(failure.errno, failure.strerror, failure.filename) from failure
        try:
            do()
        except OSError as error:
            _name(error, path)
            if error.errno not in harmless:
                self.fail(error)
            raise

    def met(self, error: OSError, path: str) -> None:
        """Record an error at a path."""
        _name(error, path)
        if is_broken(error):
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Fail all later syncs."""
        if self.failure is None:
            self.failure = error
            if self.on_failure is not None:
                self.on_failure(error)


def _name(error: OSError, path: str) -> None:
    if error.filename is None and error.errno is not None:
        error.filename = path
