"""Work in parts: each in a turn of its own, until it is over, fails or is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tidelog.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_others_have_turns_between_the_parts() -> None:
    seen: list[str] = []

    def parts() -> Iterator[None]:
        for number in range(3):
            seen.append(f"part {number}")
            yield

    async def test() -> None:
        Turns(asyncio.get_running_loop(), parts(), lambda: seen.append("end")).begin()
        assert seen == ["part 0"]
        while "end" not in seen:
            seen.append("other")
            await asyncio.sleep(0)

    asyncio.run(test())
    assert [each for each in seen if each != "other"] == ["part 0", "part 1", "part 2", "end"]
    assert seen.index("part 0") < seen.index("other") < seen.index("part 2")


def test_work_of_one_part_is_done_at_once() -> None:
    ended: list[bool] = []

    async def test() -> None:
        Turns(asyncio.get_running_loop(), iter(()), lambda: ended.append(True)).begin()
        assert ended

    asyncio.run(test())


def test_a_part_that_fails_is_the_last() -> None:
    ended: list[bool] = []

    def parts() -> Iterator[None]:
        yield
        raise ValueError("of the second part")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[BaseException] = loop.create_future()
        loop.set_exception_handler(lambda _, what: failed.set_result(what["exception"]))
        Turns(loop, parts(), lambda: ended.append(True)).begin()
        with pytest.raises(ValueError, match="second"):
            raise await failed

    asyncio.run(test())
    assert ended


def test_cancelled_work_has_no_end() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        ended: list[bool] = []
        turns = Turns(loop, iter([None, None]), lambda: ended.append(True))
        turns.begin()
        turns.cancel()
        turns.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not ended

    asyncio.run(test())
