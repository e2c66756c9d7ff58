"""A broker is killed, and the controller too, between two steps of its fencing. The next one goes
on with it; and if the broker is back before, its new life leads nothing as the old one did.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.controller_steps import steps_of
from sim.history import require
from sim.stage import TOPIC, Stage
from tidelog.simulation.loop import simulate
from tidelog.simulation.machine import in_lane

if TYPE_CHECKING:
    from tidelog.simulation.loop import SimLoop

PARTITIONS = 6
SETTLED_S_MAX = 1.0  # after the next controller's election


def run_half_fenced(seed: int) -> None:
    """One seed's run; Violation if the fencing stays half done."""
    with steps_of(1 + seed % 2):
        simulate(f"half-fenced-{seed}", lambda loop: _play(loop, seed))


async def _play(loop: SimLoop, seed: int) -> None:
    rng = random.Random(f"{seed}:half fenced")
    async with Stage(loop, "AB") as stage:
        await stage.create_topic("AB", partitions=PARTITIONS)
        first = stage.controller
        stage.when(
            lambda: bool(stage.controller) and stage.is_fenced("A") and _is_led_by_a(stage),
            lambda: stage.kill(first),
        )
        stage.kill("A")
        await stage.until(lambda: not stage.machines[first].is_ready, "the controller is killed")
        returns = [first, "A"] if rng.random() < 0.5 else [first]
        starts = [in_lane("test", stage.machines[name].start()) for name in returns]
        await stage.until(lambda: bool(stage.controller), "a controller")
        await asyncio.sleep(SETTLED_S_MAX)
        require(not _is_led_by_a(stage), "partitions are led by the life of A that is over")
        assert all(await asyncio.gather(*starts))


def _is_led_by_a(stage: Stage) -> bool:
    """Whether a partition is in the epoch in which A led it before it was killed."""
    partitions = stage.image.topics[TOPIC].partitions
    return any(partition.leader_epoch == 0 for partition in partitions)
