"""The loop as an application sees it."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING

import pytest

from tidelog.simulation.application import Plan, play

if TYPE_CHECKING:
    from tidelog.simulation import Simulation


def played(app: object) -> str | None:
    verdict = play(app, Plan(1, brokers=1, timeout_s=60))
    return verdict.failure


def test_functions_for_threads_run_whole_at_a_later_step() -> None:
    async def app(_simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(lambda: 7) == 7
        assert await loop.run_in_executor(None, pow, 2, 5) == 32
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    assert played(app) is None


def test_sleep_holds_up_its_process_and_no_other() -> None:
    seen: list[tuple[str, float]] = []

    async def blocks() -> None:
        before = time.monotonic()
        time.sleep(5)  # noqa: ASYNC251 - a blocking call is what is tested
        assert time.monotonic() == pytest.approx(before + 5)
        await asyncio.sleep(1)
        assert time.monotonic() == pytest.approx(before + 6, abs=0.01)
        seen.append(("blocks", time.monotonic() - before))

    async def app(simulation: Simulation) -> None:
        process = simulation.process("blocks", blocks)
        await asyncio.sleep(2)
        seen.append(("application", 2))
        await process.ended()

    assert played(app) is None
    assert [name for name, _ in seen] == ["application", "blocks"]


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda _loop, _at: asyncio.open_connection("example.com", 80), "not in the simulation"),
        (lambda _loop, at: asyncio.open_connection(*at, ssl=True), "use no TLS"),
        (lambda _loop, _at: asyncio.start_server(print, "localhost", 0), "create_server"),
        (lambda _loop, _at: asyncio.create_subprocess_exec("true"), "subprocess_exec"),
    ],
)
def test_what_has_no_simulated_form_is_refused(call: object, advice: str) -> None:
    async def app(simulation: Simulation) -> None:
        host, _, port = simulation.bootstrap_servers.partition(":")
        await call(asyncio.get_running_loop(), (host, int(port)))

    failure = played(app)
    assert failure is not None
    assert advice in failure


def test_habits_of_services_are_accepted() -> None:
    async def app(_simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(15, print)
        assert loop.remove_signal_handler(15) is False
        loop.set_debug(True)
        loop.set_exception_handler(None)
        assert loop.get_exception_handler() is loop.get_task_factory() is None
        assert not loop.get_debug()

    assert played(app) is None


def test_tasks_have_places_in_a_set_that_do_not_hang_on_addresses() -> None:
    orders: list[list[str]] = []

    async def app(_simulation: Simulation) -> None:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=f"t{n}") for n in range(50)}
        orders.append([task.get_name() for task in tasks])
        await asyncio.wait(tasks)

    keep = [bytearray(n) for n in range(1000)]
    assert played(app) is None
    keep.clear()
    assert played(app) is None
    assert orders[0] == orders[1]


def test_an_exception_that_nothing_awaits_is_in_the_timeline() -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def app(_simulation: Simulation) -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task
        gc.collect()
        await asyncio.sleep(1)

    verdict = play(app, Plan(1, brokers=1))
    assert verdict.failure is None
    assert "ValueError('lost')" in str(verdict.timeline)
