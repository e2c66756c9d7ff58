"""Processes of an application: killed, paused, started again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tidelog.simulation.application import Plan, play
from tidelog.simulation.faults import Fault

if TYPE_CHECKING:
    from tidelog.simulation import Simulation


def strikes(kind: str, for_s: float, at_s: float = 1.0) -> Plan:
    return Plan(1, brokers=1, faults=(Fault(at_s, kind, 0.0, for_s),), timeout_s=60)


def test_a_kill_runs_nothing_more_and_the_next_life_begins() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("starts")
        try:
            await asyncio.sleep(2)
            seen.append("has slept")
        finally:
            seen.append("cleans up")

    async def app(simulation: Simulation) -> None:
        process = simulation.process("worker", work)
        await process.ended()
        assert process.lives == 2
        assert not process.is_running
        assert seen == ["starts", "starts", "has slept", "cleans up"]

    verdict = play(app, strikes("kill-process", 0.5))
    assert verdict.failure is None, verdict.details
    assert verdict.struck == {0: "kill worker for 0.50 s"}


def test_a_paused_process_loses_time() -> None:
    gaps: list[float] = []

    async def work() -> None:
        for _ in range(20):
            before = time.monotonic()
            await asyncio.sleep(0.1)
            gaps.append(time.monotonic() - before)

    async def app(simulation: Simulation) -> None:
        await simulation.process("worker", work).ended()

    assert play(app, strikes("pause-process", 3.0)).failure is None
    assert 2.9 < max(gaps) < 3.2
    assert sorted(gaps)[-2] < 0.2


def test_an_exception_is_followed_by_the_next_life() -> None:
    lives: list[int] = []

    async def work() -> None:
        lives.append(len(lives))
        if len(lives) < 3:
            raise ConnectionError("no broker")

    async def app(simulation: Simulation) -> None:
        await simulation.process("worker", work).ended()

    verdict = play(app, Plan(1, brokers=1))
    assert verdict.failure is None, verdict.details
    assert len(lives) == 3
    assert "ends with ConnectionError: no broker" in str(verdict.timeline)


@pytest.mark.parametrize(("error", "restarts"), [(AssertionError, True), (KeyError, False)])
def test_what_ends_the_run(error: type[Exception], restarts: bool) -> None:
    async def work() -> None:
        raise error("order-1 is shipped twice")

    async def app(simulation: Simulation) -> None:
        await simulation.process("worker", work, restarts=restarts).ended()

    failure = play(app, Plan(1, brokers=1)).failure
    assert failure is not None
    assert failure.startswith(f"{error.__name__}: ")


@pytest.mark.parametrize("name", ["Worker", "a.b", "application", "broker-1", ""])
def test_names_are_checked(name: str) -> None:
    async def app(simulation: Simulation) -> None:
        simulation.process(name, lambda: asyncio.sleep(0))

    failure = play(app, Plan(1, brokers=1)).failure
    assert failure is not None
    assert f"name={name!r}" in failure
