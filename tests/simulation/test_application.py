"""Runs of small applications in this process."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tidelog.simulation import Simulation, SimulationRefusedError
from tidelog.simulation.application import Plan, Verdict, play
from tidelog.simulation.faults import Fault


async def send(simulation: Simulation, count: int = 5) -> None:
    async with AIOKafkaProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait("orders", b"%d" % number)


async def read(simulation: Simulation, count: int = 5) -> list[Any]:
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=simulation.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        return [await consumer.getone() for _ in range(count)]


def words(verdict: Verdict) -> str:
    return "\n".join(f"{event.subject}: {event.text}" for event in verdict.timeline)


def test_a_producer_and_a_consumer_run_in_virtual_time() -> None:
    async def app(simulation: Simulation) -> None:
        started = time.monotonic()
        await send(simulation)
        records = await read(simulation)
        assert sorted(int(record.value) for record in records) == list(range(5))
        now_ms = time.time() * 1000
        assert all(now_ms - 10_000 < record.timestamp <= now_ms for record in records)
        await asyncio.sleep(20)
        assert time.monotonic() - started > 20

    verdict = play(app, Plan(1))
    assert verdict.failure is None, verdict.details
    assert verdict.virtual_s > 20


def test_the_same_plan_is_the_same_run() -> None:
    faults = (Fault(0.05, "kill", 0.1, 0.3), Fault(0.1, "reset", 0.4, 0.0))

    async def app(simulation: Simulation) -> None:
        await send(simulation, 20)
        await simulation.calm()

    first, again, other = (play(app, Plan(seed, 3, faults)) for seed in (1, 1, 2))
    assert first.failure is None, first.details
    assert first.trace == again.trace
    assert first.timeline == again.timeline
    assert first.trace != other.trace


def test_an_invariant_is_checked_after_each_step() -> None:
    state = {"stock": 3}

    async def app(simulation: Simulation) -> None:
        def stock_is_never_negative() -> None:
            assert state["stock"] >= 0, f"stock is {state['stock']}"

        simulation.invariant(stock_is_never_negative)
        for _ in range(6):
            await asyncio.sleep(1)
            state["stock"] -= 1

    verdict = play(app, Plan(1, brokers=1))
    assert verdict.failure is not None
    assert verdict.failure.startswith("AssertionError: stock is -1")
    assert "stock_is_never_negative" in verdict.details
    assert state["stock"] == -1, "the run ends at once"


def test_an_application_that_does_not_return_fails() -> None:
    async def app(_simulation: Simulation) -> None:
        await asyncio.Event().wait()

    verdict = play(app, Plan(1, brokers=1, timeout_s=20))
    assert verdict.failure is not None
    assert "did not return in 20 virtual seconds (all faults were over)" in verdict.failure


def test_the_traceback_has_the_lines_of_the_application() -> None:
    async def app(_simulation: Simulation) -> None:
        raise ValueError("bad order")

    verdict = play(app, Plan(1, brokers=1))
    assert verdict.failure == "ValueError: bad order"
    assert 'raise ValueError("bad order")' in verdict.details
    assert "loop.py" not in verdict.details


def test_a_refusal_that_the_application_swallows_ends_the_run() -> None:
    async def app(_simulation: Simulation) -> None:
        try:
            Path("written").write_text("")  # noqa: ASYNC240 - refused
        except SimulationRefusedError:
            await asyncio.sleep(1)

    verdict = play(app, Plan(1, brokers=1))
    assert verdict.failure is not None
    assert "the file 'written': keep in memory" in verdict.failure


def test_pytest_fail_fails_the_run() -> None:
    async def app(_simulation: Simulation) -> None:
        pytest.fail("no order came")

    failure = play(app, Plan(1, brokers=1)).failure
    assert failure == "Failed: no order came"


def test_the_timeline_has_leaders_warnings_and_own_lines() -> None:
    async def app(simulation: Simulation) -> None:
        await send(simulation, 1)
        simulation.tell("the order is sent")
        logging.getLogger("shop.orders").warning("no stock\nat all")

    told = words(play(app, Plan(1)))
    assert "orders-0: leader" in told
    assert "application: the order is sent" in told
    assert "shop: no stock\n" in told + "\n"
    assert "broker-2.1: starts" in told


def test_a_broker_that_ends_by_itself_is_named_as_the_cause() -> None:
    async def app(simulation: Simulation) -> None:
        simulation._world.machines.by_id[1].die("a failed disk")
        await asyncio.sleep(1)

    failure = play(app, Plan(1, brokers=1)).failure
    assert failure == "SimulationBrokenError: broker-1 ended: a failed disk"
