"""The application's processes: each has a host of its own, is killed and started again.

A process is a coroutine function. Each of its lives is a lane of the loop: after a kill nothing of
that life runs again, its connections are reset, and its `finally` blocks do not run. What the
function keeps outside (a dictionary that stands for a database) is what the next life finds.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from tidelog.simulation.machine import in_lane

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.simulation.app_loop import AppLoop
    from tidelog.simulation.network import SimNetwork

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
RESTART_S = 0.5  # after which a life that ended by an exception is followed by the next


class Process:
    """One process of the application, made by `Simulation.process()`."""

    def __init__(
        self,
        loop: AppLoop,
        network: SimNetwork,
        name: str,
        start: Callable[[], Coroutine[Any, Any, object]],
        *,
        restarts: bool,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"name={name!r}: use lower-case letters, digits and -")
        self.name = name
        self.lives = 0
        self.failure: BaseException | None = None  # ends the run
        self._loop, self._network = loop, network
        self._start, self._restarts = start, restarts
        self._task: asyncio.Task[Any] | None = None
        self._lane = ""
        self._graves: list[asyncio.Task[Any]] = []  # Python would run `finally` blocks of the dead
        self._ended = loop.create_future()
        self.start()

    @property
    def is_running(self) -> bool:
        """Whether a life goes on."""
        return self._task is not None

    def start(self) -> None:
        """Begin a life, unless one goes on or the function has returned."""
        if self._task is not None or self._ended.done():
            return
        self.lives += 1
        self._lane = f"{self.name}.{self.lives}"
        self._task = in_lane(self._lane, self._start())
        self._task.add_done_callback(self._note_end)

    def kill(self) -> None:
        """End the life at once, as SIGKILL does."""
        if self._task is not None:
            self._graves += asyncio.all_tasks(self._loop)
            self._close("is killed")

    def pause(self) -> str:
        """Stop the process (SIGSTOP); returns what `resume` needs."""
        self._loop.pause_lane(self._lane)
        return self._lane

    def resume(self, lane: str) -> None:
        """Let it go on."""
        self._loop.resume_lane(lane)

    async def ended(self) -> None:
        """Wait until the function has returned."""
        await asyncio.shield(self._ended)

    def _close(self, how: str) -> None:
        self._loop.remark(self._lane, how)
        self._loop.close_lane(self._lane)
        self._network.drop_host(self.name)
        self._task = None

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        if task is not self._task:
            return
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._close("ends")
            self._ended.set_result(None)
            return
        self._close(f"ends with {type(error).__name__}: {error}")
        is_verdict = isinstance(error, AssertionError) or not isinstance(error, Exception)
        if self._restarts and not is_verdict:
            in_lane("simulation", self._start_later())
        else:
            self.failure = error

    async def _start_later(self) -> None:
        await asyncio.sleep(RESTART_S)
        self.start()
