"""A group's coordinator loses its followers, answers clients for a while, and falls.

Its answers must hold nothing that no follower has: the next coordinator does not know it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.groups import term_of
from tidelog.simulation.machines import host_of

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld

FALLS = (1, 4)
FIRST_S = (0.8, 2.0)  # members have come
BETWEEN_S = (0.4, 1.5)
ALONE_S = (0.05, 0.2, 0.6, 1.2)
DIES = 0.8  # else it learns that another one has taken over


async def fall_again_and_again(world: ClusterWorld, group: str) -> None:
    """As often as the seed says, while there are other faults."""
    rng = random.Random(f"{world.seed}:coordinators that fall")
    await asyncio.sleep(rng.uniform(*FIRST_S))
    for _ in range(rng.randint(*FALLS)):
        term = term_of(world, group)
        if term is not None and term[0] in world.machines.by_id:
            await _fall(world, term[0], rng)
        await asyncio.sleep(rng.uniform(*BETWEEN_S))


async def _fall(world: ClusterWorld, node_id: int, rng: random.Random) -> None:
    here = host_of(node_id)
    others = [host_of(other) for other in world.machines.by_id if other != node_id]
    links = [link for other in others for link in ((here, other), (other, here))]
    await world.faults.until_may_strike(node_id)
    world.loop.tell("fault", f"the coordinator, {here}, is alone")
    with world.faults.cut_off(node_id):
        world.machines.network.cut(links)
        await asyncio.sleep(rng.choice(ALONE_S))
        if rng.random() < DIES and world.faults.may_strike(node_id):
            world.machines.by_id[node_id].die("kill")
        world.machines.network.heal(links)
    world.history.count("coordinators that fell")
