"""The state of share groups for driven work: each call of the persister runs in a task of its own.

A group's requests are driven (`awaiting.drive`), the persister waits for other brokers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.awaiting import answer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from tidelog.coordinators.share.persister import Persister
    from tidelog.coordinators.share.values import (
        Deletion,
        Initialization,
        Outcome,
        Reading,
        StateOutcome,
        SummaryOutcome,
        Writing,
    )

__all__ = ["DrivenPersister"]

T = TypeVar("T")


class DrivenPersister:
    """Implements `Persister` over another one. Owns the tasks; `close` cancels them."""

    def __init__(self, persister: Persister) -> None:
        self._persister = persister
        self._tasks: set[asyncio.Task[Any]] = set()

    async def initialize(self, group_id: str, items: Sequence[Initialization]) -> list[Outcome]:
        """Begin states."""
        return await self._answer_of(partial(self._persister.initialize, group_id, items))

    async def read(self, group_id: str, items: Sequence[Reading]) -> list[StateOutcome]:
        """Read states as a leader."""
        return await self._answer_of(partial(self._persister.read, group_id, items))

    async def write(self, group_id: str, items: Sequence[Writing]) -> list[Outcome]:
        """Change states."""
        return await self._answer_of(partial(self._persister.write, group_id, items))

    async def delete(self, group_id: str, items: Sequence[Deletion]) -> list[Outcome]:
        """Delete states."""
        return await self._answer_of(partial(self._persister.delete, group_id, items))

    async def read_summary(self, group_id: str, items: Sequence[Reading]) -> list[SummaryOutcome]:
        """Read summaries."""
        return await self._answer_of(partial(self._persister.read_summary, group_id, items))

    def close(self) -> None:
        """Drop all calls; the work that waits for them never goes on."""
        for task in self._tasks:
            task.cancel()

    async def _answer_of(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        answer: T = await answer_of(partial(self._begin, call))
        return answer

    def _begin(
        self, call: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._run(call, on_done), name="share state")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(
        self, call: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]
    ) -> None:
        on_done(await call())
