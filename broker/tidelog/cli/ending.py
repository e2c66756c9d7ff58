"""End a broker's process on SIGTERM, Ctrl-C or the end of its input.

Before the broker serves, nothing has to be stopped in order, and the process may be busy: with
imports, with waiting for other brokers, with the recovery of a large log, during which the loop
does not run. So the loop gets the request first, and gives up the start between two of its steps.
If it has not done so within `PATIENCE_S`, an exception is raised at the place where the process is,
and again as long as the loop has not run: the next broker may take as long to recover. The
exception is not raised at once, because it could hit the loop's own work, which then forgets a task
that is awaited at the end; and not in a `__del__`, where Python prints it and goes on.

`STOP_SECONDS_MAX` after the request the process ends in any case; if it removes temporary data of
several brokers, after the same time once more.
"""

# ruff: noqa: PLC0415 - asyncio is imported when the arguments are known to be good

from __future__ import annotations

import atexit
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType
    from typing import Any

__all__ = ["Ending", "stop_within_limit"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS_MAX = 4.5  # after this the process ends with what has been flushed
PATIENCE_S = 0.5  # for a loop to hear that the start is given up


class Ending:
    """Listens for what ends this process, from its construction on.

    `run` the broker, which says `started` when it is to be stopped in order from then on.
    """

    def __init__(self) -> None:
        self._is_asked = self._is_heard = False
        self._insisted = 0
        self._loop: AbstractEventLoop | None = None
        self._starting: Task[Any] | None = None  # to be cancelled; None when there is none (yet)
        self._stop: Callable[[], object] | None = None  # to be called instead, once it serves
        for number in ENDING_SIGNALS:
            signal.signal(number, self.ask)
        # Threads have been waited for then, and the interpreter soon forgets its signal handlers.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)

    def ask(self, *_: object) -> None:
        """Give up the start or stop, within the limit. Further requests change nothing.

        From then on the signals are ignored to the end of the process. The loop removes its own
        handlers when it closes: a second signal would kill a broker that has stopped in order.
        """
        if self._is_asked:
            return
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self._is_asked = True
        signal.signal(signal.SIGALRM, self._insist)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S, PATIENCE_S)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        self._is_heard = True
        if self._stop is not None:
            self._stop()
        elif self._starting is not None:
            self._starting.cancel()

    def _insist(self, _: int, frame: FrameType | None) -> None:
        """Another `PATIENCE_S` has gone."""
        self._insisted += 1
        if self._insisted * PATIENCE_S >= STOP_SECONDS_MAX:
            _end_now()
        if self._loop is not None and not self._is_heard and not _is_finalizing(frame):
            raise KeyboardInterrupt

    def run(self, broker: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run it in a loop; the exit code, which is 0 if the start was given up."""
        import asyncio

        async def main() -> int:
            self._starting = asyncio.current_task()
            self._loop = asyncio.get_running_loop()
            return 0 if self._is_asked else await broker()

        try:
            return asyncio.run(main())
        except (asyncio.CancelledError, KeyboardInterrupt):
            if not self._is_asked:
                raise
            return 0
        finally:
            self._loop = self._starting = self._stop = None

    def started(self, stop: Callable[[], object]) -> None:
        """From now on `stop` is called, in the loop; at once if it was asked for meanwhile."""
        assert self._loop is not None, "in run() alone"
        self._starting, self._stop = None, stop
        self._is_heard = True  # no exception from now on, wherever the process is
        if self._is_asked:
            stop()


def _is_finalizing(frame: FrameType | None) -> bool:
    """Whether a `__del__` is running: Python prints what is raised there, and goes on."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@contextmanager
def stop_within_limit() -> Iterator[None]:
    """End the process if this takes too long, by a timer of the system's: a disk that hangs would
    hang the loop's own."""
    _limit(STOP_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit(seconds: float) -> None:
    signal.signal(signal.SIGALRM, _end_now)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _end_now(*_: object) -> None:
    """End now: what is not flushed is recovered at the next start, as after a crash."""
    os.write(2, f"tidelog: did not stop within {STOP_SECONDS_MAX} s; exiting\n".encode())
    os._exit(1)
