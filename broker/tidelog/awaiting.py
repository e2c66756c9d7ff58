"""Ways to await: a callback-style operation, work that cancellation must not interrupt, and work
that begins at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["begun", "called_back", "uninterrupted"]

T = TypeVar("T")


async def called_back(begin: Callable[[Callable[[T], None]], object]) -> T:
    """Await a callback-style operation and return its result; `begin` may call back at once or
    later.

    If the caller is cancelled, the operation continues and its result is dropped.
    """
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(result: T) -> None:
        if not outcome.done():
            outcome.set_result(result)

    begin(tell)
    return await outcome


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Return when the work has ended. If the caller is cancelled meanwhile, CancelledError is
    raised only after the end of the work."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    try:
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:  # noqa: BLE001 - raised below, by the task
                break
    finally:
        work.close()  # if the loop stopped before the work began
    if cancelled is not None and not task.cancelled():
        task.exception()  # the cancelled caller does not need it
        raise cancelled
    task.result()


def begun(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run work up to where it first waits, as an eager task does (in asyncio from Python 3.12).

    Returns None if it has ended, else the rest of it, for a task. What it raises is raised here.
    """
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return _Rest(work, awaited)


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine that already waits for something, which its task has to be given first."""

    def __init__(self, work: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._work = work
        self._awaited = [awaited]

    def send(self, value: Any) -> Any:
        return self._awaited.pop() if self._awaited else self._work.send(value)

    def throw(self, *error: Any) -> Any:
        self._awaited.clear()
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return (yield from self._work.__await__())
