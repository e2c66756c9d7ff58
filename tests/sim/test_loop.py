"""The simulated loop keeps asyncio's promises, and one seed gives one run."""

from __future__ import annotations

import asyncio
import math

import pytest

from support.processes import under_another_hash_seed
from tidelog.simulation.loop import LANE, DeadlockError, SimLoop, simulate
from tidelog.simulation.machine import SimClock


def in_lane(lane: str, coro):
    token = LANE.set(lane)
    try:
        return asyncio.get_running_loop().create_task(coro)
    finally:
        LANE.reset(token)


async def exchange(loop: SimLoop) -> list[str]:
    """Three lanes that talk through queues; the order is the seed's."""
    seen: list[str] = []
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def worker(name: str) -> None:
        for step in range(5):
            await asyncio.sleep(0.01)
            await queue.put(f"{name}{step}")

    async def reader() -> None:
        for _ in range(15):
            seen.append(await queue.get())  # noqa: PERF401

    tasks = [in_lane(name, worker(name)) for name in ("a", "b", "c")]
    await asyncio.gather(*tasks, in_lane("reader", reader()))
    return seen


def test_virtual_time_costs_none() -> None:
    async def main(loop):
        async with asyncio.timeout(7200):
            await asyncio.sleep(3600)
        return loop.time()

    now, _ = simulate(1, main)
    assert now == 3600


def test_one_seed_one_run() -> None:
    runs = [simulate(seed, exchange) for seed in (7, 7, 8)]
    assert runs[0][0] == runs[1][0]
    assert runs[0][1].trace == runs[1][1].trace
    assert runs[0][1].trace != runs[2][1].trace


def test_seeds_change_the_order_between_lanes_but_never_within() -> None:
    orders = {tuple(simulate(seed, exchange)[0]) for seed in range(20)}
    assert len(orders) > 5
    for order in orders:
        for lane in "abc":
            assert [item for item in order if item[0] == lane] == [f"{lane}{n}" for n in range(5)]


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    program = "from sim.test_loop import simulate, exchange; print(simulate(3, exchange)[1].trace)"
    assert under_another_hash_seed(program).strip() == str(simulate(3, exchange)[1].trace)


def test_a_wait_that_nothing_can_end_is_an_error() -> None:
    async def main(_loop):
        await asyncio.get_running_loop().create_future()

    loop = SimLoop(1)
    future = main(loop)
    with pytest.raises(DeadlockError):
        loop.run_until_complete(future)
    loop.close()


def test_a_closed_lane_never_runs_again_not_even_its_finally() -> None:
    async def main(loop):
        touched = []

        async def victim():
            try:
                await asyncio.sleep(1)
                touched.append("after")
            finally:
                touched.append("finally")

        task = in_lane("victim", victim())
        await asyncio.sleep(0.5)
        loop.close_lane("victim")
        task.cancel()
        await asyncio.sleep(10)
        return touched

    touched, _ = simulate(1, main)
    assert touched == []


def test_task_groups_and_timeouts_work() -> None:
    async def main(_loop):
        async with asyncio.TaskGroup() as group:
            first = group.create_task(asyncio.sleep(1, "one"))
            second = group.create_task(asyncio.sleep(2, "two"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(5)
        return first.result(), second.result()

    assert simulate(1, main)[0] == ("one", "two")


def test_a_wait_for_less_than_time_can_move_ends() -> None:
    """A slower clock was short of a deadline by so little: its timer came again for ever (seed
    754 of three brokers)."""

    async def main(loop):
        clock = SimClock(loop)
        clock.set_rate(0.99)
        await asyncio.sleep(8.0)
        deadline_s = math.nextafter(clock.monotonic(), math.inf)
        ticks = 0
        while (left_s := deadline_s - clock.monotonic()) > 0 and ticks < 100:
            ticks += 1
            passed = loop.create_future()
            loop.call_later(left_s, passed.set_result, None)
            await passed
        return ticks

    assert simulate(1, main)[0] < 10
