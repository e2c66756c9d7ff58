"""Finds callbacks that hold the event loop: what ran, for how long, and where it was.

While something watches, each callback of the process's asyncio loops is timed, and a thread looks
where a long one is. Off, it costs nothing: it replaces `asyncio.Handle._run`, as asyncio's debug
mode would time callbacks too, but also slow everything down several times. The CPU time of a
callback tells its own work from waits for a disk, and from a busy machine.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["SlowCallback", "watch"]

STACK_DEPTH = 12
_HANDLE: Any = asyncio.Handle  # typeshed hides its parts


class SlowCallback(NamedTuple):
    """One callback above the limit. `stack` has the functions that it was in, innermost first;
    empty if it ended before the thread looked."""

    name: str
    wall_ms: float
    cpu_ms: float
    stack: tuple[str, ...]

    def __str__(self) -> str:
        where = f": {' < '.join(self.stack)}" if self.stack else ""
        return f"{self.wall_ms:.0f} ms ({self.cpu_ms:.0f} ms of CPU) in {self.name}{where}"


class _Running:
    """A callback that runs."""

    __slots__ = ("began", "began_cpu", "stack")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.began_cpu = time.thread_time()
        self.stack: tuple[str, ...] = ()


class _Watches:
    """All that watch, by number. The first one starts the timing, and the last one ends it."""

    def __init__(self) -> None:
        self._watches: dict[int, tuple[float, Callable[[SlowCallback], None]]] = {}
        self._running: dict[int, _Running] = {}  # by thread
        self._last = 0
        self._original = _HANDLE._run
        self._stop = threading.Event()

    def add(self, limit_s: float, report: Callable[[SlowCallback], None]) -> Callable[[], None]:
        self._last += 1
        number = self._last
        self._watches[number] = (limit_s, report)
        if len(self._watches) == 1:
            self._begin()

        def end() -> None:
            if self._watches.pop(number, None) is not None and not self._watches:
                _HANDLE._run = self._original
                self._stop.set()

        return end

    def _begin(self) -> None:
        original = self._original

        def _run(handle: Any) -> None:
            thread = threading.get_ident()
            outer = self._running.get(thread)  # of a loop that a callback runs
            running = self._running[thread] = _Running()
            try:
                original(handle)
            finally:
                if outer is None:
                    self._running.pop(thread, None)
                else:
                    self._running[thread] = outer
                self._ended(handle, running)

        _HANDLE._run = _run
        self._stop = threading.Event()
        arguments = (self._stop, min(limit for limit, _ in self._watches.values()) / 2)
        threading.Thread(
            target=self._look, args=arguments, name="tidelog-watchdog", daemon=True
        ).start()

    def _look(self, stop: threading.Event, every_s: float) -> None:
        while not stop.wait(every_s):
            now = time.monotonic()
            long = [each for each in list(self._running.items()) if now - each[1].began >= every_s]
            if not long:
                continue
            with _no_collection():
                frames = sys._current_frames()
                for thread, running in long:
                    if thread in frames:
                        stack = _stack(frames[thread])
                        if self._running.get(thread) is running:
                            running.stack = stack
                del frames

    def _ended(self, handle: Any, running: _Running) -> None:
        took = time.monotonic() - running.began
        for limit_s, report in list(self._watches.values()):
            if took >= limit_s:
                cpu_ms = 1000 * (time.thread_time() - running.began_cpu)
                report(SlowCallback(_name(handle), 1000 * took, cpu_ms, running.stack))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python 3.11 may collect garbage in the middle of `f_back`. If what that runs lets the watched
    thread go on, the frame is gone: gh-106883 tells the same of `_current_frames`."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _stack(frame: FrameType) -> tuple[str, ...]:
    found: list[str] = []
    for inner, line in traceback.walk_stack(frame):
        code = inner.f_code
        if code.co_filename == __file__ or len(found) == STACK_DEPTH:
            break
        if code.co_filename.startswith("<frozen"):
            continue  # what imports a module
        file = "/".join(code.co_filename.rsplit("/", 2)[-2:])
        found.append(f"{code.co_qualname} ({file}:{line})")
    return tuple(found)


def _name(handle: Any) -> str:
    """Return the name of a callback, or of the coroutine of a task."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner.get_name()))
    return str(getattr(callback, "__qualname__", type(callback).__name__))


_WATCHES = _Watches()


def watch(limit_ms: float, report: Callable[[SlowCallback], None]) -> Callable[[], None]:
    """Report each callback of this process's loops that takes longer, on the loop that ran it;
    return what ends it."""
    return _WATCHES.add(limit_ms / 1000, report)
