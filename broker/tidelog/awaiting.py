"""Ways to await: a callback-style operation, work that cancellation must not interrupt, and work
that begins at once.

`drive` runs a coroutine without a task: it waits for callback-style operations only (`answer_of`),
and continues within the call that calls back. The coordinators' requests are such coroutines: they
read from top to bottom, and nothing else happens between an answer and the next line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = [
    "all_of",
    "answer_early",
    "answer_of",
    "begun",
    "called_back",
    "drive",
    "first_answer_of",
    "resume",
    "turn",
    "uninterrupted",
]

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T], on_done: Callable[[T], None] | None = None) -> None:
    """Run work that awaits only what this module offers for it. `on_done` is called once with its
    result or its early answer, perhaps before this returns."""
    _Driver(work, on_done)(None)


def resume(
    work: Coroutine[Any, Any, T],
    step: Callable[[Callable[[Any], None]], object],
    on_done: Callable[[T], None],
) -> None:
    """Go on like `drive` with work that was begun and waits: it has yielded this step."""
    step(_Driver(work, on_done))


class _Driver:
    """Resumes work with the answer that it waits for."""

    __slots__ = ("_on_done", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, Any], on_done: Callable[[Any], None] | None
    ) -> None:
        self._work = work
        self._on_done = on_done

    def __call__(self, answer: Any) -> None:
        try:
            step = self._work.send(answer)
        except StopIteration as end:
            result = end.value
        else:
            step(self)
            return
        self.tell(result)

    def tell(self, result: Any) -> None:
        """Report the result, unless an answer was given before."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(result)


@coroutine
def answer_of(begin: Callable[[Callable[[T], None]], object]) -> Generator[Any, T, T]:
    """Wait, in driven work, for a callback-style operation; it may call back at once or later."""
    return (yield begin)


@coroutine
def answer_early(answer: object) -> Generator[Any, None, None]:
    """Give the answer of driven work now. The work goes on; its result is dropped."""

    def begin(driver: _Driver) -> None:
        driver.tell(answer)
        driver(None)

    yield begin


@coroutine
def turn() -> Generator[Any, None, None]:
    """Let the loop have a turn, in driven work: between parts of what is long."""

    def begin(driver: _Driver) -> None:
        asyncio.get_running_loop().call_soon(driver, None)

    yield begin


async def first_answer_of(work: Coroutine[Any, Any, T]) -> T:
    """Wait, in driven work, for other work's result or early answer."""
    return await answer_of(partial(drive, work))


async def all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Begin each work as it comes, and wait, in driven work, until all have answered."""
    return await answer_of(partial(_begin_all, works))


def _begin_all(works: Iterable[Coroutine[Any, Any, T]], on_done: Callable[[list[T]], None]) -> None:
    answers: dict[int, T] = {}
    count: int | None = None  # until all are begun

    def answered(number: int, answer: T) -> None:
        answers[number] = answer
        if len(answers) == count:
            on_done([answers[number] for number in range(count)])

    begun_count = 0
    for number, work in enumerate(works):
        begun_count = number + 1
        drive(work, partial(answered, number))
    count = begun_count
    if len(answers) == count:
        on_done([answers[number] for number in range(count)])


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
        # A task cancels what it waits for. This one was cancelled before it was given that, and a
        # failure that comes later would reach only the event loop's handler of exceptions.
        while self._awaited:
            if (awaited := self._awaited.pop()) is not None:
                awaited.cancel()
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        return (yield from self._work.__await__())
