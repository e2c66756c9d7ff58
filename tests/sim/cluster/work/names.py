"""A topic that is deleted and created again under its name while one of its brokers is away.

The broker comes back with a log of that name, finds another topic, and soon leads it: nothing of
the old topic is served for the new one. Consumers that fetch by topic id look for that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.cluster.rare_plays import Return
from sim.cluster.sequences import LEADERLESS_S_MAX
from sim.cluster.work.part import Part
from sim.cluster.work.seeds import NAME_REUSED

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults

NAME = "again"
BACK_S_MAX = 6.0


class Names(Part):
    """The fault is all of it: everybody writes to the topic and reads it."""

    name = "names used again"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._is_playing = False

    async def play(self, faults: ClusterFaults, kind: str, name: str) -> None:
        """The fault of this kind."""
        if kind == NAME_REUSED and not self._is_playing:  # one topic of the name at a time
            self._is_playing = True
            await Away(faults, name).run(kind)
            self._is_playing = False


class Away(Return):
    """The target is the topic's only partition, each time another one."""

    topic_name = NAME

    async def _name_used_again(self) -> None:
        if any(topic.name == NAME for topic in self.world.history.existing()):
            return
        await self.create_and_write(self.rng.randint(2, 6))
        state = self.state()
        if state is not None:
            away = self.rng.choice(state.replicas)
            await self.faults.until_may_strike(away)
            if self.faults.keeps_quorum(away):
                with self.faults.cut_off(away):
                    await self._without(away)
                await self._lead(away)
        if self.rng.random() < 0.5:
            await self.admin.delete(self.target.topic)
        self.admin.cluster.close()

    async def _without(self, away: int) -> None:
        """The broker does not run while the topic goes and comes back."""
        back = self.world.away[away] = asyncio.Event()
        self.kill(away)
        await self.pause(0, 0.1, 2.0)  # the controller may not have missed it yet
        for _ in range(self.rng.randint(1, 2)):
            await self.admin.delete(self.target.topic)
            await self.pause(0, 0.05)
            await self.create_and_write(self.rng.randint(1, 3))
        del self.world.away[away]
        back.set()
        self.world.history.count("names used again")

    async def _lead(self, node_id: int) -> None:
        """As soon as the broker is in sync its leader goes, so that it may lead."""

        def is_in_sync() -> bool:
            state = self.state()
            return state is not None and node_id in state.isr

        if not await self.until(is_in_sync, BACK_S_MAX):
            return
        leader = self.leader()
        if leader not in (-1, node_id):
            self.kill(leader)
            await self.until(lambda: self.leader() not in (-1, leader), LEADERLESS_S_MAX)
        await self.write_some(1)
        await asyncio.sleep(self.rng.choice((0.0, 0.5)))
