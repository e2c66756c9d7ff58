"""A broker is killed, and the controller too, between two steps of its fencing. The next one goes
on with it; and if the broker is back before, its new life leads nothing as the old one did.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.controller_steps import steps_of
from sim.history import require
from sim.loop import simulate
from sim.machine import in_lane
from sim.stage import Stage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from sim.loop import SimLoop

TOPIC = "many"
PARTITIONS = 6
SETTLED_S_MAX = 1.0  # after the next controller's election


def run_half_fenced(seed: int) -> None:
    """One seed's run; Violation if the fencing stays half done."""
    with steps_of(1 + seed % 2):
        simulate(f"half-fenced-{seed}", lambda loop: _play(loop, seed))


async def _play(loop: SimLoop, seed: int) -> None:
    rng = random.Random(f"{seed}:half fenced")
    async with Stage(loop, "AB") as stage:
        await _create(stage)
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


async def _create(stage: Stage) -> None:
    topics = CreateTopicsRequest.CreatableTopic
    topic = topics(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            topics.CreatableReplicaAssignment(
                partition_index=index, broker_ids=[stage.ids["A"], stage.ids["B"]]
            )
            for index in range(PARTITIONS)
        ],
    )
    answer = await stage.ask("X", CreateTopicsRequest(topics=[topic], timeout_ms=3000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def _is_led_by_a(stage: Stage) -> bool:
    """Whether a partition is in the epoch in which A led it before it was killed."""
    partitions = stage.image.topics[TOPIC].partitions
    return any(partition.leader_epoch == 0 for partition in partitions)
