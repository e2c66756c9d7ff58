"""Bound the descriptors that files hold, and handle a process that has none left.

A log of many segments would hold a descriptor for each. Here at most `limit` files hold one. A file
beyond that replaces one that was not used lately (the clock algorithm: a recently used file gets a
second chance). That file opens its path again at its next use.

A `Descriptor` closes with its last reference. So a file may release its descriptor at any moment,
on any thread, without an effect on a call that uses it.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

OWN_FILE = 0o600
"""The mode of new files: their owner's alone."""
_SHARE = 8  # one in this many files releases its descriptor at a time


def lacks_descriptors(error: BaseException | None) -> bool:
    """Return whether the process or the system had no descriptor left, which is not a disk
    failure."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class Descriptor(int):
    """An open file descriptor, closed when the last reference goes."""

    __slots__ = ()

    def __del__(self) -> None:
        """Close it; fsync reports errors of writing, close does not."""
        os.close(self)


class Holder(Protocol):
    """A file that can release its descriptor and open another one at its next use."""

    is_recent: bool
    """Set at each use, cleared at each look."""

    def give_up(self) -> None:
        """Release the descriptor; no error if there is none."""
        ...


class OpenFiles:
    """The files of a process that hold descriptors, in clock order; safe on any thread."""

    def __init__(self, limit: int = 4096) -> None:
        self.limit = limit
        self._holders: dict[Holder, None] = {}  # each step on it is atomic

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, holder: Holder) -> None:
        """Add a file that opened a descriptor."""
        self._holders[holder] = None
        if len(self._holders) > self.limit:
            self.make_room()

    def remove(self, holder: Holder) -> None:
        """Remove a file that closed its descriptor."""
        self._holders.pop(holder, None)

    def make_room(self) -> bool:
        """Take descriptors from files that were not used lately; False if no file has one."""
        holders = list(self._holders)
        wanted = len(holders) - len(holders) // _SHARE - 1
        for holder in holders + holders:  # after one round, no file is recent
            if len(self._holders) <= wanted:
                break
            self.remove(holder)
            if holder.is_recent:
                holder.is_recent = False
                self._holders[holder] = None
            else:
                holder.give_up()
        return bool(holders)

    def retry(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that opens something; take descriptors from files while it lacks one."""
        while True:
            try:
                return function(*args, **kwargs)
            except OSError as error:
                if not lacks_descriptors(error) or not self.make_room():
                    raise

    def open(self, path: str, flags: int) -> Descriptor:
        """Open a path; the caller calls `add` if a file keeps the descriptor."""
        return Descriptor(self.retry(os.open, path, flags | os.O_CLOEXEC, OWN_FILE))


OPEN_FILES = OpenFiles()
"""All files of this process."""
