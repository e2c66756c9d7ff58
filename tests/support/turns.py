"""Count the loop's turns: others are served in each."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["counting_turns"]


def counting_turns(handler: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Return a handler's response, and in how many turns of the loop it is made: 0 if it was there
    at once."""

    async def wait() -> tuple[Any, int]:
        response = handler(*arguments)
        if response.__class__ is not CoroutineType:
            return response, 0
        turns = 0
        task = asyncio.ensure_future(response)
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return task.result(), turns

    return asyncio.run(wait())
