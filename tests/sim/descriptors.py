"""A process that runs out of file descriptors, as a fault of a plan.

While descriptors are lacking, connections to the machine are reset too.

Drawn by a chance of its own, so that the other faults of a seed stay what they are.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.simulation.machine import Machine

LACK = "no descriptors"  # its amount: how many there are
SEEDS_WITH_IT = 0.25
LEFT_MAX = 3
LACKING_S = (0.3, 1.5)
OPENED_AGAIN_S = 1.2  # then the logs that could not be opened are


def draw_lack(seed: int | str, plan_s: float) -> list[tuple[float, str, float, float]]:
    """(when, kind, how many are left, for so long), if a seed has it."""
    rng = random.Random(f"{seed}:descriptors")
    if rng.random() >= SEEDS_WITH_IT:
        return []
    return [
        (rng.uniform(0.3, plan_s), LACK, rng.randint(0, LEFT_MAX), rng.uniform(*LACKING_S))
        for _ in range(rng.randint(1, 2))
    ]


async def lack_descriptors(machine: Machine, left: int, for_s: float) -> None:
    """So many descriptors for files, and none for connections, for a while."""
    machine.disk.descriptors.limit = left
    machine.network.crowded.add(machine.host)
    await asyncio.sleep(for_s)
    machine.network.crowded.discard(machine.host)
    machine.disk.descriptors.calm()
    await asyncio.sleep(OPENED_AGAIN_S)
