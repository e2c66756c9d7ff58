"""The history that a run's clients observed: whole, and enough by itself to find planted bugs."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from histories.calls import ClientHistory, Outcome
from histories.judge import anomalies
from sim.cluster.transactions_alone import LoneWorld
from sim.faults import draw_plan
from sim.mutants import planted
from sim.observed import history_of
from sim.world import World
from tidelog.simulation.loop import SimLoop


def observe(world: Any, loop: SimLoop) -> ClientHistory:
    """Run it to its end, or to where another checker or an actor finds something."""
    with contextlib.suppress(Exception):
        loop.run_until_complete(world.run())
    topics = dict(world.history.topics)
    if isinstance(world, LoneWorld):
        each = {
            history.topic.topic_id: history.topic for history in world.transactions.partitions()
        }
        topics.update(each)
    history = history_of(world.observer, list(topics.values()))
    loop.close()
    machines = [world.machine] if isinstance(world, World) else world.machines.all
    for machine in machines:
        machine.bury()
    if isinstance(world, LoneWorld):
        world.tier.close()
    return history


def test_the_history_has_every_call() -> None:
    loop = SimLoop(1)
    world = World(loop, 1, ())
    history = observe(world, loop)
    assert anomalies(history) == []
    known = {
        (topic.topic_id.hex(), index, offset): value
        for topic in world.history.topics.values()
        for index, partition in topic.partitions.items()
        for offset, value in partition.facts.items()
    }
    acknowledged = {
        (*send.place, send.offset): send.value
        for send in history.sends
        if send.outcome is Outcome.OK and send.offset is not None
    }
    read = {
        (*poll.place, offset): value for poll in history.polls for offset, value in poll.records
    }
    assert {**acknowledged, **read}.items() >= known.items()
    assert history.listed
    assert history.led
    assert {commit.outcome for commit in history.commits} >= {Outcome.OK}
    assert any(answer.offset >= 0 for answer in history.committed)


def test_transactions_have_their_ends() -> None:
    loop = SimLoop(1)
    history = observe(LoneWorld(loop, 1), loop)
    assert anomalies(history) == []
    outcomes = {transaction.outcome for transaction in history.transactions}
    assert outcomes >= {Outcome.OK, Outcome.FAILED}
    assert any(poll.is_committed and poll.records for poll in history.polls)
    assert any(poll.transaction and poll.group for poll in history.polls)


# With the seed that found it the last time.
@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [
        ("answer-an-old-log-end", "stale log end", 0),
        ("name-another-leader", "two leaders", 0),
        ("offsets-in-memory", "lost commit", 4),
        ("pass-over-a-batch", "lost", 0),
    ],
)
def test_planted_bugs_are_found_by_what_clients_saw(name: str, kind: str, seed: int) -> None:
    for tried in range(seed, seed + 20):
        loop = SimLoop(tried)
        with planted(name):
            history = observe(World(loop, tried, draw_plan(tried)), loop)
        if kind in {anomaly.kind for anomaly in anomalies(history)}:
            return
    pytest.fail(f"{name} was not found as {kind!r}")


@pytest.mark.parametrize(
    ("name", "kind", "seed"),
    [("any-end-is-the-oldest", "aborted read", 0), ("zombie-members-commit", "consumed twice", 27)],
)
def test_planted_bugs_of_transactions_are_found_by_what_clients_saw(
    name: str, kind: str, seed: int
) -> None:
    for tried in range(seed, seed + 20):
        loop = SimLoop(tried)
        with planted(name):
            history = observe(LoneWorld(loop, tried), loop)
        if kind in {anomaly.kind for anomaly in anomalies(history)}:
            return
    pytest.fail(f"{name} was not found as {kind!r}")
