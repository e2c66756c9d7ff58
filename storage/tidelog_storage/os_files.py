"""The real `FileSystem`: the operating system's, through plain descriptors.

Only the composition root (`server.py`) and tests import it. What it knows of performance: appends
are one `write`/`writev`, small reads one `pread`, large reads slices of a shared mapping. A mapping
is made when a read reaches beyond the last one, so a growing file is mapped again from time to time
(about 6 us) and a sealed one once. A file is never shortened under a mapping in use, because
touching the lost pages would kill the process (SIGBUS): its prefix becomes a new file with the old
name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from itertools import count
from typing import TYPE_CHECKING
from weakref import ref

from tidelog_storage.open_files import OPEN_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog_storage.open_files import Descriptor, OpenFiles
    from tidelog_storage.seams import Buffer

_READ_AND_APPEND = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW  # a link may lead to others' files
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
_OWN_FOLDER = 0o700  # records may be secrets
_COPY_BYTES = 1 << 20
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOT_CACHED = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class OsFile:
    """A file of the operating system; see `seams.File`.

    It releases its descriptor when others need one, and opens its path again at the next use.
    """

    def __init__(
        self, path: str, descriptor: Descriptor, open_files: OpenFiles, files: OsFileSystem
    ) -> None:
        self._path = path
        self._files = files
        self._open_files = open_files
        self._descriptor: Descriptor | None = descriptor
        self._is_closed = False
        self._size = os.fstat(descriptor).st_size
        self._map: mmap.mmap | None = None
        self._map_bytes = 0
        self._maps: list[ref[mmap.mmap]] = []  # all mappings that may still be in use
        self.is_recent = True
        open_files.add(self)

    def _use(self) -> Descriptor:
        """The descriptor. The caller keeps a reference while it uses it."""
        self.is_recent = True
        descriptor = self._descriptor
        return self._open_again() if descriptor is None else descriptor

    def _open_again(self) -> Descriptor:
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        descriptor = self._descriptor = self._open_files.open(self._path, _READ_AND_APPEND)
        self._open_files.add(self)
        return descriptor

    def give_up(self) -> None:
        """Release the descriptor and the mapping, which has one of its own, until the next use."""
        self._descriptor = None
        self._map = None

    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`."""
        if self._files.trouble is not None:
            self._files.trouble("reads", self._path)
        descriptor = self._descriptor  # as `_use`, without a call: each Fetch reads
        if descriptor is None:
            descriptor = self._open_again()
        self.is_recent = True
        data = os.pread(descriptor, length, position)
        if len(data) < length and position + len(data) < self._size:
            return self._read_on(data, position, length)
        return data

    def _read_on(self, data: bytes, position: int, length: int) -> bytes:
        """Continue a short read.

        EIO if the file ends before its size: the missing part must not look like the end of a log.
        """
        while len(data) < length and position + len(data) < self._size:
            more = os.pread(self._use(), length - len(data), position + len(data))
            if not more:
                missing = f"{self._size} bytes expected, {position + len(data)} found"
                raise OSError(errno.EIO, missing, self._path)
            data += more
        return data

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as the buffer takes."""
        if self._files.trouble is not None:
            self._files.trouble("reads", self._path)
        return os.preadv(self._use(), (buffer,), position)

    def pread_cached_into(self, position: int, buffer: memoryview) -> int:
        """As many bytes from `position` as the page cache has, on Linux."""
        if not _RWF_NOWAIT:
            return 0
        try:
            return os.preadv(self._use(), (buffer,), position, _RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NOT_CACHED:
                raise
            return 0

    def view(self, position: int, length: int) -> memoryview:
        """A read-only slice of a mapping of the file."""
        if self._files.trouble is not None:
            self._files.trouble("reads", self._path)
        self.is_recent = True
        end = min(position + length, self._size)
        if position >= end:
            return memoryview(b"")
        mapping = self._map
        if mapping is None or end > self._map_bytes:
            mapping = self._remap()
        return memoryview(mapping)[position:end]

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, or none."""
        if self._files.trouble is not None:
            self._files.trouble("writes", self._path)
        descriptor = self._use()
        before = after = self._size
        try:
            for buffer in buffers:
                size = len(buffer)
                written = os.write(descriptor, buffer)
                while written < size:
                    written += os.write(descriptor, memoryview(buffer)[written:])
                after += size
        except OSError:
            os.ftruncate(descriptor, before)
            raise
        self._size = after
        return after - before

    def truncate(self, size: int) -> None:
        """Cut the file; mappings in use keep the bytes they show.

        An empty file is left alone: ext4 starts to write a file that was cut to nothing when it is
        closed (auto_da_alloc), which takes 1 ms.
        """
        assert size <= self._size
        if not self._size:
            return
        if self._has_views():
            self._replace_by_prefix(size)
        else:
            os.ftruncate(self._use(), size)
        self._size = size

    def fsync(self) -> None:
        """Make the content durable.

        A file that gave its descriptor up is opened for it: the new descriptor syncs all that was
        written, and Linux (4.17, errseq_sample) reports an error to it that no descriptor has
        reported yet. If the inode left memory meanwhile, the error is forgotten, and the scrubber
        finds what is missing.
        """
        if self._files.trouble is not None:
            self._files.trouble("syncs", self._path)
        if not self._files.syncs:
            return
        descriptor = self._descriptor
        try:
            if descriptor is None:
                if self._is_closed:
                    return  # deleted, or flushed by its closer
                descriptor = self._open_files.open(self._path, _READ_AND_APPEND)
        except FileNotFoundError:
            return  # deleted
        os.fsync(descriptor)

    def close(self) -> None:
        """Release the descriptor; views of it live on."""
        self._is_closed = True
        self._open_files.remove(self)
        self.give_up()

    def _remap(self) -> mmap.mmap:
        size = self._size
        mapping = self._open_files.retry(mmap.mmap, self._use(), size, access=mmap.ACCESS_READ)
        self._maps = [made for made in self._maps if made() is not None]
        self._maps.append(ref(mapping))
        self._map, self._map_bytes = mapping, size
        return mapping

    def _has_views(self) -> bool:
        self._map = None  # unmapped with its last view
        return any(made() is not None for made in self._maps)

    def _replace_by_prefix(self, size: int) -> None:
        temporary = self._path + ".tmp"
        source = self._use()
        target = self._open_files.open(temporary, _READ_AND_APPEND | os.O_CREAT | os.O_TRUNC)
        with _removed_on_error(temporary):
            for position in range(0, size, _COPY_BYTES):
                chunk = os.pread(source, min(_COPY_BYTES, size - position), position)
                while chunk:
                    chunk = chunk[os.write(target, chunk) :]
            os.fsync(target)  # the prefix may have been durable under the old name
            os.rename(temporary, self._path)
        _fsync_dir(os.path.dirname(self._path), self._open_files)
        self._descriptor = target
        self._maps.clear()  # they show the old file, which is not truncated again


@contextlib.contextmanager
def _removed_on_error(path: str) -> Iterator[None]:
    """Remove a temporary file after an error: a full disk needs the space."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _fsync_dir(path: str, open_files: OpenFiles) -> None:
    os.fsync(open_files.open(path or ".", os.O_RDONLY | os.O_DIRECTORY))


_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NOTE_BYTES_MAX = 1024


class OsFileLock:
    """An flock'ed file; see `seams.FileLock`."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor: Descriptor | None = descriptor

    def predecessor(self) -> bytes:
        """The noted line, if it was noted in this file since the system started."""
        assert self._descriptor is not None
        where, _, rest = os.pread(self._descriptor, _NOTE_BYTES_MAX, 0).partition(b"\n")
        return rest.partition(b"\n")[0] if where and where == self._identity() else b""

    def note(self, data: bytes) -> None:
        """Write the line behind the file's identity."""
        assert self._descriptor is not None
        content = b"%b\n%b\n" % (self._identity(), data)
        os.pwrite(self._descriptor, content, 0)
        os.ftruncate(self._descriptor, len(content))

    def _identity(self) -> bytes:
        """Return an identity that no copy of this file has; empty if the system has no boot id."""
        assert self._descriptor is not None
        try:
            with open(_BOOT_ID, "rb") as file:
                boot_id = file.read().strip()
        except OSError:
            return b""
        status = os.fstat(self._descriptor)
        return b"%b %d %d" % (boot_id, status.st_dev, status.st_ino)

    def release(self) -> None:
        """Release the lock; keep the file, as Kafka keeps its `.lock`."""
        self._descriptor = None


class OsFileSystem:
    """The file system of this machine; see `seams.FileSystem`."""

    __slots__ = ("_next_temporary", "_open_files", "syncs", "trouble")

    def __init__(self, *, syncs: bool = True, open_files: OpenFiles = OPEN_FILES) -> None:
        """Without `syncs` it skips fsync, for data that ends with the process."""
        self.syncs = syncs
        self.trouble: Callable[[str, str], None] | None = None
        """Called first with an operation (reads, writes, syncs) and its path; an OSError that it
        raises is the operation's."""
        self._open_files = open_files
        self._next_temporary = count()  # threads may write one path at the same time

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and appending."""
        if create and self.trouble is not None:
            self.trouble("writes", path)
        flags = _READ_AND_APPEND | os.O_CREAT if create else _READ_AND_APPEND
        descriptor = self._open_files.open(path, flags)
        return OsFile(path, descriptor, self._open_files, self)

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a small file."""
        descriptor = self._open_files.open(path, os.O_RDONLY)
        parts = []
        position = 0
        while part := os.pread(descriptor, _COPY_BYTES, position):
            parts.append(part)
            position += len(part)
            if len(part) < _COPY_BYTES:
                break  # the end of the file
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a file durably."""
        if self.trouble is not None:
            self.trouble("writes", path)
        temporary = f"{path}.{next(self._next_temporary)}.tmp"
        descriptor = self._open_files.open(temporary, _NEW)
        with _removed_on_error(temporary):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self.syncs:
                os.fsync(descriptor)
            del descriptor
            os.rename(temporary, path)
        self.fsync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        """Rename over the target."""
        os.rename(source, target)

    def fsync_dir(self, path: str) -> None:
        """Make a folder's entries durable."""
        if self.syncs:
            _fsync_dir(path, self._open_files)

    def list(self, path: str) -> list[str]:
        """Sorted names."""
        return sorted(self._open_files.retry(os.listdir, path))

    def sizes(self, path: str) -> dict[str, int]:
        """Sorted names of files with their lengths."""
        with self._open_files.retry(os.scandir, path) as entries:
            found = [(entry.name, entry.stat().st_size) for entry in entries if entry.is_file()]
        found.sort()
        return dict(found)

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents."""
        try:
            os.mkdir(path, _OWN_FOLDER)  # the common case: the parent is there
        except FileExistsError:
            pass
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if not parent:
                raise
            self.make_dirs(parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, _OWN_FOLDER)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it if it is there. What a link leads to stays."""
        if os.path.islink(path):
            self.remove(path)
            return
        try:
            with self._open_files.retry(os.scandir, path) as entries:
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

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        return os.path.islink(path)

    def lock(self, path: str) -> OsFileLock:
        """Take the lock file."""
        descriptor = self._open_files.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return OsFileLock(descriptor)
