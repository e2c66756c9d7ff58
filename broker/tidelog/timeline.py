"""A line of time of one broker, which a tester may move (`seams.Timeline`).

It follows the machine's clock until it is moved. Its timers are in a heap of their own, with one
timer of the loop for the first of them.

`control/clock.py` moves it in steps: `begin_step`, then `stand_at` for each moment up to the end of
the step, then `end_step`. Time stands still while the tasks that a moment woke are `awake`.

A timer that is set during a step runs at its end at the earliest. So a task that works every second
works once in a step of an hour, and each step has an end.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoopTimeline", "Pace", "Paces"]

log = logging.getLogger("tidelog.timeline")

WAIT_S_MAX = 86_400.0  # some platforms cannot set timers for centuries
CANCELLED_MAX = 100  # entries of cancelled timers that may exceed the live ones
PACES_MAX = 1000
PACE_MS_MIN = 1000  # a shorter piece of time between two moves is taken for a part of them


class _Timer:
    """A callback in the heap."""

    __slots__ = ("_callback", "_line", "context", "is_over")

    def __init__(self, line: LoopTimeline, callback: Callable[[], None]) -> None:
        self._line = line
        self._callback = callback
        self.context = contextvars.copy_context()
        self.is_over = False

    def cancel(self) -> None:
        """Cancel the timer."""
        if not self.is_over:
            self.is_over = True
            self._line.cancelled()

    def run(self) -> None:
        """Run once, unless cancelled."""
        if not self.is_over:
            self.is_over = True
            self._callback()


class Pace(NamedTuple):
    """How fast time passes from a moment of the wall clock; 1 is as fast as the wall clock."""

    wall_ms: float
    passed_ms: float
    rate: float


class Paces:
    """How much time passed between moments of a wall clock that was moved."""

    def __init__(self) -> None:
        self.list: list[Pace] = []

    def add(self, rate: float, wall_ms: int) -> None:
        """Note that from now on time passes at this rate of the wall clock."""
        paces = self.list
        if len(paces) > 1 and rate < paces[-1].rate and wall_ms - paces[-1].wall_ms < PACE_MS_MIN:
            paces.pop()
        if (paces[-1].rate if paces else 1.0) != rate:
            paces.append(Pace(wall_ms, self._passed_at(wall_ms), rate))
            del paces[:-PACES_MAX]

    def elapsed_ms(self, since_ms: int, now_ms: int) -> int:
        """Return how much time passed between two moments of the wall clock."""
        return round(self._passed_at(now_ms) - self._passed_at(since_ms))

    def _passed_at(self, wall_ms: int) -> float:
        for pace in reversed(self.list):
            if pace.wall_ms <= wall_ms:
                return pace.passed_ms + (wall_ms - pace.wall_ms) * pace.rate
        if self.list:  # from before the oldest one
            return self.list[0].passed_ms - (self.list[0].wall_ms - wall_ms)
        return float(wall_ms)


class LoopTimeline:
    """Time of the running loop, until a tester moves it, stops it or changes its rate.

    Invariant: `_armed` is set for the first timer, except in a step, at rate 0 and while held.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns the seconds of the machine's clock."""
        self._monotonic = monotonic
        self._base = self._since = 0.0  # this time and the machine's at the last change
        self._rate = 1.0
        self._is_held = False
        self._heap: list[tuple[float, int, _Timer]] = []
        self._next_tie = 0
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = math.inf
        self._start: float | None = None  # of the step under way
        self._now = 0.0  # in a step
        self._end = -math.inf  # of the step under way
        self._awake: dict[asyncio.Task[Any], None] = {}
        self.paces = Paces()

    # -- the seam ----------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since some fixed moment."""
        if self._start is not None:
            return self._now
        return self._base + (self._monotonic() - self._since) * self._rate

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> _Timer:
        """Call back at `when`."""
        timer = _Timer(self, lambda: callback(*args))
        when = max(when, self._end)
        self._next_tie += 1
        heappush(self._heap, (when, self._next_tie, timer))
        if when < self._armed_for:
            self._arm()
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_at(self.time() + seconds, self._wake, self._at_rest(), woken)
        try:
            await woken
        finally:
            timer.cancel()

    async def wait_until(self, event: asyncio.Event, when: float) -> bool:
        """Wait for an event, but not after `when`; return whether it was set."""
        try:
            async with asyncio.timeout(None) as limit:
                timer = self.call_at(when, self._expire, self._at_rest(), limit)
                try:
                    await event.wait()
                finally:
                    timer.cancel()
        except TimeoutError:
            return False
        return True

    def elapsed_ms(self, since_ms: int, now_ms: int) -> int:
        """Return how much of this time passed between two moments of the wall clock."""
        return self.paces.elapsed_ms(since_ms, now_ms)

    # -- timers ------------------------------------------------------------------------------------

    def cancelled(self) -> None:
        """Count a cancelled timer, and drop the entries of all when they are too many."""
        self._cancelled += 1
        if 2 * self._cancelled > len(self._heap) + CANCELLED_MAX:
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapify(self._heap)
            self._cancelled = 0

    def _first(self) -> float | None:
        """When the first timer is due."""
        while self._heap and self._heap[0][2].is_over:
            heappop(self._heap)
            self._cancelled = max(0, self._cancelled - 1)
        return self._heap[0][0] if self._heap else None

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed, self._armed_for = None, math.inf
        due = self._first()
        if due is None or self._start is not None or self._rate == 0 or self._is_held:
            return
        wait_s = min(max(0.0, (due - self.time()) / self._rate), WAIT_S_MAX)
        self._armed_for = due
        self._armed = asyncio.get_running_loop().call_later(wait_s, self._fire, wait_s)

    def _fire(self, waited_s: float) -> None:
        # A loop may fire within its clock's resolution.
        now = self.time() if waited_s == WAIT_S_MAX else max(self.time(), self._armed_for)
        self._armed, self._armed_for = None, math.inf
        self._run_until(now)
        self._arm()

    def _run_until(self, now: float) -> None:
        loop = asyncio.get_running_loop()
        while (due := self._first()) is not None and due <= now:
            timer = heappop(self._heap)[2]
            loop.call_soon(timer.run, context=timer.context)

    # -- tasks that wait ---------------------------------------------------------------------------

    def _at_rest(self) -> asyncio.Task[Any]:
        """Return the current task, which has nothing to do for now."""
        task = asyncio.current_task()
        assert task is not None
        self._awake.pop(task, None)
        return task

    def _wake(self, task: asyncio.Task[Any], woken: asyncio.Future[None]) -> None:
        if not woken.done():
            self._rouse(task)
            woken.set_result(None)

    def _expire(self, task: asyncio.Task[Any], limit: asyncio.Timeout) -> None:
        self._rouse(task)
        limit.reschedule(asyncio.get_running_loop().time())

    def _rouse(self, task: asyncio.Task[Any]) -> None:
        if self._start is not None:
            self._awake[task] = None

    # -- moves -------------------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Seconds of this time in a second."""
        return self._rate

    def set_line(self, base: float, since: float, rate: float) -> None:
        """Let this time be `base` at second `since` of the machine's, and pass at this rate; 0
        stops it."""
        assert self._start is None, "a step is under way"
        self._base, self._since, self._rate = base, since, rate
        self._arm()

    def hold(self) -> None:
        """Run no timer until `go_on`, while time passes: the process stands still."""
        self._is_held = True
        self._arm()

    def go_on(self) -> None:
        """Run the timers again; those that fell due meanwhile run after what the sockets have."""
        self._is_held = False
        self._arm()

    def begin_step(self, seconds: float) -> None:
        """Hold this time still, to move it by so many seconds."""
        assert self._start is None, "one step at a time"
        self._start = self._now = self.time()
        self._end = self._start + seconds
        self._arm()

    def next_s(self) -> float | None:
        """Return how far into the step the next timer is due; None if none is in this step."""
        assert self._start is not None
        due = self._first()
        return None if due is None or due > self._end else max(due, self._now) - self._start

    def stand_at(self, seconds: float) -> None:
        """Move to so many seconds into the step, and run the timers that are due."""
        assert self._start is not None
        self._now = max(self._now, min(self._start + seconds, self._end))
        self._run_until(self._now)

    def awake(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that were woken in this step and have not come to rest."""
        return [task for task in self._awake if not task.done()]

    def leave_behind(self) -> None:
        """Wait no longer for the tasks that are awake: they do something long."""
        for task in self.awake():
            log.info("time goes on while %s is still at work", task.get_name())
        self._awake.clear()

    def end_step(self) -> None:
        """Continue from the end of the step."""
        self._base, self._since = self._end, self._monotonic()
        self._start, self._end = None, -math.inf
        self._awake.clear()
        self._arm()
