"""One cluster for all processes of a test run, as `--tidelog-shared` asks for under pytest-xdist.

The first process that needs it runs it, and stops it when no other process uses it. They agree by
locks on files in a folder that they share. The system releases the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidelog.embedded.running import RunningCluster

__all__ = ["SharedCluster"]


class SharedCluster:
    """The part that one process has in it: as a user, and for one of them also as the owner."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._address = folder / "bootstrap-servers"
        # Record locks (lockf), unlike flock, do not pass to children that a test forks.
        self._turn, self._owner, self._users = (
            (folder / name).open("a+") for name in ("turn.lock", "owner.lock", "users.lock")
        )
        self.own: RunningCluster | None = None
        """The cluster, in the process that runs it."""

    def join(self, start: Callable[[], RunningCluster]) -> str:
        """Return its address; start it unless a living process has done so."""
        if self.own is not None:
            return self.own.bootstrap_servers
        with _locked(self._turn):
            fcntl.lockf(self._users, fcntl.LOCK_SH)
            if _is_taken(self._owner):
                return self._address.read_text()
            try:
                self.own = start()
            except BaseException:
                fcntl.lockf(self._owner, fcntl.LOCK_UN)
                raise
            self._address.write_text(self.own.bootstrap_servers)
            return self.own.bootstrap_servers

    def leave(self) -> None:
        """Stop using it. The owner waits until no other process does, and stops it."""
        fcntl.lockf(self._users, fcntl.LOCK_UN)
        try:
            if self.own is not None:
                fcntl.lockf(self._users, fcntl.LOCK_EX)
                self.own.stop()
        finally:
            for file in (self._owner, self._users, self._turn):
                file.close()  # it releases the lock


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


def _is_taken(file: IO[str]) -> bool:
    """Take a lock; return whether another process has it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
