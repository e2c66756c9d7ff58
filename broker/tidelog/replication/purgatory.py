"""Parked operations that wait for an event of a key, or for their deadline.

It owns watch lists by key, one timer for all deadlines, and the rule that an operation completes
exactly once. The replica manager (events) and the API handlers (parking) call it; it does not know
Fetch or Produce, which subclass `DelayedOperation`.

An event costs a dictionary look-up per key if no operation waits, and one `touch` per waiting
operation otherwise: never a scan of all keys of an operation. Operations that are ready are
completed after all keys of the event were touched, so that a Fetch woken by an append to ten
partitions answers with all ten.

An operation that raises fails alone: the event's caller and the other operations continue.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from tidelog.seams import TimerHandle, Timers

__all__ = ["DelayedOperation", "Purgatory"]

log = logging.getLogger("tidelog.replication.purgatory")

K = TypeVar("K", bound="Hashable")


class DelayedOperation(Generic[K]):
    """A parked operation; subclasses list their cases of completion.

    States: parked -> completed (by an event, by force or by its deadline) or cancelled. `closed` is
    True in both end states, and neither `touch` nor `complete` is called again.
    """

    __slots__ = ("closed", "watched_keys")

    def __init__(self) -> None:
        self.closed = False
        self.watched_keys: tuple[K, ...] = ()

    def touch(self, key: K) -> bool:
        """Handle an event of `key`; return whether the operation can complete now."""
        raise NotImplementedError

    def complete(self, *, expired: bool) -> None:
        """Complete with what there is; `expired` if the deadline is the reason. Called once."""
        raise NotImplementedError

    def fail(self) -> None:
        """Answer the client with an error, because `touch` or `complete` raised."""


class Purgatory(Generic[K]):
    """Parked operations by the keys that can wake them."""

    __slots__ = (
        "_deadlines",
        "_next_tie",
        "_parked",
        "_purge_min",
        "_timer",
        "_timer_at",
        "_timers",
        "_watchers",
    )

    def __init__(self, timers: Timers, *, purge_min: int = 1000) -> None:
        """`purge_min`: dead deadlines that may exceed the live ones before a purge."""
        self._timers = timers
        self._watchers: dict[K, dict[DelayedOperation[K], None]] = {}
        self._deadlines: list[tuple[float, int, DelayedOperation[K]]] = []
        self._next_tie = 0
        self._parked = 0
        self._purge_min = purge_min
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """Return the number of parked operations."""
        return self._parked

    @property
    def watches(self) -> int:
        """Return the number of watches: each operation counts once per key."""
        return sum(len(waiting) for waiting in self._watchers.values())

    def watched(self, key: K) -> int:
        """Return how many operations wait for this key."""
        return len(self._watchers.get(key, ()))

    def park(self, operation: DelayedOperation[K], keys: Iterable[K], wait_ms: float) -> None:
        """Watch an operation that cannot complete yet, for at most `wait_ms`.

        The caller has just checked that it cannot complete. No event can be lost in between,
        because nothing is awaited between the check and this call.
        """
        assert not operation.closed
        operation.watched_keys = watched = tuple(keys)
        watchers = self._watchers
        for key in watched:
            waiting = watchers.get(key)
            if waiting is None:
                watchers[key] = {operation: None}
            else:
                waiting[operation] = None
        self._parked += 1
        deadline = self._timers.time() + wait_ms / 1000
        self._next_tie += 1
        heappush(self._deadlines, (deadline, self._next_tie, operation))
        if self._timer is None or deadline < self._timer_at:
            self._schedule(deadline)
        if len(self._deadlines) > 2 * self._parked + self._purge_min:
            self._purge()

    def check(self, key: K) -> None:
        """Complete the operations that an event of `key` allows to complete."""
        waiting = self._watchers.get(key)
        if waiting is not None:
            for operation in [o for o in list(waiting) if self._touch(o, key)]:
                self.finish(operation)

    def check_all(self, keys: Iterable[K]) -> None:
        """Like `check`, for several keys of one event: all are touched before anything
        completes."""
        ready: dict[DelayedOperation[K], None] = {}
        watchers = self._watchers
        for key in keys:
            waiting = watchers.get(key)
            if waiting is not None:
                for operation in list(waiting):
                    if self._touch(operation, key):
                        ready[operation] = None
        for operation in ready:
            self.finish(operation)

    def finish(self, operation: DelayedOperation[K]) -> bool:
        """Complete with what there is, now; False if it already ended."""
        if operation.closed:
            return False
        self._complete(operation, expired=False)
        return True

    def cancel(self, operation: DelayedOperation[K]) -> None:
        """Drop an operation without completing it: its answer is no longer awaited."""
        if not operation.closed:
            self._unwatch(operation)

    def pass_by(self, seconds: float) -> None:
        """Let so many seconds pass for what is parked (`control/clock.py`)."""
        self._deadlines = [(due - seconds, tie, each) for due, tie, each in self._deadlines]
        if self._timer is not None:
            self._schedule(self._timer_at - seconds)

    def close(self) -> None:
        """Complete everything with what there is and set no more timers (clean stop)."""
        for _, _, operation in sorted(self._deadlines):
            self.finish(operation)
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _touch(self, operation: DelayedOperation[K], key: K) -> bool:
        try:
            return not operation.closed and operation.touch(key)
        except Exception:
            log.exception("%s failed on %s", type(operation).__name__, key)
            self._unwatch(operation)
            self._fail(operation)
            return False

    def _complete(self, operation: DelayedOperation[K], *, expired: bool) -> None:
        self._unwatch(operation)
        try:
            operation.complete(expired=expired)
        except Exception:
            log.exception("%s failed", type(operation).__name__)
            self._fail(operation)

    def _fail(self, operation: DelayedOperation[K]) -> None:
        try:
            operation.fail()
        except Exception:
            log.exception("%s sends no response: its client will time out", operation)

    def _unwatch(self, operation: DelayedOperation[K]) -> None:
        operation.closed = True
        self._parked -= 1
        watchers = self._watchers
        for key in operation.watched_keys:
            waiting = watchers.get(key)
            if waiting is not None and waiting.pop(operation, operation) is None and not waiting:
                del watchers[key]

    def _schedule(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._timers.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Complete operations that are due. A dead entry costs one pop; the timer follows the first
        live one."""
        self._timer = None
        now = max(
            self._timers.time(), self._timer_at
        )  # a loop may fire within its clock's resolution
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].closed or deadlines[0][0] <= now):
            operation = heappop(deadlines)[2]
            if not operation.closed:
                self._complete(operation, expired=True)
        if deadlines and self._timer is None:
            self._schedule(deadlines[0][0])

    def _purge(self) -> None:
        """Drop the deadlines of ended operations: most complete long before theirs."""
        self._deadlines = [entry for entry in self._deadlines if not entry[2].closed]
        heapify(self._deadlines)
