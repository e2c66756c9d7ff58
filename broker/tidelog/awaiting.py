"""Two ways to await: what is told to a callback, and work that no cancellation cuts short."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

__all__ = ["called_back", "uninterrupted"]

T = TypeVar("T")


async def called_back(begin: Callable[[Callable[[T], None]], object]) -> T:
    """What the operation tells the callback that `begin` gives it, before `begin` returns or later.

    Who awaits may be cancelled, and the operation goes on: then nobody hears of the result.
    """
    told: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(result: T) -> None:
        if not told.done():
            told.set_result(result)

    begin(tell)
    return await told


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Return when the work has ended. Who awaits may be cancelled meanwhile: CancelledError then,
    but only after the end of the work."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:  # noqa: BLE001 - told below, by the task
                break
    finally:
        work.close()  # for a loop that was stopped before it began
    if cancelled is not None and not task.cancelled():
        task.exception()  # who was cancelled has no use for it
        raise cancelled
    task.result()
