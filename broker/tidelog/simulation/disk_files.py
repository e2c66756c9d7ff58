"""Open files and held locks of a simulated disk (`disk.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.simulation.disk import Inode, SimDisk, SimFiles
    from tidelog_storage.seams import Buffer


class SimLock:
    """A held lock."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self.disk, self.path = disk, path

    def predecessor(self) -> bytes:
        """The note, unless the machine lost its power since."""
        return self.disk.lock_notes.get(self.path, b"")

    def note(self, data: bytes) -> None:
        """Note a line for the next holder."""
        self.disk.lock_notes[self.path] = data

    def release(self) -> None:
        """Give it up."""
        self.disk.locks.discard(self.path)


class SimFile:
    """An open file of one life."""

    def __init__(self, files: SimFiles, inode: Inode, path: str) -> None:
        self.files, self.inode, self.path = files, inode, path
        self.is_closed = False
        self.is_recent = True
        self.descriptors = 0
        self._use()

    def _use(self, descriptors: int = 1) -> None:
        if not self.is_closed:
            self.files.disk.descriptors.use(self, descriptors)

    def give_up(self) -> None:
        """Release the descriptors until the next use."""
        self.files.disk.descriptors.taken -= self.descriptors
        self.descriptors = 0

    def size(self) -> int:
        """Length in bytes."""
        return len(self.inode.data)

    def pread(self, position: int, length: int) -> bytes:
        """A copy of a part."""
        self.files.fence()
        self._use()
        self.files.disk.trouble.read(self.inode)
        return bytes(self.inode.data[position : position + length])

    def pread_into(self, position: int, buffer: memoryview) -> int:
        """A copy of a part, into a buffer."""
        data = self.pread(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    pread_cached_into = pread_into

    def view(self, position: int, length: int) -> memoryview:
        """A copy too: it stays valid whatever happens to the file."""
        self.files.fence()
        self._use(2)
        return memoryview(self.pread(position, length))

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end; a full disk takes nothing."""
        self.files.fence()
        self._use()
        disk = self.files.disk
        size = sum(len(buffer) for buffer in buffers)
        disk.check_room(size)
        disk.trouble.write()
        if disk.operate():
            self.inode.data += b"".join(buffers)[: disk.rng.randint(0, size)]
            disk.die()
        for buffer in buffers:
            self.inode.data += buffer
        return size

    def truncate(self, size: int) -> None:
        """Cut; what is cut counts as unsynced."""
        self.files.fence()
        self._use()
        self.files._change()
        assert size <= len(self.inode.data)
        del self.inode.data[size:]
        self.inode.synced = min(self.inode.synced, size)

    def fsync(self) -> None:
        """Durable."""
        self.files.fence()
        if not (self.is_closed or self.descriptors):
            self.files.disk.descriptors.use_for_a_moment()
        self.files._change()
        self.files.disk.on_sync()
        self.files.disk.trouble.sync(self.path, self.inode)
        self.files.disk.sync(self.inode)

    def close(self) -> None:
        """Release the descriptors."""
        if self.files.life == self.files.disk.life:
            self.is_closed = True
            self.files.disk.descriptors.files.remove(self)
            self.give_up()
