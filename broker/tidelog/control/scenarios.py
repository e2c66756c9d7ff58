"""Scenarios of replication and tiering for pages: `tidelog scenario --json` in another process.

That process has clusters of its own, so a play does not touch the cluster that is shown. One play
runs at a time, and its steps are kept: a scenario always ends the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from tidelog.control.errors import MISSING, REFUSED, UNANSWERED, ControlError

__all__ = ["Scenarios"]

PLAY_S_MAX = 300


class Scenarios:
    """The plays of one door."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._printed: dict[str, Any] = {}
        self._process: asyncio.subprocess.Process | None = None

    async def all(self) -> Any:
        """Return what each scenario is about: name, title, sources, notes, rules."""
        return await self._print_of("")

    async def play(self, name: str) -> Any:
        """Return a scenario with its steps, played under today's rule and an older one."""
        names = [each["name"] for each in await self.all()]
        if name not in names:
            text = f"there is no scenario {name!r}; there are {', '.join(names)}"
            raise ControlError(text, field="name", status=MISSING)
        return await self._print_of(name)

    async def _print_of(self, name: str) -> Any:
        async with self._one_at_a_time:
            if name not in self._printed:
                words = [name] if name else []
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "tidelog", "scenario", "--json", *words),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                try:
                    self._printed[name] = await _printed(process)
                finally:
                    self._process = None
            return self._printed[name]

    def end(self) -> None:
        """End a play that is under way; its request is refused."""
        if self._process is not None:
            _kill(self._process)


async def _printed(process: asyncio.subprocess.Process) -> Any:
    """Return the document that `tidelog scenario` prints, once it has ended."""
    try:
        async with asyncio.timeout(PLAY_S_MAX):
            out, err = await process.communicate()
    except TimeoutError:
        text = f"the scenario did not end within {PLAY_S_MAX} s"
        raise ControlError(text, status=UNANSWERED) from None
    finally:
        _kill(process)
        await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        raise ControlError(lines[-1] if lines else "tidelog scenario failed", status=REFUSED)
    return json.loads(out)


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        process.kill()
