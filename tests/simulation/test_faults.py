"""What strikes, and how often."""

from __future__ import annotations

import asyncio

import pytest

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

    verdict = play(app, Plan(1, 3, plan))
    assert verdict.failure is None, verdict.details
    assert [verdict.struck[place].split()[0] for place in range(len(plan))] == [
        *("kill", "power", "pause", "cut", "slow", "slow", "reset", "kill", "pause", "cut")
    ]


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
