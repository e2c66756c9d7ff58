"""What the end of a run says of callbacks that held event loops."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from support.loop_watch import LISTED_MAX, Held, Longest, LoopWatch, summary

LIMIT_MS = 10


def work(cpu_ms: float) -> None:
    end = time.thread_time() + cpu_ms / 1000
    while time.thread_time() < end:
        pass


def test_work_is_listed_with_its_test_and_waits_are_not() -> None:
    watched = LoopWatch(LIMIT_MS)
    watched.pytest_runtest_logstart("the test")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(time.sleep, 2 * LIMIT_MS / 1000)
        loop.call_soon(work, 2 * LIMIT_MS)
        await asyncio.sleep(0)

    asyncio.run(test())
    output: dict[str, object] = {}
    session = SimpleNamespace(config=SimpleNamespace(workeroutput=output))
    watched.pytest_sessionfinish(session)  # type: ignore[arg-type]
    found = watched.longest.sorted()  # a collection of garbage may be there as well
    (held,) = (each for each in found if each.where.startswith("work"))
    assert held.cpu_ms >= 2 * LIMIT_MS
    assert held.test == "the test"
    assert not any(each.where.startswith("sleep") for each in found)

    gathering = LoopWatch(LIMIT_MS)
    gathering.pytest_testnodedown(SimpleNamespace(workeroutput=output))
    gathering.pytest_testnodedown(SimpleNamespace())
    gathering.pytest_sessionfinish(SimpleNamespace(config=None))  # type: ignore[arg-type]
    assert gathering.longest.sorted() == found


def test_each_place_is_listed_once_and_not_too_many() -> None:
    longest = Longest()
    for cpu_ms, test in ((70, "a"), (90, "b"), (60, "c")):
        longest.add(Held(cpu_ms, "place", test))
    assert longest.sorted() == [Held(90, "place", "b")]
    assert summary(longest.sorted())[1] == "    90 ms  place  (b)"
    for number in range(2 * LISTED_MAX):
        longest.add(Held(50 + number, f"place {number}", "d"))
    assert len(longest.sorted()) == LISTED_MAX
    assert summary([]) == []
