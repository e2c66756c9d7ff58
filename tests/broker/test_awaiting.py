"""What is told to a callback, and work that no cancellation cuts short."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from tidelog.awaiting import (
    all_of,
    answer_early,
    answer_of,
    begun,
    called_back,
    drive,
    first_answer_of,
    turn,
    uninterrupted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Resume = Callable[[int], None]


def test_a_callback_is_awaited() -> None:
    async def test() -> None:
        assert await called_back(lambda tell: tell(1)) == 1
        loop = asyncio.get_running_loop()
        assert await called_back(lambda tell: loop.call_soon(tell, 2)) == 2

    asyncio.run(test())


def test_a_result_after_the_end_is_dropped() -> None:
    async def test() -> None:
        kept: list[Callable[[int], None]] = []
        waiting = asyncio.ensure_future(called_back(kept.append))
        await asyncio.sleep(0)
        waiting.cancel()
        (tell,) = kept
        tell(1)
        tell(2)
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(test())


@pytest.mark.parametrize("cancels", [0, 1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_work_continues_when_a_caller_is_cancelled(cancels: int, fails: bool) -> None:
    async def test() -> None:
        may_end = asyncio.Event()
        ended = False

        async def work() -> None:
            nonlocal ended
            await may_end.wait()
            ended = True
            if fails:
                raise LookupError("work")

        waiting = asyncio.ensure_future(uninterrupted(work()))
        for _ in range(cancels):
            await asyncio.sleep(0.001)
            waiting.cancel()
        await asyncio.sleep(0.001)
        assert not waiting.done()
        may_end.set()
        await asyncio.wait([waiting])
        assert ended
        error = None if waiting.cancelled() else waiting.exception()
        assert waiting.cancelled() == bool(cancels)
        assert isinstance(error, LookupError) == (fails and not cancels)

    asyncio.run(test())


def test_work_that_is_cancelled_itself_has_ended() -> None:
    async def test() -> None:
        async def work() -> None:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await uninterrupted(work())

    asyncio.run(test())


def test_work_that_waits_for_nothing_ends_when_it_is_begun() -> None:
    async def test() -> None:
        seen: list[str] = []

        async def work() -> None:
            seen.append("done")

        assert begun(work()) is None
        assert seen == ["done"]

        async def fails() -> None:
            raise ValueError("at once")

        with pytest.raises(ValueError, match="at once"):
            begun(fails())

    asyncio.run(test())


def test_the_rest_of_begun_work_runs_in_a_task() -> None:
    async def test() -> None:
        seen: list[str] = []

        async def work(future: asyncio.Future[str]) -> None:
            seen.append("begun")
            seen.append(await future)
            await asyncio.sleep(0)
            seen.append("done")

        future = asyncio.get_running_loop().create_future()
        rest = begun(work(future))
        assert rest is not None
        assert seen == ["begun"]
        task = asyncio.create_task(rest)
        future.set_result("told")
        await task
        assert seen == ["begun", "told", "done"]

    asyncio.run(test())


@pytest.mark.parametrize("has_run", [False, True])
def test_begun_work_is_cancelled_even_before_its_task_has_run(has_run: bool) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        rest = begun(work())
        assert rest is not None
        task = asyncio.create_task(rest)
        if has_run:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["cancelled"]

    asyncio.run(test())


@pytest.mark.parametrize("has_run", [False, True])
def test_a_later_failure_of_what_cancelled_work_shared_is_not_reported(has_run: bool) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        reported: list[object] = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        shared: asyncio.Future[None] = loop.create_future()

        async def work(shared: asyncio.Future[None]) -> None:
            await asyncio.shield(shared)

        rest = begun(work(shared))
        assert rest is not None
        task = asyncio.create_task(rest)
        del rest
        if has_run:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not shared.cancelled()
        shared.set_exception(LookupError("later"))
        for _ in range(3):  # the callbacks of the shield
            await asyncio.sleep(0)
        assert isinstance(shared.exception(), LookupError)
        del shared, task
        gc.collect()
        assert reported == []

    asyncio.run(test())


def test_work_that_yields_to_the_loop_is_cancelled_before_its_task_has_run() -> None:
    async def test() -> None:
        rest = begun(asyncio.sleep(0))
        assert rest is not None
        task = asyncio.create_task(rest)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())


def test_driven_work_goes_on_within_the_call_that_answers() -> None:
    waiting: list[Resume] = []
    steps: list[object] = []

    async def inner() -> int:
        return await answer_of(waiting.append) + await answer_of(lambda resume: resume(10))

    async def work() -> str:
        steps.append("begun")
        steps.append(await inner())
        return "result"

    drive(work(), steps.append)
    assert steps == ["begun"]
    (resume,) = waiting
    resume(1)
    assert steps == ["begun", 11, "result"]


def test_driven_work_may_end_at_once() -> None:
    async def work() -> int:
        return 1

    heard: list[int] = []
    drive(work(), heard.append)
    drive(work())
    assert heard == [1]


def test_an_error_of_driven_work_reaches_the_call_that_answers() -> None:
    waiting: list[Resume] = []

    async def work() -> None:
        await answer_of(waiting.append)
        raise ValueError("an error")

    drive(work())
    with pytest.raises(ValueError, match="an error"):
        waiting[0](1)


def test_an_early_answer_takes_the_place_of_the_result() -> None:
    waiting: list[Resume] = []
    heard: list[object] = []

    async def slow() -> int:
        await answer_early(-1)
        await answer_early(-2)
        found = await answer_of(waiting.append)
        heard.append(("slow", found))
        return found

    async def work() -> int:
        return await first_answer_of(slow())

    drive(work(), heard.append)
    assert heard == [-1]
    waiting[0](5)
    assert heard == [-1, ("slow", 5)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_of_waits_for_the_last_answer_and_keeps_the_order(order: tuple[int, int]) -> None:
    waiting: list[Resume] = []
    heard: list[list[int]] = []

    async def slow() -> int:
        return await answer_of(waiting.append)

    async def at_once() -> int:
        return 7

    drive(all_of([slow(), at_once(), slow()]), heard.append)
    assert heard == []
    for number in order:
        waiting[number](number)
    assert heard == [[0, 7, 1]]
    drive(all_of([]), heard.append)
    drive(all_of([at_once()]), heard.append)
    assert heard[1:] == [[], [7]]


def test_driven_work_lets_the_loop_have_a_turn() -> None:
    seen: list[str] = []

    async def work() -> str:
        seen.append("first part")
        await turn()
        seen.append("second part")
        return "end"

    def begin(on_done: Callable[[str], None]) -> None:
        drive(work(), on_done)
        seen.append("others")

    assert asyncio.run(called_back(begin)) == "end"
    assert seen == ["first part", "others", "second part"]
