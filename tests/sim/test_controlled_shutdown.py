"""How long brokers that stop in order wait for each other, with Kafka's own intervals."""

from __future__ import annotations

import asyncio

import pytest

from sim.stage import Stage
from tidelog.simulation.loop import simulate

SETTINGS = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "9000"}


async def stopped_together(loop, *names):
    """Seconds that it takes to stop these at the same time, while the leader is the first."""
    async with Stage(loop, "ABC", SETTINGS) as stage:
        await stage.create_topic("ABC")
        assert (await stage.produce("A", "m", acks=-1)).error_code == 0
        begun = loop.time()
        await asyncio.gather(*(stage.stop(name) for name in names))
        return loop.time() - begun


@pytest.mark.parametrize(
    ("names", "seconds_max"),
    [
        ("A", 0.3),  # as soon as the others know who leads now, not with their next heartbeats
        ("AB", 0.3),
        ("ABC", 0.3),
        ("ABCX", 2.0),  # without X there is no controller: who still wants to go waits a second
        ("ABCXY", 2.0),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_leaving_is_prompt(names: str, seconds_max: float, seed: int) -> None:
    seconds, _ = simulate(f"leaving:{names}:{seed}", lambda loop: stopped_together(loop, *names))
    assert seconds < seconds_max
