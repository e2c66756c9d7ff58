"""What a failing disk does: EIO on a sync, a read or a write, and pages that are gone afterwards.

A failed sync is Linux's: the error is reported once, the pages count as clean, later syncs succeed.
Reads give the written bytes as long as the process lives, which stands for the page cache; the next
life finds zeros in their place. After a failed sync nothing of the folder may be synced in that
life, which is checked here.
"""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.simulation.disk import Inode


REBUILT = "/remote-log-"  # copies of what is elsewhere: no log, no checkpoint of one


class LostPages(NamedTuple):
    """Bytes that were to be written by a sync that failed."""

    inode: Inode
    start: int
    end: int


class Trouble:
    """The faults of one disk; nothing fails until it is armed."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(f"{seed}:trouble")
        self.sync_fails: Callable[[str], bool] | None = None
        """Asked at each sync with something to write, with its path: whether this is the one."""
        self.on_failed_sync: Callable[[], None] = lambda: None
        self.write_fails = self.read_fails = False
        self.unreadable: str | None = None
        """A log directory whose files cannot be read as a whole, as at a start."""
        self.violation: str | None = None  # a failed folder was synced again
        self.on_violation: Callable[[str], None] = lambda _violation: None
        self._bad: Any = None  # the file that cannot be read
        self._lost: list[LostPages] = []
        self._failed: set[str] = set()  # log directories of this life

    @property
    def has_lost_pages(self) -> bool:
        """Whether the next life finds zeros."""
        return bool(self._lost)

    def calm(self) -> None:
        """Nothing fails any more; what is lost stays lost."""
        self.sync_fails = None
        self.write_fails = self.read_fails = False
        self._bad = self.unreadable = None

    def sync(self, path: str, inode: Inode | None) -> None:
        """Before a sync. `inode` is None for a folder."""
        if REBUILT in path:
            return
        log_dir = path.partition("/")[0]
        if log_dir in self._failed and self.violation is None:
            self.violation = f"{path} was synced after {log_dir} had failed"
            self.on_violation(self.violation)
        has_nothing = inode is not None and inode.synced == len(inode.data)
        if has_nothing or self.sync_fails is None or not self.sync_fails(path):
            return
        self.sync_fails = None
        self._failed.add(log_dir)
        if inode is not None:
            start = self._rng.randrange(inode.synced, len(inode.data))
            end = self._rng.randint(start + 1, len(inode.data))
            self._lost.append(LostPages(inode, start, end))
        self.on_failed_sync()
        raise OSError(errno.EIO, "simulated failed sync", path)

    def read(self, inode: Inode) -> None:
        """Before a read: the first one after arming finds the file that is bad from then on."""
        if self.read_fails:
            self._bad, self.read_fails = inode, False
        if self._bad is inode:
            raise OSError(errno.EIO, "simulated failed read")

    def read_whole(self, path: str) -> None:
        """Before a read of a whole file."""
        if self.unreadable is not None and path.startswith(f"{self.unreadable}/"):
            raise OSError(errno.EIO, "simulated unreadable directory", path)

    def write(self) -> None:
        """Before a write: one fails."""
        if self.write_fails:
            self.write_fails = False
            raise OSError(errno.EIO, "simulated failed write")

    def end_life(self) -> None:
        """The pages leave the cache."""
        for inode, start, lost_end in self._lost:
            end = min(lost_end, len(inode.data))
            inode.data[start:end] = bytes(max(0, end - start))
        self._lost.clear()
        self._failed.clear()
