"""The storage room's only interface to the outside: files.

Everything below takes a `FileSystem` through its constructor, so that one implementation can be the
operating system (`os_files.py`) and another a simulated disk that tears and loses unsynced writes.
Errors are `OSError`s, as the operating system's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file: positional reads, writes only at its end."""

    def size(self) -> int:
        """Length in bytes, unsynced writes included."""
        ...

    def pread(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """Like `pread`, into an existing buffer; return the number of bytes."""
        ...

    def pread_cached_into(self, position: int, buffer: memoryview) -> int:
        """Like `pread_into`, but only what is in memory: it waits for no disk.

        Returns the number of bytes, 0 if the system cannot tell that in advance.
        """
        ...

    def view(self, position: int, length: int) -> memoryview:
        """Like `pread`, for large reads: without copying where the file allows it.

        The view stays valid after the file is closed, removed or truncated.
        """
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end, whole and in order; returns the bytes written.

        On an error (disk full) nothing is appended: the file is truncated to its previous size.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, which is at most its size."""
        ...

    def fsync(self) -> None:
        """Return once all bytes and the size are durable.

        May block, so it is called off the loop, and the loop may append to, truncate or close the
        file meanwhile. Bytes appended before the call are durable after it; a file that is gone by
        then is no error.
        """
        ...

    def close(self) -> None:
        """Release the handle; closing twice is allowed. Any later use of the file is an error."""
        ...


class FileSystem(Protocol):
    """Paths are `/`-separated strings, absolute or relative to the working directory."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; FileNotFoundError unless `create`."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a small file."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace `path` whole and durably: write a `.tmp`, fsync, rename, fsync the folder."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder over `target`, atomically."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in a folder durable."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a folder; FileNotFoundError if there is none."""
        ...

    def sizes(self, path: str) -> dict[str, int]:
        """Length in bytes of every file in a folder (folders left out), sorted by name."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents; no error if it is there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it is not there."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it; no error if it is not there."""
        ...

    def remove_empty_dir(self, path: str) -> None:
        """Remove a folder, unless something is in it; no error if it is not there."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or folder of that name exists."""
        ...

    def is_link(self, path: str) -> bool:
        """Return whether a name is a symbolic link."""
        ...

    def lock(self, path: str) -> FileLock:
        """Take the exclusive lock file `path`; BlockingIOError if another process holds it."""
        ...


class FileLock(Protocol):
    """A held lock, released by `release` or by the end of the process."""

    def predecessor(self) -> bytes:
        """Return the note of the previous holder, if it has certainly ended: it held this very file
        since the system started. Empty for a copy of the file, and after a restart of the
        system."""
        ...

    def note(self, data: bytes) -> None:
        """Write one line for the next holder; it need not survive a power failure."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...
