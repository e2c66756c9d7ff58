"""Reassignments of the topics that come while the run lasts, and of those that only other kinds of
work use.

The replicas of such a topic are often still being made when they are to move. A request names its
topic, so it may be done to the next topic of that name.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.moves import Mover
from sim.cluster.work.part import Part

if TYPE_CHECKING:
    from sim.cluster.moves import Movable

PAUSES_S = (0.01, 0.05, 0.2, 0.6)
NEWEST = 0.7
NAME = "mover of new topics"


class NewTopicMover(Mover):
    """Moves what no other mover moves; more often than not what it has not moved yet."""

    name = NAME

    async def run(self) -> None:
        """As long as faults come."""
        moved: set[Any] = set()
        while not self.world.is_quiet:
            await asyncio.sleep(self.rng.choice(PAUSES_S))
            movable = self.movable()
            fresh = [one for one in movable if one.key not in moved]
            if fresh and self.rng.random() < NEWEST:
                movable = fresh
            if movable:
                chosen = self.rng.choice(movable)
                moved.add(chosen.key)
                await self.act(chosen)

    def names(self) -> list[str]:
        """All that the newest metadata has."""
        image, others = self.world.machines.image(), set(super().names())
        return [] if image is None else [name for name in image.topics if name not in others]

    async def move(self, chosen: Movable, target: list[int]) -> bool:
        """Count it."""
        is_done = await super().move(chosen, target)
        self.world.history.count("reassignments of new topics", is_done)
        return is_done


class Moves(Part):
    """One mover."""

    name = "new topics that move"

    def start(self) -> None:
        """It begins."""
        self._mover = NewTopicMover(self.world, 0, NAME)
        self.start_client(self._mover)

    async def finish(self) -> None:
        """What is in doubt is asked for once more."""
        await super().finish()
        await self.world.served([self.world.spawn(NAME, self._mover.settle())], self.name)
