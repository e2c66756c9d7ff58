"""Wait for the hits of a fault."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from tidelog.control.errors import UNANSWERED, ControlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["wait_for_hits"]

T = TypeVar("T")

WAIT_S_MAX = 50.0  # less than the limit of an answer
LOOK_S = 0.01


async def wait_for_hits(
    what: str, look: Callable[[], Awaitable[tuple[T, int, str]]], hits: int, seconds: float
) -> T:
    """Call `look` until it counts that many hits; return what it found.

    `look` returns what it found, its hits, and a note for the ControlError after `seconds`.
    """
    if hits < 1:
        raise ControlError(f"must be at least 1, not {hits}", field="hits")
    if not 0 <= seconds <= WAIT_S_MAX:
        text = f"must be between 0 and {WAIT_S_MAX:g}, not {seconds:g}"
        raise ControlError(text, field="seconds")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found, counted, note = await look()
        if counted >= hits:
            return found
        if loop.time() >= deadline:
            text = f"{what} has {counted} of {hits} hits after {seconds:g} s; {note}"
            raise ControlError(text, status=UNANSWERED)
        await asyncio.sleep(LOOK_S)
