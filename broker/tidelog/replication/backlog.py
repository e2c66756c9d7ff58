"""Replicas that are opened or deleted in later turns of the loop, a few in each.

Opening a new log takes some file operations, 0.3 ms and more. The 10,000 partitions that one
request may ask for would keep the loop for seconds. So an image that brings many changes has the
first ones made at once, and the rest here. A request for a replica that waits opens it, if the turn
has room for that; else it gets NOT_LEADER_OR_FOLLOWER, which clients retry. `replica_manager.py`
owns the backlog.

Kafka applies an image on a thread of its own, so its requests meet partitions that are not there
yet too.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.seams import Timers
    from tidelog_storage.types import TopicPartition

__all__ = ["AT_ONCE_MAX", "SLICE", "Backlog"]

AT_ONCE_MAX = 32  # of one image
SLICE = 16  # of one turn of the loop: 5 to 15 ms


class Backlog:
    """Keys of replicas, in the order in which they are settled. A count bounds each turn, not a
    clock: the order of events stays the same in a simulation."""

    def __init__(self, timers: Timers, settle: Callable[[Sequence[TopicPartition]], None]) -> None:
        """`settle` makes replicas what the current image says."""
        self._timers = timers
        self._settle = settle
        self._keys: dict[TopicPartition, None] = {}
        self._room = AT_ONCE_MAX
        self._asked_room = SLICE
        self._is_due = False

    def __len__(self) -> int:
        """Return the number of replicas that wait."""
        return len(self._keys)

    def __contains__(self, key: TopicPartition) -> bool:
        """Return whether a replica waits."""
        return key in self._keys

    def begin(self, room: int | None = AT_ONCE_MAX) -> int:
        """Begin with a new image, of which `room` changes are made at once; None for all. Return
        what room there was."""
        before, self._room = self._room, 1 << 62 if room is None else room
        return before

    def settle_asked(self, key: TopicPartition) -> bool:
        """Settle a replica that waits, because it is asked for; False if it does not wait, or the
        turn has no room."""
        if key not in self._keys or self._asked_room <= 0:
            return False
        self._asked_room -= 1
        del self._keys[key]
        self._settle([key])
        return True

    def takes(self, key: TopicPartition, *, at_once: bool = False) -> bool:
        """Return whether a change of a replica waits; if not, the caller makes it now. With
        `at_once` it waits only for an earlier change of the same replica."""
        if key in self._keys:
            return True
        if self._room > 0 or at_once:
            self._room -= 1
            return False
        self._keys[key] = None
        self._arm()
        return True

    def clear(self) -> None:
        """Forget all."""
        self._keys.clear()

    def _arm(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._timers.call_at(self._timers.time(), self._turn)

    def _turn(self) -> None:
        self._is_due = False
        self._asked_room = SLICE
        keys = list(islice(self._keys, SLICE))
        for key in keys:
            del self._keys[key]
        if keys:
            if self._keys:
                self._arm()
            self._settle(keys)
