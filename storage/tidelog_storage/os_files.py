"""The real `FileSystem`: the operating system's, through plain descriptors.

Imported by the composition root alone (`server.py`) and by tests. What it knows of performance:
appends are one `write`/`writev`, small reads one `pread`, large reads slices of a shared mapping.
A mapping is made when a read reaches beyond the last one, so a growing file is mapped anew from
time to time (about 6 us) and a sealed one once. A file is never shortened under a mapping that
somebody still looks at, because touching the lost pages would kill the process (SIGBUS): its prefix
then becomes a new file that takes the old one's name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.seams import Buffer

_IOV_MAX = 1024
_COPY_BYTES = 1 << 20
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOT_CACHED = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class OsFile:
    """An open file of the operating system; see `seams.File`."""

    __slots__ = ("_fd", "_map", "_map_bytes", "_path", "_retired_maps", "_size", "_syncs")

    def __init__(self, path: str, descriptor: int, *, syncs: bool = True) -> None:
        self._path = path
        self._syncs = syncs
        self._fd = descriptor
        self._size = os.fstat(descriptor).st_size
        self._map: mmap.mmap | None = None
        self._map_bytes = 0
        self._retired_maps: list[mmap.mmap] = []  # replaced by larger ones, perhaps still looked at

    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`."""
        return os.pread(self._fd, length, position)

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as the buffer takes."""
        return os.preadv(self._fd, (buffer,), position)

    def pread_cached_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as the page cache has, on Linux."""
        if not _RWF_NOWAIT:
            return 0
        try:
            return os.preadv(self._fd, (buffer,), position, _RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NOT_CACHED:
                raise
            return 0

    def view(self, position: int, length: int) -> memoryview:
        """A read-only slice of a mapping of the file."""
        end = min(position + length, self._size)
        if position >= end:
            return memoryview(b"")
        if end > self._map_bytes:
            self._remap()
        mapping = self._map
        assert mapping is not None
        return memoryview(mapping)[position:end]

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, or none."""
        before = self._size
        try:
            if len(buffers) == 1:
                written = os.write(self._fd, buffers[0])
                wanted = len(buffers[0])
            else:
                wanted = sum(len(buffer) for buffer in buffers)
                written = os.writev(self._fd, buffers[:_IOV_MAX])
            if written < wanted:
                self._write_rest(buffers, written)
        except OSError:
            os.ftruncate(self._fd, before)
            raise
        self._size = before + wanted
        return wanted

    def truncate(self, size: int) -> None:
        """Cut the file; mappings in use keep the bytes they show."""
        assert size <= self._size
        if self._has_views():
            self._replace_by_prefix(size)
        else:
            os.ftruncate(self._fd, size)
        self._size = size

    def fsync(self) -> None:
        """Make the content durable, through a descriptor of its own: the loop may close ours."""
        if not self._syncs:
            return
        try:
            descriptor = os.dup(self._fd)
        except OSError:
            if self._fd < 0:
                return  # closed: deleted, or flushed by its closer
            raise
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the descriptor; views of it live on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._map = None  # freed with its last view
        self._map_bytes = 0
        self._retired_maps.clear()

    def _write_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            if written >= len(view):
                written -= len(view)
                continue
            rest = view[written:]
            written = 0
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def _remap(self) -> None:
        self._retired_maps = [old for old in self._retired_maps if not _unmapped(old)]
        if self._map is not None and not _unmapped(self._map):
            self._retired_maps.append(self._map)
        self._map = mmap.mmap(self._fd, self._size, access=mmap.ACCESS_READ)
        self._map_bytes = self._size

    def _has_views(self) -> bool:
        maps = self._retired_maps if self._map is None else [*self._retired_maps, self._map]
        self._map = None
        self._map_bytes = 0
        self._retired_maps = [old for old in maps if not _unmapped(old)]
        return bool(self._retired_maps)

    def _replace_by_prefix(self, size: int) -> None:
        temporary = self._path + ".tmp"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        try:
            for position in range(0, size, _COPY_BYTES):
                chunk = os.pread(self._fd, min(_COPY_BYTES, size - position), position)
                while chunk:
                    chunk = chunk[os.write(descriptor, chunk) :]
            os.fsync(descriptor)  # the prefix may have been durable under the old name
            os.rename(temporary, self._path)
        except OSError:
            os.close(descriptor)
            raise
        _fsync_dir(os.path.dirname(self._path))
        os.close(self._fd)
        self._fd = descriptor
        self._retired_maps.clear()  # they show the old file, which nobody cuts any more


def _unmapped(mapping: mmap.mmap) -> bool:
    """Unmap unless somebody still looks at it."""
    try:
        mapping.close()
    except BufferError:
        return False
    return True


def _fsync_dir(path: str) -> None:
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OsFileLock:
    """An flock'ed file; see `seams.FileLock`."""

    __slots__ = ("_fd",)

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def release(self) -> None:
        """Give the lock up; the file stays, as Kafka leaves its `.lock`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The file system of this machine; see `seams.FileSystem`."""

    __slots__ = ("_next_temporary", "_syncs")

    def __init__(self, *, syncs: bool = True) -> None:
        """`syncs` False makes nothing durable, for data that is thrown away with the process."""
        self._syncs = syncs
        self._next_temporary = count()  # threads may write one path at the same time

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and appending."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags | os.O_CREAT if create else flags, 0o644)
        return OsFile(path, descriptor, syncs=self._syncs)

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a small file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            position = 0
            while part := os.pread(descriptor, _COPY_BYTES, position):
                parts.append(part)
                position += len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(descriptor)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file durably."""
        temporary = f"{path}.{next(self._next_temporary)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._syncs:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        """Rename over the target."""
        os.rename(source, target)

    def fsync_dir(self, path: str) -> None:
        """Make a folder's entries durable."""
        if self._syncs:
            _fsync_dir(path)

    def list(self, path: str) -> list[str]:
        """Sorted names."""
        return sorted(os.listdir(path))

    def sizes(self, path: str) -> dict[str, int]:
        """Sorted names of files with their lengths."""
        with os.scandir(path) as entries:
            found = [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]
        found.sort()
        return dict(found)

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents."""
        try:
            os.mkdir(path, 0o755)  # the common case: the parent is there
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(path, 0o755, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it if it is there."""
        try:
            with os.scandir(path) as entries:
                children = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except FileNotFoundError:
            return
        for child, is_folder in children:
            if is_folder:
                self.remove_tree(child)
            else:
                self.remove(child)
        os.rmdir(path)

    def remove_empty_dir(self, path: str) -> None:
        """Remove a folder if it is there and empty."""
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.exists(path)

    def lock(self, path: str) -> OsFileLock:
        """Take the lock file."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return OsFileLock(descriptor)
