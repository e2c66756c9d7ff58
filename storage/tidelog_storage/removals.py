"""Files and folders that wait for their removal: `file.delete.delay.ms` after they were renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Removals:
    """Paths and the times (ms) from which they may go. Lost on a stop: loading cleans up."""

    __slots__ = ("_remove", "_waiting")

    def __init__(self, remove: Callable[[str], None]) -> None:
        self._remove = remove
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, due_ms: int, paths: Iterable[str]) -> None:
        """Remove the paths at `due_ms` or later."""
        self._waiting += [(due_ms, path) for path in paths]

    def run(self, now_ms: int) -> None:
        """Remove what is due."""
        if self._waiting:
            due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
            self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
            for path in due:
                self._remove(path)
