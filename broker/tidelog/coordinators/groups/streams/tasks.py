"""Tasks of a streams group: sets of active, standby and warm-up tasks. Values; pure.

A task is a subtopology and a partition.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Tasks = Mapping[str, frozenset[int]]
    """Partitions by subtopology; no set is empty."""
    Epochs = Mapping[str, Mapping[int, int]]
    """By subtopology and partition: the epoch of the member when it got the active task."""

__all__ = ["NOTHING", "NO_TASKS", "HeldTasks", "TaskSets"]

_EMPTY: Tasks = MappingProxyType({})
_NO_EPOCHS: Epochs = MappingProxyType({})


class TaskSets(NamedTuple):
    """Tasks that a member shall have, or says that it has."""

    active: Tasks = _EMPTY
    standby: Tasks = _EMPTY
    warmup: Tasks = _EMPTY

    def has_any(self, held: HeldTasks) -> bool:
        """Return whether one of these tasks is there too, in the same role."""
        return (
            any(not each.isdisjoint(held.active.get(key, ())) for key, each in self.active.items())
            or _meet(self.standby, held.standby)
            or _meet(self.warmup, held.warmup)
        )


class HeldTasks(NamedTuple):
    """Tasks that a member has, or must give back."""

    active: Epochs = _NO_EPOCHS
    standby: Tasks = _EMPTY
    warmup: Tasks = _EMPTY

    def covers(self, owned: TaskSets) -> bool:
        """Return whether all these tasks are there, in the same role."""
        return (
            all(each <= self.active.get(key, {}).keys() for key, each in owned.active.items())
            and _within(owned.standby, self.standby)
            and _within(owned.warmup, self.warmup)
        )


NO_TASKS = TaskSets()
NOTHING = HeldTasks()


def _meet(one: Tasks, other: Tasks) -> bool:
    return any(not each.isdisjoint(other.get(key, ())) for key, each in one.items())


def _within(one: Tasks, other: Tasks) -> bool:
    return all(each <= other.get(key, frozenset()) for key, each in one.items())
