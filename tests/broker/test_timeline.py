"""The time of a broker's work: its timers, and the steps in which a tester moves it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.timeline import CANCELLED_MAX, LoopTimeline, Paces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOUR = 3600.0


class Machine:
    """A machine's clock that stands still; so only steps make a timeline move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def run(test: Callable[[Machine, LoopTimeline], Awaitable[None]]) -> None:
    async def main() -> None:
        machine = Machine()
        async with asyncio.timeout(30):
            await test(machine, LoopTimeline(machine.monotonic))

    asyncio.run(main())


async def settle(line: LoopTimeline) -> None:
    await asyncio.sleep(0)
    while line.awake():  # noqa: ASYNC110 - tasks that rest set no event
        await asyncio.sleep(0)


async def step(line: LoopTimeline, seconds: float) -> list[float]:
    """Move in one step; return the moments it stood at."""
    moments = []
    line.begin_step(seconds)
    while (due := line.next_s()) is not None:
        moments.append(due)
        line.stand_at(due)
        await settle(line)
    line.end_step()
    return moments


def test_what_fell_due_while_time_was_held_runs_when_it_goes_on() -> None:
    async def test(machine: Machine, line: LoopTimeline) -> None:
        ran: list[str] = []
        for name, after in (("second", 0.002), ("first", 0.001), ("later", HOUR)):
            line.call_at(line.time() + after, ran.append, name)
        line.hold()
        line.call_at(line.time(), ran.append, "set meanwhile")
        machine.now += 1
        await asyncio.sleep(0.01)
        assert ran == []
        assert line.time() == machine.now, "the process stands still, the clock does not"
        line.go_on()
        while len(ran) < 3:  # noqa: ASYNC110 - timers set no event
            await asyncio.sleep(0)
        assert ran == ["set meanwhile", "first", "second"]

    run(test)


def test_timers_run_in_the_order_of_their_moments() -> None:
    async def test(machine: Machine, line: LoopTimeline) -> None:
        ran: list[tuple[str, float]] = []
        begun = line.time()
        for name, after in (("late", 50), ("early", 10), ("second early", 10), ("beyond", 101)):
            line.call_at(begun + after, lambda name=name: ran.append((name, line.time() - begun)))
        cancelled = line.call_at(begun + 20, ran.append, ("cancelled", 0.0))
        cancelled.cancel()
        assert await step(line, 100) == [10, 50]
        assert ran == [("early", 10), ("second early", 10), ("late", 50)]
        assert line.time() == begun + 100
        assert line.time() == machine.now + 100

    run(test)


def test_work_is_done_before_time_goes_on() -> None:
    async def test(_machine: Machine, line: LoopTimeline) -> None:
        seen: list[tuple[str, float]] = []
        begun = line.time()

        async def work(name: str, pause: float) -> None:
            await line.sleep(pause)
            for _ in range(20):
                await asyncio.sleep(0)
            seen.append((name, line.time() - begun))

        tasks = [asyncio.ensure_future(work(f"{pause}", pause)) for pause in (30, 10, 20)]
        await asyncio.sleep(0)
        await step(line, 60)
        await asyncio.gather(*tasks)
        assert seen == [("10", 10), ("20", 20), ("30", 30)]

    run(test)


def test_a_periodic_task_works_when_it_is_due_and_once_more_at_the_end_of_a_step() -> None:
    async def test(_machine: Machine, line: LoopTimeline) -> None:
        runs: list[float] = []
        begun = line.time()

        async def periodic() -> None:
            while True:
                await line.sleep(10)
                runs.append(line.time() - begun)

        task = asyncio.ensure_future(periodic())
        await asyncio.sleep(0)
        await step(line, HOUR)
        assert runs == [10, HOUR]
        await step(line, 30)
        assert runs == [10, HOUR, HOUR + 10, HOUR + 30]
        task.cancel()

    run(test)


def test_a_wait_ends_with_its_event_or_at_its_moment() -> None:
    async def test(_machine: Machine, line: LoopTimeline) -> None:
        event = asyncio.Event()
        late = asyncio.ensure_future(line.wait_until(event, line.time() + 10))
        await asyncio.sleep(0)
        await step(line, 5)
        assert not late.done()
        await step(line, 5)
        assert await late is False
        woken = asyncio.ensure_future(line.wait_until(event, line.time() + 10))
        await asyncio.sleep(0)
        event.set()
        assert await woken is True
        assert await step(line, 20) == []  # its timer is gone

    run(test)


def test_a_stopped_timeline_runs_no_timer_until_it_goes_on() -> None:
    async def test(machine: Machine, line: LoopTimeline) -> None:
        ran = asyncio.Event()
        line.call_at(line.time() + 1, ran.set)
        line.set_line(1000, 1000, 0)
        machine.now += 1000
        await asyncio.sleep(0.01)
        assert not ran.is_set()
        assert line.time() == 1000
        line.set_line(1000, machine.now, 2)
        machine.now += 0.5
        assert line.time() == 1001
        await ran.wait()

    run(test)


def test_timers_run_without_a_tester() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        line = LoopTimeline(loop.time)
        begun = line.time()
        await asyncio.gather(line.sleep(0.02), line.sleep(0.01), line.sleep(0))
        assert line.time() - begun >= 0.02
        assert not await line.wait_until(asyncio.Event(), line.time() + 0.01)
        sleeping = asyncio.ensure_future(line.sleep(HOUR))
        await asyncio.sleep(0)
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        assert sleeping.cancelled()

    asyncio.run(test())


def test_cancelled_timers_are_dropped() -> None:
    async def test(_machine: Machine, line: LoopTimeline) -> None:
        kept = asyncio.Event()
        line.call_at(line.time() + 1, kept.set)
        for _ in range(10 * CANCELLED_MAX):
            line.call_at(line.time() + HOUR, kept.clear).cancel()
        assert len(line._heap) <= 2 * CANCELLED_MAX
        assert await step(line, 2 * HOUR) == [1]
        assert kept.is_set()

    run(test)


def test_elapsed_time_leaves_out_what_was_skipped() -> None:
    paces = Paces()
    start = 1_700_000_000_000
    assert paces.elapsed_ms(start, start + 5) == 5
    day = 86_400_000
    paces.add(0, start + 1000)
    paces.add(1, start + 1000 + day)
    assert paces.elapsed_ms(start, start + 1000 + day) == 1000
    assert paces.elapsed_ms(start, start + 3000 + day) == 3000
    assert paces.elapsed_ms(start + 1000 + day, start + 3000 + day) == 2000
    # A clock that runs ten times as fast.
    later = start + 2 * day
    paces.add(0.1, later)
    assert paces.elapsed_ms(later, later + 1000) == 100
    paces.add(1, later + 10_000)
    assert paces.elapsed_ms(later - 500, later + 10_500) == 2000


def test_steps_one_after_another_are_one_piece_of_skipped_time() -> None:
    paces = Paces()
    now = 1_700_000_000_000
    for _ in range(5000):
        paces.add(0, now)
        paces.add(1, now + 10_000)
        now += 10_001  # a millisecond between two steps
    assert len(paces.list) == 2
    assert paces.elapsed_ms(1_700_000_000_000 - 100, now) in range(100, 110)
