"""Calls of other brokers for driven work, each in a task of its own.

A group's requests are driven (`awaiting.drive`), while the persister and the leaders of partitions
are awaited in tasks.
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

__all__ = ["DrivenPersister", "DrivenTasks"]

T = TypeVar("T")


class DrivenTasks:
    """Owns the tasks; `close` cancels them, and the work that waits for them never goes on."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def answer_of(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait, in driven work, for a call."""
        answer: T = await answer_of(partial(self._begin, call))
        return answer

    def close(self) -> None:
        """Drop all calls."""
        for task in self._tasks:
            task.cancel()

    def _begin(
        self, call: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(_run(call, on_done), name="share group")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


async def _run(call: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]) -> None:
    on_done(await call())


class DrivenPersister:
    """Implements `Persister` over another one, for driven work."""

    def __init__(self, persister: Persister, tasks: DrivenTasks) -> None:
        self._persister = persister
        self._answer_of = tasks.answer_of

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
