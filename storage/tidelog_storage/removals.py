"""Files and folders that wait for their removal: `file.delete.delay.ms` after they were renamed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog_storage.open_files import lacks_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Removals:
    """Paths and the times (ms) from which they may be removed. A stop loses them: loading cleans
    up."""

    __slots__ = ("_again", "_remove", "_waiting")

    def __init__(self, remove: Callable[[str], None]) -> None:
        self._remove = remove
        self._waiting: list[tuple[int, str]] = []
        self._again: deque[str] = deque()  # failed for lack of a descriptor; threads append to it

    def __len__(self) -> int:
        return len(self._waiting) + len(self._again)

    def add(self, due_ms: int, paths: Iterable[str]) -> None:
        """Remove the paths at `due_ms` or later."""
        self._waiting += [(due_ms, path) for path in paths]

    def is_due(self, now_ms: int) -> bool:
        """Return whether a removal is due."""
        return bool(self._again) or any(due_ms <= now_ms for due_ms, _ in self._waiting)

    def run(self, now_ms: int) -> None:
        """Remove all that is due, now."""
        remove = self.prepare(now_ms)
        if remove is not None:
            remove()

    def prepare(
        self, now_ms: int, before: Callable[[], None] | None = None
    ) -> Callable[[], None] | None:
        """Return a function that calls `before` and removes all that is due; None if nothing is.

        It touches nothing but the files, so that it can be called on a thread: a file system may
        take many milliseconds to remove one large file. Removals that fail for lack of a descriptor
        wait for the next call of `prepare`.
        """
        if not self.is_due(now_ms):
            return None
        again = self._again
        due = deque(again.popleft() for _ in range(len(again)))
        due += [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        remove = self._remove

        def run() -> None:
            try:
                if before is not None:
                    before()
                while due:
                    remove(due[0])
                    due.popleft()
            except OSError as error:
                if lacks_descriptors(error):
                    again.extend(due)
                raise

        return run
