"""What holds the event loop is named. The callbacks measured here wait on purpose: a busy machine
makes them longer, never shorter."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import time
from typing import TYPE_CHECKING

from tidelog.watchdog import SlowCallback, watch

if TYPE_CHECKING:
    import pytest

LIMIT_MS = 20


def test_a_slow_callback_is_named_with_its_stack_and_a_quick_one_is_not() -> None:
    found: list[SlowCallback] = []

    def dawdle() -> None:
        time.sleep(6 * LIMIT_MS / 1000)

    async def slow_task() -> None:
        dawdle()

    async def test() -> None:
        await asyncio.create_task(slow_task())
        asyncio.get_running_loop().call_soon(dawdle)
        await asyncio.sleep(0)

    original = asyncio.Handle._run
    end = watch(LIMIT_MS, found.append)
    try:
        asyncio.run(test())
    finally:
        end()
    assert asyncio.Handle._run is original
    slow = [each for each in found if each.wall_ms >= 6 * LIMIT_MS]
    assert [each.name.rpartition(".")[2] for each in slow] == ["slow_task", "dawdle"]
    assert all("dawdle" in each.stack[0] for each in slow)
    assert "slow_task" in slow[0].stack[1]
    assert all(each.cpu_ms < each.wall_ms for each in slow)
    assert "of CPU) in " in str(slow[0])


def test_no_garbage_is_collected_while_a_stack_is_read() -> None:
    # What a collection runs may let the watched thread go on: its frames are gone when it returns.
    found: list[SlowCallback] = []
    collecting: set[str] = set()

    def note(_phase: str, _info: dict[str, int]) -> None:
        frame = sys._getframe()
        while frame := frame.f_back:
            collecting.add(frame.f_code.co_name)

    def dawdle(depth: int) -> None:
        if depth:
            dawdle(depth - 1)
        else:
            time.sleep(6 * LIMIT_MS / 1000)

    async def test() -> None:
        asyncio.get_running_loop().call_soon(dawdle, 8)
        await asyncio.sleep(0)

    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    end = watch(LIMIT_MS, found.append)
    try:
        gc.set_threshold(1)
        asyncio.run(test())
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
        end()
    assert found[0].stack[8].startswith("test_no_garbage")
    assert collecting
    assert "_stack" not in collecting


def test_each_watch_has_its_own_limit_and_ends_alone() -> None:
    low: list[SlowCallback] = []
    high: list[SlowCallback] = []

    def dawdle() -> None:
        time.sleep(2 * LIMIT_MS / 1000)

    async def test() -> None:
        asyncio.get_running_loop().call_soon(dawdle)
        await asyncio.sleep(0)

    end_low = watch(LIMIT_MS, low.append)
    end_high = watch(1_000_000, high.append)
    try:
        asyncio.run(test())
        seen = len(low)
        assert seen
        end_low()
        end_low()
        asyncio.run(test())
    finally:
        end_low()
        end_high()
    assert (len(low), high) == (seen, [])


def test_a_broker_with_the_setting_logs_what_held_its_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tidelog import Cluster

    async def test() -> None:
        async with Cluster({"loop.watchdog.ms": str(LIMIT_MS)}):
            asyncio.get_running_loop().call_soon(time.sleep, 6 * LIMIT_MS / 1000)
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, logger="tidelog.server"):
        asyncio.run(test())
    lines = [line for line in caplog.messages if line.startswith("the event loop stood still for ")]
    assert any("ms of CPU) in sleep" in line for line in lines)
