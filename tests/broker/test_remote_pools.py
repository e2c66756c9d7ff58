"""Pools of threads for the remote tier, and quotas of bytes a second."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data_path import ManualClock
from tidelog.metrics.meters import Meters
from tidelog.runtime import DetachedExecutor
from tidelog.tiered.gauges import register_quota
from tidelog.tiered.pools import Pool, PoolFullError
from tidelog.tiered.quotas import RateQuota

if TYPE_CHECKING:
    from collections.abc import Callable


class HeldExecutor:
    """Calls that end when they are told to, in any order."""

    def __init__(self) -> None:
        self.calls: dict[str, asyncio.Future[Any]] = {}
        self.closed = False

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        name = function(*args, **kwargs)
        future = self.calls[name] = asyncio.get_running_loop().create_future()
        return await future

    def end(self, name: str) -> None:
        self.calls.pop(name).set_result(name.upper())

    def close(self) -> None:
        self.closed = True


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def call(pool: Pool, name: str) -> asyncio.Task[Any]:
    return asyncio.ensure_future(pool.run(str, name))


def test_pool_runs_at_most_its_size_in_order_of_arrival() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        pool = Pool(executor, 2)
        tasks = [call(pool, name) for name in "abcd"]
        await settle()
        assert list(executor.calls) == ["a", "b"]
        assert (pool.running, pool.pending) == (2, 2)
        executor.end("b")
        assert await tasks[1] == "B"
        await settle()
        assert list(executor.calls) == ["a", "c"]
        for name in "acd":
            executor.end(name)
            await settle()
        assert [await task for task in tasks] == ["A", "B", "C", "D"]
        assert (pool.running, pool.pending) == (0, 0)
        pool.close()
        assert executor.closed

    asyncio.run(test())


def test_pool_grows_at_once_and_shrinks_as_calls_end() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        pool = Pool(executor, 1)
        tasks = [call(pool, name) for name in "abcde"]
        await settle()
        pool.threads_max = 3
        await settle()
        assert list(executor.calls) == ["a", "b", "c"]
        pool.threads_max = 1
        executor.end("a")
        executor.end("b")
        await settle()
        assert (list(executor.calls), pool.pending) == (["c"], 2)
        executor.end("c")
        await settle()
        assert list(executor.calls) == ["d"]
        executor.end("d")
        await settle()
        executor.end("e")
        await asyncio.gather(*tasks)
        pool.close()

    asyncio.run(test())


def test_full_pool_refuses_a_call() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        pool = Pool(executor, 1, pending_max=1)
        first, second = call(pool, "a"), call(pool, "b")
        await settle()
        with pytest.raises(PoolFullError, match="1 calls wait already"):
            await pool.run(str, "c")
        for name, task in (("a", first), ("b", second)):
            executor.end(name)
            await task
            await settle()
        pool.close()

    asyncio.run(test())


def test_abandoned_call_keeps_its_place_until_it_returns() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        pool = Pool(executor, 1)
        running, waiting, last = (call(pool, name) for name in "abc")
        await settle()
        running.cancel()
        waiting.cancel()
        await settle()
        assert running.cancelled()
        assert waiting.cancelled()
        assert (pool.running, pool.pending, list(executor.calls)) == (1, 1, ["a"])
        executor.calls.pop("a").set_exception(OSError("nobody hears this"))
        await settle()
        assert list(executor.calls) == ["c"]  # and never "b"
        executor.end("c")
        assert await last == "C"
        pool.close()

    asyncio.run(test())


def test_place_granted_to_a_cancelled_call_goes_to_the_next() -> None:
    async def test() -> None:
        executor = HeldExecutor()
        pool = Pool(executor, 1)
        tasks = [call(pool, name) for name in "abc"]
        await settle()
        executor.end("a")
        for _ in range(5):
            if pool.pending == 2:
                await asyncio.sleep(0)
        assert pool.pending == 1, "b is granted, and has not run yet"
        tasks[1].cancel()
        await settle()
        assert tasks[1].cancelled()
        assert list(executor.calls) == ["c"]
        executor.end("c")
        await tasks[2]
        assert (pool.running, pool.pending) == (0, 0)
        pool.close()

    asyncio.run(test())


def test_close_does_not_wait_for_a_hanging_call() -> None:
    gate = threading.Event()

    async def test() -> None:
        pool = Pool(DetachedExecutor("remote-copier", 10), 1)
        hangs = asyncio.ensure_future(pool.run(gate.wait, 60))
        waits = asyncio.ensure_future(pool.run(gate.wait, 60))
        await settle()
        pool.close()
        for task in (hangs, waits):
            with pytest.raises(asyncio.CancelledError):
                await task

    try:
        asyncio.run(test())
    finally:
        gate.set()


# -- quotas ----------------------------------------------------------------------------------------


def test_quota_rate_counts_from_the_oldest_window() -> None:
    quota = RateQuota(100)
    assert quota.throttle_s(50.0) == 0
    quota.record(100, 50.0)
    assert quota.rate(50.0) == 100  # one window at least
    assert quota.throttle_s(50.0) == 0
    quota.record(200, 50.5)
    assert quota.rate(50.5) == 300
    assert quota.throttle_s(50.5) == 2.0
    assert quota.throttle_s(52.0) == pytest.approx(1.0)
    assert quota.throttle_s(53.0) == 0
    assert quota.rate(60.9) == pytest.approx(300 / 10.9)
    assert quota.rate(61.0) == 0  # eleven windows later nothing counts


def test_quota_measures_how_long_calls_are_throttled() -> None:
    quota = RateQuota(100)
    assert not quota.is_exceeded(0)
    assert quota.throttle_times_ms(0) == (0.0, 0.0)
    quota.record(300, 0)
    assert quota.is_exceeded(0)
    assert quota.is_exceeded(1)
    average, longest = quota.throttle_times_ms(1)
    assert 0 < average <= longest == 1000 * quota.throttle_s(0)
    assert not quota.is_exceeded(12)
    assert quota.throttle_times_ms(12) == (average, longest)
    assert quota.throttle_times_ms(40) == (0.0, 0.0)
    meters = Meters()
    clock = ManualClock()
    register_quota(meters, "fetch", quota, clock)
    quota.record(50, clock.monotonic())
    told = {str(name): samples[0].value for name, samples in meters.gauges()}
    assert told == {
        "kafka.server:type=RLMFetch,name=byte-rate": 50,
        "kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-avg": 0,
        "kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-max": 0,
    }


def test_quota_can_be_changed_and_nearly_unlimited() -> None:
    quota = RateQuota(2**63 - 1)
    quota.record(2**40, 1.0)
    assert quota.throttle_s(1.0) == 0
    quota.bytes_per_second = 2**39
    assert quota.throttle_s(1.0) == 1.0


@settings(derandomize=True, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5000)), max_size=40))
def test_calls_that_wait_while_throttled_keep_the_rate(steps: list[tuple[int, int]]) -> None:
    """As the copier does it: in steps of a second, while the quota says so."""
    quota, now = RateQuota(1000), 0.0
    total = 0
    for tenths, size in steps:
        now += tenths / 10
        while quota.throttle_s(now) > 0:
            now += 1.0
        quota.record(size, now)
        total += size
    assert total <= 1000 * now + 11_000 + 5000, "a burst of what was saved up, and the last one"
