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
                self._printed[name] = await _printed([name] if name else [])
            return self._printed[name]


async def _printed(words: list[str]) -> Any:
    """Run `tidelog scenario` and return the document that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tidelog", "scenario", "--json", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PLAY_S_MAX):
            out, err = await process.communicate()
    except TimeoutError:
        text = f"the scenario did not end within {PLAY_S_MAX} s"
        raise ControlError(text, status=UNANSWERED) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        raise ControlError(lines[-1] if lines else "tidelog scenario failed", status=REFUSED)
    return json.loads(out)
