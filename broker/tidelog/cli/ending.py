"""End a broker's process on SIGTERM, Ctrl-C or the end of its input.

Until the broker serves, nothing needs an orderly stop. But the process may be busy with imports,
waiting for other brokers, or recovering a large log, during which the loop does not run. So the
loop gets the request first and cancels the start between two of its steps. If that takes longer
than `PATIENCE_S`, a signal handler raises an exception wherever the process is, and again until the
loop runs, because the next broker may take as long to recover. The exception is not raised at once:
it could hit the loop's own code, which then loses a task that is awaited at the end. It is not
raised in a `__del__` either, where Python prints it and continues.

The process ends at the latest `STOP_SECONDS_MAX` after the request. It has more time to make its
logs durable, or `REMOVE_SECONDS_MAX` to remove them. One of several brokers also has time to move
its leaderships.
"""

# ruff: noqa: PLC0415 - asyncio is imported when the arguments are known to be good

from __future__ import annotations

import atexit
import os
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType
    from typing import Any

__all__ = ["REMOVE_SECONDS_MAX", "STOP_SECONDS_MAX", "Ending", "stop_within_limit"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS_MAX = 4.5  # more than what a stop waits for: connections, copies, the quorum
REMOVE_SECONDS_MAX = 30.0  # the files of some thousand partitions, on a busy disk
PATIENCE_S = 0.5  # time for the loop to cancel the start


class Ending:
    """Listens for what ends this process, from its construction on.

    `run` the broker, which calls `started` once it needs an orderly stop.
    """

    def __init__(self) -> None:
        self._is_asked = self._is_heard = False
        self._insisted = 0
        self._loop: AbstractEventLoop | None = None
        self._starting: Task[Any] | None = None  # the task to cancel, if any
        self._stop: Callable[[], object] | None = None  # called instead once the broker serves
        for number in ENDING_SIGNALS:
            signal.signal(number, self.ask)
        # All threads have ended then, and the interpreter soon drops its signal handlers.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)

    def ask(self, *_: object) -> None:
        """Cancel the start, or stop the broker, within the limit. Further requests change nothing.

        From then on the process ignores the signals. The loop removes its own handlers when it
        closes, so a second signal would kill a broker that has stopped cleanly.
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
        """Called after each `PATIENCE_S`."""
        self._insisted += 1
        if self._insisted * PATIENCE_S >= STOP_SECONDS_MAX:
            _end_now(STOP_SECONDS_MAX)
        if self._loop is not None and not self._is_heard and not _is_finalizing(frame):
            raise KeyboardInterrupt

    def run(self, broker: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Run it in a loop and return the exit code, which is 0 if the start was cancelled."""
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
        """Set the `stop` to call in the loop; call it at once if a request came meanwhile."""
        assert self._loop is not None, "in run() alone"
        self._starting, self._stop = None, stop
        self._is_heard = True  # no exception from now on, wherever the process is
        if self._is_asked:
            stop()


def _is_finalizing(frame: FrameType | None) -> bool:
    """Return whether a `__del__` is running: Python prints an exception there and continues."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@contextmanager
def stop_within_limit(seconds: float = STOP_SECONDS_MAX) -> Iterator[None]:
    """End the process if this takes too long. The timer is the system's, because a disk that hangs
    also blocks the loop's timers."""
    signal.signal(signal.SIGALRM, partial(_end_now, seconds))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_now(seconds: float, *_: object) -> None:
    """End now. The next start recovers unflushed data, as after a crash."""
    os.write(2, f"tidelog: did not stop within {seconds:g} s; exiting\n".encode())
    os._exit(1)
