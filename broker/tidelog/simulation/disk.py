"""A simulated disk: what is written and what is durable are kept apart.

Model. A file is an inode with written bytes and a synced length (bytes below it are durable once
the inode is). Names (creations, renames, removals, in the order they happened) are durable up to
some point of a journal; `fsync_dir` and an atomic write move that point, and so does fsync of a
file for the names that led to it, as journaling file systems do.

A process that is killed loses nothing written; it may die in the middle of any operation that
changes files (`die_at`), a write half done included. A power failure keeps, by the seed: a prefix
of the journal not shorter than the durable one, and of each file its synced bytes, then a part of
the rest, whose end may be torn into zeros or noise. A truncation that was not synced may be undone.

Open files and locks are in `disk_files.py`, failures of a disk in `disk_trouble.py`, a process
without descriptors in `descriptors.py`.

Where names are `apart`, each folder has a journal of its own, as some file systems do: a sync makes
the names of one folder durable, and after a power failure a later change of one folder may be there
without an earlier one of another.
"""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Any

from tidelog.simulation.descriptors import Descriptors
from tidelog.simulation.disk_files import SimFile, SimLock
from tidelog.simulation.disk_trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES_APART = "names apart"
SEEDS_WITH_IT = 0.15


def has_names_apart(seed: int | str) -> bool:
    """Whether the file systems of a seed's machines keep a journal for each folder."""
    return random.Random(f"{seed}:{NAMES_APART}").random() < SEEDS_WITH_IT


class MachineDiedError(BaseException):
    """The process was killed inside this file operation; nothing of it runs on."""


class Inode:
    """A file's bytes, whatever its name is."""

    __slots__ = ("data", "durable", "read", "rotten", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.read: Any = None  # what `raw_logs` made of the bytes the last time
        self.rotten: tuple[int, bytes] | None = None  # bad bytes that have no checksum, and where
        self.synced = 0  # data[:synced] survives a power failure
        self.durable = bytearray()  # what the last sync left; equal to `data` below `synced`


class SimDisk:
    """One machine's disk. Outlives the machine's lives; handles of an earlier life are fenced."""

    def __init__(self, seed: int | str, capacity_bytes: int | None = None) -> None:
        self.rng = random.Random(f"{seed}:disk")
        self.capacity_bytes = capacity_bytes
        self.names: dict[str, Inode] = {}
        self.folders: set[str] = {""}
        self.life = 0
        self.locks: set[str] = set()
        self.lock_notes: dict[str, bytes] = {}  # of this disk alone: no copy has them
        self.durable_names: dict[str, Inode] = {}
        self.durable_folders: set[str] = {""}
        self.journal: list[tuple[Any, ...]] = []  # name changes that are not durable yet
        self.is_apart = False  # each folder's changes become durable by themselves
        self.syncs = 0
        self.operations = 0  # that changed something
        self.die_at: int | None = None  # the operation in which the process is killed
        self.on_death: Callable[[], None] | None = None
        self.on_sync: Callable[[], None] = lambda: None  # before each sync that is waited for
        self.unwinding = False  # the step that was killed has not ended yet
        self.trouble = Trouble(seed)
        self.descriptors = Descriptors()

    # lives

    def files(self) -> SimFiles:
        """The `FileSystem` seam for a new life of the machine."""
        return SimFiles(self)

    def kill(self) -> None:
        """The process dies; the operating system lives on and keeps what was written."""
        self.trouble.end_life()
        self.descriptors.end_life()
        self.life += 1
        self.locks.clear()

    def calm(self) -> None:
        """No fault of the disk waits to strike any more."""
        self.die_at = None
        self.trouble.calm()
        self.descriptors.calm()

    def power_failure(self) -> None:
        """The machine dies: unsynced names and bytes survive in part."""
        self.kill()
        self.lock_notes.clear()
        for change in self._surviving_changes():
            _apply(self.durable_names, self.durable_folders, change)
        self._forget_orphans()
        self.names = dict(self.durable_names)
        self.folders = set(self.durable_folders)
        self.journal.clear()
        for inode in dict.fromkeys(self.names.values()):
            self._tear(inode)

    def _surviving_changes(self) -> list[tuple[Any, ...]]:
        """Of the changes that are not durable: a prefix, or one of each folder's."""
        if not self.is_apart:
            return self.journal[: self.rng.randint(0, len(self.journal))]
        by_folder: dict[str, list[int]] = {}
        for index, change in enumerate(self.journal):
            by_folder.setdefault(_folder_of(change), []).append(index)
        kept: set[int] = set()
        for indexes in by_folder.values():
            kept.update(indexes[: self.rng.randint(0, len(indexes))])
        return [change for index, change in enumerate(self.journal) if index in kept]

    def _forget_orphans(self) -> None:
        """What is in a folder whose own name did not become durable cannot be reached."""
        folders = self.durable_folders
        for folder in sorted(folders):  # parents first
            if folder and folder.rpartition("/")[0] not in folders:
                folders.discard(folder)
        for name in list(self.durable_names):
            if name.rpartition("/")[0] not in folders:
                del self.durable_names[name]

    def _tear(self, inode: Inode) -> None:
        rest = bytes(inode.data[inode.synced :])
        kept = self.rng.randint(0, len(rest))
        if len(inode.durable) > inode.synced and self.rng.random() < 0.5:
            inode.data = bytearray(inode.durable)  # the truncation never reached the platter
            inode.synced = len(inode.data)
            return
        end = rest[:kept]
        if end and self.rng.random() < 0.5:
            torn = self.rng.randint(1, min(len(end), 4096))
            noise = bytes(torn) if self.rng.random() < 0.5 else self.rng.randbytes(torn)
            end = end[:-torn] + noise
        inode.data = bytearray(inode.durable[: inode.synced]) + end
        inode.durable = bytearray(inode.data)
        inode.synced = len(inode.data)

    def flip(self, path: str, position: int, bit: int) -> None:
        """Bit rot: this bit is another one from now on."""
        inode = self.names[path]
        inode.data[position] ^= 1 << bit
        if position < inode.synced:
            inode.durable[position] ^= 1 << bit

    def has_files(self, folder: str) -> bool:
        """Whether a folder has anything in it."""
        return any(name.startswith(f"{folder}/") for name in self.names)

    # room

    def used_bytes(self) -> int:
        """Bytes of all files that have a name."""
        return sum(len(inode.data) for inode in dict.fromkeys(self.names.values()))

    def check_room(self, more: int) -> None:
        """Raise ENOSPC when the disk can't take `more` bytes."""
        if self.capacity_bytes is not None and self.used_bytes() + more > self.capacity_bytes:
            raise OSError(errno.ENOSPC, "simulated disk is full")

    # names

    def change(self, *change: Any) -> None:
        """A name changes: visible at once, durable later."""
        if change[0] == "rename" and change[1] in self.folders:
            self._follow(change[1], change[2])
        _apply(self.names, self.folders, change)
        self.journal.append(change)

    def _follow(self, source: str, target: str) -> None:
        """A folder is renamed: what changed in it is found under its new name from now on."""
        if self.is_apart:
            self.journal = [
                (kind, *(_moved(one, source, target) for one in rest))
                for kind, *rest in self.journal
            ]

    def sync_names(self, folder: str | None = None) -> None:
        """All name changes so far are durable, or those of the one folder if names are apart."""
        folder = "" if folder == "." else folder
        later: list[tuple[Any, ...]] = []
        for change in self.journal:
            if self.is_apart and folder is not None and _folder_of(change) != folder:
                later.append(change)
            else:
                _apply(self.durable_names, self.durable_folders, change)
        self.journal = later

    def sync(self, inode: Inode) -> None:
        """A file's bytes, and the names that led to it, are durable."""
        self.syncs += 1
        del inode.durable[inode.synced :]
        inode.durable += memoryview(inode.data)[inode.synced :]
        inode.synced = len(inode.data)
        if not self.is_apart:
            self.sync_names()
            return
        for name in [name for name, one in self.names.items() if one is inode]:
            self.sync_names(name.rpartition("/")[0])

    def operate(self) -> bool:
        """Count an operation that changes files; whether the process dies in it."""
        self.operations += 1
        return self.operations == self.die_at

    def die(self) -> None:
        """Kill the process here and now: its step unwinds without reaching the disk again."""
        self.die_at = None
        self.unwinding = True
        assert self.on_death is not None
        self.on_death()
        raise MachineDiedError


def _moved(path: Any, source: str, target: str) -> Any:
    is_inside = isinstance(path, str) and path.startswith(source + "/")
    return target + path[len(source) :] if is_inside else path


def _folder_of(change: tuple[Any, ...]) -> str:
    """The folder in which a name changes."""
    path: str = change[1]
    return path.rpartition("/")[0]


def _rename(names: dict[str, Inode], folders: set[str], source: str, target: str) -> None:
    if source in names:
        names[target] = names.pop(source)
    if source not in folders:
        return  # a file
    for name in [name for name in names if name.startswith(source + "/")]:
        names[target + name[len(source) :]] = names.pop(name)
    for folder in [f for f in folders if f == source or f.startswith(source + "/")]:
        folders.discard(folder)
        folders.add(target + folder[len(source) :])


def _apply(names: dict[str, Inode], folders: set[str], change: tuple[Any, ...]) -> None:
    match change:
        case ("create", str(path), Inode() as inode):
            names[path] = inode
        case ("remove", str(path)):
            names.pop(path, None)
        case ("folder", str(path)):
            folders.add(path)
        case ("remove_tree", str(path)):
            for name in [name for name in names if name.startswith(path + "/")]:
                del names[name]
            folders.difference_update({f for f in folders if f == path or f.startswith(path + "/")})
        case ("rename", str(source), str(target)):
            _rename(names, folders, source, target)
        case _:
            raise AssertionError(change)


class SimFiles:
    """The `FileSystem` of one life of a machine."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.life = disk.life

    def fence(self) -> None:
        """Code of a dead life must never get here."""
        if self.life != self.disk.life:
            if self.disk.unwinding:
                raise MachineDiedError
            raise AssertionError("a dead process touched the disk")

    def _change(self) -> None:
        self.fence()
        if self.disk.operate():
            self.disk.die()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and appending."""
        self.fence()
        inode = self.disk.names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, path)
            self._need_folder(path)
            self.disk.descriptors.use_for_a_moment()
            self._change()
            inode = Inode()
            self.disk.change("create", path, inode)
        return SimFile(self, inode, path)

    def _need_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, folder)

    def read_bytes(self, path: str) -> bytes:
        """The whole content."""
        self.fence()
        self.disk.trouble.read_whole(path)
        inode = self.disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, path)
        self.disk.descriptors.use_for_a_moment()
        self.disk.trouble.read(inode)
        return bytes(inode.data)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace as a whole, durably."""
        self.fence()
        self._need_folder(path)
        self.disk.descriptors.use_for_a_moment()
        self.disk.check_room(len(data))
        self._change()
        inode = Inode()
        self.disk.change("create", path + ".tmp", inode)
        inode.data = bytearray(data)
        self.disk.on_sync()
        try:
            self.disk.trouble.sync(path, inode)
        except OSError:
            self.disk.change("remove", path + ".tmp")
            raise
        self.disk.sync(inode)
        self._change()
        self.disk.change("rename", path + ".tmp", path)
        self.disk.on_sync()
        self.disk.sync_names(path.rpartition("/")[0])

    def rename(self, source: str, target: str) -> None:
        """Rename over the target."""
        self._change()
        if source not in self.disk.names and source not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, source)
        self.disk.change("rename", source, target)

    def fsync_dir(self, path: str) -> None:
        """Names are durable."""
        self.fence()
        self.disk.descriptors.use_for_a_moment()
        self._change()
        self.disk.on_sync()
        self.disk.trouble.sync(path, None)
        self.disk.sync_names(path)

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder."""
        return sorted(self._entries(path))

    def sizes(self, path: str) -> dict[str, int]:
        """Sizes of the files in a folder."""
        prefix = path + "/"
        names = self.disk.names
        return {
            name: len(names[prefix + name].data)
            for name in sorted(self._entries(path))
            if prefix + name in names
        }

    def _entries(self, path: str) -> set[str]:
        self.fence()
        if path not in self.disk.folders:
            raise FileNotFoundError(errno.ENOENT, path)
        self.disk.descriptors.use_for_a_moment()
        prefix = path + "/"
        everything = [*self.disk.names, *self.disk.folders]
        return {name[len(prefix) :].split("/")[0] for name in everything if name.startswith(prefix)}

    def make_dirs(self, path: str) -> None:
        """Create a folder and its parents."""
        self.fence()
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            folder = "/".join(parts[:count])
            if folder not in self.disk.folders:
                self._change()
                self.disk.change("folder", folder)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.fence()
        if path in self.disk.names:
            self._change()
            self.disk.change("remove", path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it."""
        self.fence()
        if path in self.disk.folders:
            self._change()
            self.disk.change("remove_tree", path)

    def remove_empty_dir(self, path: str) -> None:
        """Remove a folder, unless something is in it."""
        self.fence()
        if path in self.disk.folders and not self._entries(path):
            self.remove_tree(path)

    def is_link(self, path: str) -> bool:
        """There are no symbolic links."""
        return False

    def exists(self, path: str) -> bool:
        """Whether it is there."""
        self.fence()
        return path in self.disk.names or path in self.disk.folders

    def lock(self, path: str) -> SimLock:
        """Take a lock."""
        self.fence()
        if path in self.disk.locks:
            raise BlockingIOError(errno.EAGAIN, path)
        self.disk.locks.add(path)
        return SimLock(self.disk, path)
