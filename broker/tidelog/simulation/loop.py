"""An asyncio loop without a clock or a selector: one seed decides the order of everything.

Callbacks run in *lanes*: a lane is a machine or a client (a context variable, inherited by what it
starts). Within a lane the order is asyncio's own, first in, first out, because protocols and
futures rely on it; between lanes the seed chooses. Time stands still while anything is ready and
then jumps to the next timer. If nothing is ready and no timer is set while a task waits, the loop
raises `DeadlockError`.

A step takes no time, unless it waits in a call that blocks (`stall`): then its lane stands still
for that time, and the others go on.

A crash closes a lane: its callbacks, timers and transports never run again, as after a loss of
power. (A cancelled task would still run its `finally` blocks and write to a dead machine's disk.)
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import math
import random
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

from tidelog.simulation.timeline import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LANE: contextvars.ContextVar[str] = contextvars.ContextVar("lane", default="test")
STEPS_MAX = 10_000_000
NOTES_KEPT = 1000


class DeadlockError(RuntimeError):
    """A task waits, and nothing can ever happen again."""


class SimHandle:
    """Stands for asyncio's Handle and TimerHandle, without their debug mode, which costs more than
    the rest."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "lane", "moment")

    def __init__(self, callback: Any, args: Any, context: Any, moment: float = 0.0) -> None:
        self.callback, self.args, self.moment = callback, args, moment
        self.context = contextvars.copy_context() if context is None else context
        self.lane: str = self.context.get(LANE, "test")
        self.is_cancelled = False

    def cancel(self) -> None:
        """Never run it; release the callback."""
        self.is_cancelled = True
        self.callback = self.args = None

    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self.is_cancelled

    def when(self) -> float:
        """The virtual moment of a timer."""
        return self.moment


class SimLoop(asyncio.AbstractEventLoop):
    """Virtual time, seeded order, a hash of all that happened."""

    def __init__(self, seed: int | str) -> None:
        self._order = random.Random(f"{seed}:sched")
        self._now = 0.0
        self._ready: dict[str, deque[SimHandle]] = {}
        self._lanes: list[str] = []  # lanes with something ready, in the order they became so
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._sequence = 0
        self._closed_lanes: set[str] = set()
        self._paused_lanes: dict[str, int] = {}  # by how many pauses that overlap
        self._stall_s = 0.0  # of the step that runs
        self.stalls: dict[str, float] = {}  # the longest of each lane
        self._trace = hashlib.blake2b(digest_size=16)
        self._notes: list[tuple[float, str, str]] = []  # that are not hashed yet
        self._running = False
        self._stopping = False
        self._closed = False
        self.steps = 0
        self.lane = "test"  # whose step it is, or was last
        self.failures: list[dict[str, Any]] = []
        self.events: list[Event] = []  # for the reader of a failure
        self.after_step: Callable[[], object] | None = None  # checks the invariants

    # what happened

    def note(self, text: str) -> None:
        """Add a line to the trace, by which two runs of a seed are compared."""
        self._note("", text)

    def _note(self, lane: str, text: str) -> None:
        self._notes.append((self._now, lane, text))
        if len(self._notes) >= NOTES_KEPT:
            self._hash_notes()

    def tell(self, subject: str, text: str) -> None:
        """Add a line to the trace and to the timeline."""
        self.note(f"{subject}: {text}")
        self.events.append(Event(self._now, subject, text))

    def remark(self, subject: str, text: str) -> None:
        """Add a line to the timeline alone: its text may differ from run to run."""
        self.events.append(Event(self._now, subject, text))

    def tell_acked(self, log: str, end: int) -> None:
        """Note in the timeline that a client has an acknowledgement of a log up to this end."""
        self.events.append(Event(self._now, "clients", log, end))

    def _hash_notes(self) -> None:
        self._trace.update(repr(self._notes).encode())
        self._notes.clear()

    @property
    def trace(self) -> str:
        """Hash of all steps so far."""
        self._hash_notes()
        return self._trace.hexdigest()

    def close_lane(self, lane: str) -> None:
        """Run nothing of this lane any more."""
        self._closed_lanes.add(lane)
        self._ready.pop(lane, None)
        if lane in self._lanes:
            self._lanes.remove(lane)

    def pause_lane(self, lane: str) -> None:
        """Stop a machine (SIGSTOP): all that arrives waits, timers that end included."""
        self._paused_lanes[lane] = self._paused_lanes.get(lane, 0) + 1
        if lane in self._lanes:
            self._lanes.remove(lane)

    def resume_lane(self, lane: str) -> None:
        """Continue with all that has arrived meanwhile, unless another pause holds the lane."""
        pauses = self._paused_lanes.pop(lane, 0)
        if pauses > 1:
            self._paused_lanes[lane] = pauses - 1
        elif pauses and self._ready.get(lane):
            self._lanes.append(lane)

    def stall(self, seconds: float) -> None:
        """Block the step that runs for this time: nothing else of its lane runs meanwhile."""
        self._stall_s += seconds

    def _stand_still(self, lane: str) -> None:
        seconds, self._stall_s = self._stall_s, 0.0
        self.stalls[lane] = max(self.stalls.get(lane, 0.0), seconds)
        self.pause_lane(lane)
        self.call_later(seconds, self.resume_lane, lane)

    # scheduling

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Any:
        """Run when its lane's turn comes."""
        handle = SimHandle(callback, args, context)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # there are no threads here

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Any:
        """Run at `delay` virtual seconds from now, and later than now if it is above 0.

        A clock of another rate may be short of a moment by less than this loop's time can move: a
        task that waits for that moment would ask for ever.
        """
        when = self._now + delay
        if delay > 0 and when == self._now:
            when = math.nextafter(when, math.inf)
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Any:
        """Run at a virtual moment."""
        timer = SimHandle(callback, args, context, when)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, timer))
        return timer

    def _enqueue(self, handle: SimHandle) -> None:
        lane = handle.lane
        if lane in self._closed_lanes:
            return
        queue = self._ready.get(lane)
        if queue is None:
            queue = self._ready[lane] = deque()
        if not queue and lane not in self._paused_lanes:
            self._lanes.append(lane)
        queue.append(handle)

    def _wake_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not self._lanes and timers:
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                self._enqueue(handle)

    def _step(self) -> None:
        timers = self._timers
        if not self._lanes or (timers and timers[0][0] <= self._now):
            self._wake_timers()
        if not self._lanes:
            if self._timers:
                return
            raise DeadlockError(f"at {self._now:.3f} s nothing can run")
        index = 0 if len(self._lanes) == 1 else self._order.randrange(len(self._lanes))
        lane = self._lanes[index]
        queue = self._ready[lane]
        handle = queue.popleft()
        if not queue:
            del self._lanes[index]
        if handle.is_cancelled:
            return
        self.steps += 1
        self.lane = lane
        assert self.steps < STEPS_MAX, "the run does not end"
        callback = handle.callback
        name = getattr(callback, "__qualname__", None) or type(callback).__name__
        self._note(lane, name)
        try:
            handle.context.run(callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as asyncio's loops do, of a machine's death too
            self.call_exception_handler({"message": f"in {name}", "exception": error})
        if self._stall_s:
            self._stand_still(lane)
        if self.after_step is not None:
            self.after_step()

    # running

    def run_forever(self) -> None:
        """Until `stop`."""
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._step()
        finally:
            self._stopping = self._running = False
            asyncio._set_running_loop(None)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until it is done; returns its result."""
        task = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        task.add_done_callback(lambda _done: self.stop())
        self.run_forever()
        return task.result()

    def stop(self) -> None:
        """End `run_forever` after this step."""
        self._stopping = True

    def is_running(self) -> bool:
        """Whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """asyncio.Runner asks for it; there are none."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """asyncio.Runner asks for it; there is none."""

    # futures, tasks, errors

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """A task of this loop; never eager, because that would change the order."""
        options.pop("eager_start", None)
        name = options.pop("name", None) or getattr(coro, "__qualname__", "task")
        return asyncio.Task(coro, loop=self, name=name, **options)

    def get_debug(self) -> bool:
        """Never: debug mode reads the real clock."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an exception that nothing awaits: a failure of the run, unless its lane is dead."""
        if not self._closed:
            self.failures.append(context)

    default_exception_handler = call_exception_handler


def simulate(
    seed: int | str, main: Callable[[SimLoop], Coroutine[Any, Any, T]]
) -> tuple[T, SimLoop]:
    """Run `main(loop)` to its end in a fresh loop; returns its result and the loop.

    Tasks of dead lanes are left behind: asyncio.Runner would cancel them and wait for ever.
    """
    loop = SimLoop(seed)  # type: ignore[abstract]  # asyncio's loop is no ABC when it runs
    try:
        result = loop.run_until_complete(main(loop))
    finally:
        loop.close()
    return result, loop
