"""What strikes, and how often."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tidelog.simulation import KINDS, Simulation
from tidelog.simulation.application import Plan, play
from tidelog.simulation.faults import Fault, draw_plan, rates_of


def test_a_plan_is_drawn_from_the_seed() -> None:
    rates = rates_of(True, 3)
    plan = draw_plan(1, rates, 60)
    assert plan == draw_plan(1, rates, 60) != draw_plan(2, rates, 60)
    assert [fault.at_s for fault in plan] == sorted(fault.at_s for fault in plan)
    assert all(fault.at_s < 60 for fault in plan)


def test_one_kind_more_does_not_move_the_others() -> None:
    alone = draw_plan(1, rates_of(["kill"], 3), 60)
    among = draw_plan(1, rates_of(True, 3), 60)
    assert alone == tuple(fault for fault in among if fault.kind == "kill")


def test_rates_are_strikes_a_virtual_minute() -> None:
    plan = draw_plan(1, rates_of({"reset": 60, "pause": 0}, 3), 600)
    assert 500 < len(plan) < 700
    assert {fault.kind for fault in plan} == {"reset"}
    assert draw_plan(1, rates_of(False, 3), 60) == ()


def test_a_lone_broker_loses_no_power() -> None:
    assert "power" not in rates_of(True, 1)
    assert "power" in rates_of(["power"], 1)


@pytest.mark.parametrize(
    ("faults", "words"),
    [(["earthquake"], "'earthquake' is none of kill, power"), ({"kill": -1}, "kill=-1: strikes")],
)
def test_faults_are_checked(faults: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rates_of(faults, 3)


def test_each_kind_strikes_and_the_cluster_recovers() -> None:
    plan = tuple(Fault(2.0 * n, kind, 0.4, 0.5) for n, kind in enumerate(KINDS))

    async def app(simulation: Simulation) -> None:
        simulation.process("worker", asyncio.Event().wait)
        await simulation.calm()

    verdict = play(app, Plan(1, 3, plan, tiered=True))
    assert verdict.failure is None, verdict.details
    assert [verdict.struck[place].split()[0] for place in range(len(plan))] == [
        *("kill", "power", "pause", "cut", "slow", "slow", "reset", "kill", "pause", "cut"),
        *("clock-skew:", "full-disk", "store-outage", "slow-store"),
    ]


def test_some_kinds_strike_only_by_name() -> None:
    assert {"clock-skew", "full-disk", "store-outage", "slow-store"}.isdisjoint(rates_of(True, 3))
    assert set(rates_of(["full-disk", "kill"], 3)) == {"full-disk", "kill"}


def test_a_broker_whose_disk_is_full_ends_and_comes_back() -> None:
    plan = (Fault(1.0, "full-disk", 0.4, 3.0),)

    async def app(simulation: Simulation) -> None:
        sent = 0
        async with AIOKafkaProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
            for partition in [0, 1, 2] * 10:
                await producer.send_and_wait("orders", b"order", partition=partition)
                await asyncio.sleep(0.1)
                sent += 1
        assert sent == 30
        await simulation.calm()

    verdict = play(app, Plan(1, 3, plan))
    assert verdict.failure is None, verdict.details
    told = [f"{event.subject} {event.text}" for event in verdict.timeline]
    since = told[told.index("broker-2.1 ends: given up") :]
    assert [each for each in since if each.startswith("broker-2.") and each.endswith(" starts")]


def test_a_skewed_broker_stamps_records_with_its_clock() -> None:
    plan = (Fault(1.0, "clock-skew", 0.0, 5.0),)  # a pick of 0: 10 s behind
    stamps: list[int] = []

    async def app(simulation: Simulation) -> None:
        async with AIOKafkaProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
            for _ in range(3):
                sent = await producer.send_and_wait("orders", b"order", partition=0)
                stamps.append(sent.timestamp)
                await asyncio.sleep(3)
        await simulation.calm()

    settings = (("log.message.timestamp.type", "LogAppendTime"),)
    verdict = play(app, Plan(1, 1, plan, settings))
    assert verdict.failure is None, verdict.details
    steps = [round((after - before) / 1000) for before, after in pairwise(stamps)]
    assert steps == [-7, 13]


def test_a_read_from_the_tier_waits_while_its_store_is_down() -> None:
    async def app(simulation: Simulation) -> None:
        servers = simulation.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(3):
                await producer.send_and_wait("orders", b"%d" % number, partition=0)
                await asyncio.sleep(1.5)
        await asyncio.sleep(6)
        (log,) = (
            each.partition.log
            for each in simulation._world.machines.partitions()
            if each.partition.topic_partition == ("orders", 0)
        )
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 3)
        began_s = time.monotonic()
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]
        took_s.append(time.monotonic() - began_s)

    took_s: list[float] = []
    for plan in (), (Fault(10.0, "store-outage", 0.0, 10.0),):
        verdict = play(app, Plan(1, 1, plan, tiered=True))
        assert verdict.failure is None, verdict.details
    calm_s, outage_s = took_s
    assert calm_s < 1
    assert 5 < outage_s < 15


def test_brokers_become_unavailable_one_after_the_other() -> None:
    """With replicas in sync in between: the second broker would have the only copy."""
    plan = (Fault(0.1, "power", 0.0, 3.0), Fault(0.2, "kill", 0.9, 0.5))

    async def app(simulation: Simulation) -> None:
        await simulation.calm()

    verdict = play(app, Plan(1, 3, plan))
    assert verdict.failure is None, verdict.details
    told = [(event.at_s, event.text) for event in verdict.timeline if event.subject == "fault"]
    assert [text for _, text in told] == ["power broker-1 for 3.00 s", "kill broker-3 for 0.50 s"]
    assert told[1][0] > told[0][0] + 3.0


def test_a_fault_of_processes_without_any_does_nothing() -> None:
    async def app(simulation: Simulation) -> None:
        await simulation.calm()

    verdict = play(app, Plan(1, 1, (Fault(0.1, "cut-process", 0.5, 1.0),)))
    assert verdict.struck == {0: "cut-process: there is none that runs"}
