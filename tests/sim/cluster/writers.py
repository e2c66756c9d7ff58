"""Writers that belong to the faults: they write all the while, or at a moment and a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.cluster.producers import IdempotentClusterProducer, PlainClusterProducer
from sim.producers import Batch

if TYPE_CHECKING:
    import random

    from sim.cluster.world import ClusterWorld
    from sim.history import PartitionHistory

RECORDS_MAX = 1_000_000  # that is, no limit
PAUSES_S = (0.0, 0.02, 0.1, 0.3, 0.7)
PAUSES_TIERED_S = (0.0, 0.01, 0.05, 0.2, 0.4)  # what is copied has to be written


async def pause(world: ClusterWorld, rng: random.Random) -> None:
    """Between two batches of a steady writer."""
    await asyncio.sleep(rng.choice(PAUSES_TIERED_S if world.tier.is_on else PAUSES_S))


class SteadyIdempotent(IdempotentClusterProducer):
    """Goes on until it is told to stop, so that no fault strikes an idle cluster."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        super().__init__(world, name, RECORDS_MAX)
        self.is_stopped = False

    async def run(self) -> None:
        """Write until the faults are over."""
        await self.begin()
        while not self.is_stopped:
            await self.write(self.target())
            await pause(self.world, self.rng)
        self.cluster.close()


class SteadyPlain(PlainClusterProducer):
    """The same without sequences."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        super().__init__(world, name, RECORDS_MAX)
        self.is_stopped = False

    async def run(self) -> None:
        """Write until the faults are over."""
        while not self.is_stopped:
            await self.write(self.target())
            await pause(self.world, self.rng)
        self.cluster.close()


class Scribe(PlainClusterProducer):
    """Writes what it is told, where it is told, once: a leader that was replaced gets it, too."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        super().__init__(world, name, RECORDS_MAX)
        world.clients.append(name)

    async def send(self, node_id: int, target: PartitionHistory, acks: int) -> bool:
        """One batch to one broker; whether it was acknowledged."""
        self.cluster.leaders[target.topic.topic_id, target.index] = (1 << 30, node_id)
        return not await self.try_once(target, [Batch(self.new_values(target), self.codec)], acks)
