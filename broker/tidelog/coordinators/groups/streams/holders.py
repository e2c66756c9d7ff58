"""The processes that run each task of a group, or must still give it back. Pure.

A process keeps one state directory for all its members, so no two of them may have the same task.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.coordinators.groups.streams.tasks import HeldTasks, Tasks

    Task = tuple[str, int]
    """Subtopology and partition."""

__all__ = ["TaskHolders"]


class TaskHolders:
    """Processes by task."""

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._standby: defaultdict[Task, set[str]] = defaultdict(set)
        self._warmup: defaultdict[Task, set[str]] = defaultdict(set)

    def add(self, held: HeldTasks, process_id: str) -> None:
        """Note that a member of this process has tasks."""
        for key, partitions in held.active.items():
            self._active.update(((key, each), process_id) for each in partitions)
        _add(self._standby, held.standby, process_id)
        _add(self._warmup, held.warmup, process_id)

    def remove(self, held: HeldTasks, process_id: str) -> None:
        """Note that a member of this process no longer has tasks."""
        for key, partitions in held.active.items():
            for each in partitions:
                if self._active.get((key, each)) == process_id:
                    del self._active[key, each]
        _remove(self._standby, held.standby, process_id)
        _remove(self._warmup, held.warmup, process_id)

    def blocks_active(self, task: Task, process_id: str) -> bool:
        """Return whether a member of this process may not have the active task yet."""
        return task in self._active or self._has_copy(task, process_id)

    def blocks_copy(self, task: Task, process_id: str) -> bool:
        """Return whether a member of this process may not have a standby or warm-up task yet."""
        return self._active.get(task) == process_id or self._has_copy(task, process_id)

    def _has_copy(self, task: Task, process_id: str) -> bool:
        copies = (self._standby.get(task, ()), self._warmup.get(task, ()))
        return any(process_id in each for each in copies)


def _add(found: defaultdict[Task, set[str]], tasks: Tasks, process_id: str) -> None:
    for key, partitions in tasks.items():
        for each in partitions:
            found[key, each].add(process_id)


def _remove(found: defaultdict[Task, set[str]], tasks: Tasks, process_id: str) -> None:
    for key, partitions in tasks.items():
        for each in partitions:
            found[key, each].discard(process_id)
            if not found[key, each]:
                del found[key, each]
