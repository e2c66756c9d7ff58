"""Files and folders that wait for their removal: `file.delete.delay.ms` after they were renamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.segment import DELETED_SUFFIX, SEGMENT_SUFFIXES, TRANSACTION_INDEX_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog_storage.segment import Segment


def mark_deleted(segment: Segment) -> list[str]:
    """Rename a segment's files so that the log no longer has them; returns the new paths.

    They are removed later, because a reader may be about to open them (KIP-405 copies too).
    """
    segment.release()
    renamed = []
    for suffix in SEGMENT_SUFFIXES:
        path = segment.path(suffix)
        if suffix != TRANSACTION_INDEX_SUFFIX or segment.files.exists(path):
            try:
                segment.files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue  # index files appear at the first flush or roll
            renamed.append(path + DELETED_SUFFIX)
    return renamed


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

    def prepare(self, now_ms: int) -> Callable[[], None] | None:
        """What removes all that is due, which does not wait here any more; None if nothing is.

        It touches nothing but the files, so that it can be called on a thread: a file system may
        take many milliseconds to remove one large file.
        """
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        if not due:
            return None
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        remove = self._remove

        def run() -> None:
            for path in due:
                remove(path)

        return run
