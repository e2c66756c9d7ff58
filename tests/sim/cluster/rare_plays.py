"""Plays that few seeds have, by a chance of their own: what they look for is rare, and costs time.

A coordinator of a group that falls in the moment in which it has acknowledged offsets, and whose
successor is asked before it can know that they are committed. A topic that comes back under its
name, with a broker that crashes before its checkpoints were written again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.admin import AdminClient, ClusterAdmin
from sim.cluster.groups import OFFSETS_TOPIC, CoordinatorClient, look_at_offsets
from sim.cluster.sequences import LEADERLESS_S_MAX, Play
from sim.history import TopicHistory
from sim.wire import Lost
from tidelog.replication.internal_topics import partition_for
from tidelog.simulation.machine import PORT
from tidelog.simulation.machines import host_of

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults

SEEDS_WITH_IT = 0.25
RARE = ("offsets and kill", "name comes back")
GROUP = "group"
NAME = "back"
CHECKPOINTS_S = 0.9  # they are written within this time
ASKED_MAX = 60


def draw_rare(seed: int | str, plan_s: float) -> list[tuple[float, str]]:
    """What a seed gets of them, and when."""
    rng = random.Random(f"{seed}:rare")
    drawn = [(rng.random(), rng.uniform(1.0, plan_s), kind) for kind in RARE]
    return [(at_s, kind) for chance, at_s, kind in drawn if chance < SEEDS_WITH_IT]


async def play_rare(faults: ClusterFaults, kind: str, name: str) -> None:
    """The whole of one."""
    if kind == "name comes back":
        await Return(faults, name).run(kind)
        return
    image = faults.machines.image()
    topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
    if topic is not None:
        history = TopicHistory(topic.name, topic.topic_id, len(topic.partitions), {})
        index = partition_for(GROUP, len(topic.partitions))
        await OffsetsAndKill(faults, name, history.partition(index)).run(kind)


class OffsetsAndKill(Play):
    """The target is the group's partition."""

    async def _offsets_and_kill(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            followers, network = self.followers(), self.machines.network
            held = [
                (host_of(one), host_of(other), PORT)
                for one in followers
                for other in followers
                if one != other and self.rng.random() < 0.7
            ]
            network.cut(held)  # who leads next is not followed at once
            await self._once(self.leader())
            network.heal(held)
            await self.pause(0.1, 0.5)

    async def _once(self, leader: int) -> None:
        counts = self.world.history.counts
        before = counts.get("offsets committed", 0)
        if not await self.until(lambda: counts.get("offsets committed", 0) > before, 1.5):
            return
        self.kill(leader)
        if await self.until(lambda: self.leader() not in (-1, leader), LEADERLESS_S_MAX):
            await self._ask(self.leader())

    async def _ask(self, leader: int) -> None:
        """Ask the new one again and again, whether it knows of its luck or not."""
        client = CoordinatorClient(self.world, self.scribe.name, GROUP, self.rng)
        for _ in range(ASKED_MAX):
            client.node_id = leader
            asking = look_at_offsets(self.world, client, GROUP)
            try:
                await asyncio.wait_for(asking, timeout=1.0)
            except (Lost, TimeoutError):
                break
            await asyncio.sleep(0.003)
        client.close()


class Returner(ClusterAdmin):
    """Another administrator."""

    def __init__(self, faults: ClusterFaults, name: str) -> None:
        AdminClient.__init__(self, faults.world, name)


class Return(Play):
    """The target is the topic's only partition, each time another one."""

    topic_name = NAME

    def __init__(self, faults: ClusterFaults, name: str) -> None:
        self.admin = Returner(faults, f"returner {name}")
        super().__init__(faults, name, faults.world.base_topics[0].partition(0))

    async def _name_comes_back(self) -> None:
        if any(topic.name == self.topic_name for topic in self.world.history.existing()):
            return
        for _ in range(self.rng.randint(1, 2)):
            await self.create_and_write(self.rng.randint(2, 6))
            if self.target.acked_end:
                await self.admin.delete_all_records(self.target)
            await asyncio.sleep(CHECKPOINTS_S)
            await self.admin.delete(self.target.topic)
            await self.pause(0, 0.05, 0.5)
            await self.create_and_write(self.rng.randint(1, 2))
            state = self.state()
            if state is not None:
                self.kill(self.rng.choice(state.replicas))
            await self.pause(0.2, 1.0)
            await self.write_some(1)
            await self.admin.delete(self.target.topic)
        self.admin.cluster.close()

    async def create_and_write(self, batches: int) -> None:
        """Another topic of the name."""
        self.target = (await self.admin.create(self.topic_name, 1)).partition(0)
        await self.until(lambda: self.leader() > 0, LEADERLESS_S_MAX)
        await self.write_some(batches)

    async def write_some(self, batches: int) -> None:
        """Begin to write to its leader."""
        leader = self.leader()
        if leader > 0:
            await self.write(leader, -1, batches)
