"""One kind of work: what all of them have. Most need little of it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, ClassVar

from sim.cluster.admin import AdminClient, ClusterAdmin
from sim.cluster.producers import IdempotentClusterProducer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.cluster.faults import ClusterFaults
    from sim.history import PartitionHistory, TopicHistory

WRITTEN_MAX = 300  # records
PAUSES_S = (0.0, 0.03, 0.1, 0.3)


class TopicAdmin(ClusterAdmin):
    """The administrator of one kind of work."""

    def __init__(self, world: Any, name: str) -> None:
        AdminClient.__init__(self, world, name)
        world.clients.append(name)


class OwnWriter(IdempotentClusterProducer):
    """Writes to the topics of one kind of work alone, as long as faults come."""

    def __init__(self, world: Any, name: str, topics: list[TopicHistory]) -> None:
        super().__init__(world, name, WRITTEN_MAX)
        self.topics = topics

    def target(self) -> PartitionHistory:
        """Any partition of them."""
        topic = self.rng.choice(self.topics)
        return topic.partition(self.rng.randrange(topic.partitions_min))

    async def run(self) -> None:
        """Batches, now and then."""
        await self.begin()
        while self.left > 0 and not self.world.is_quiet:
            await self.write(self.target())
            await asyncio.sleep(self.rng.choice(PAUSES_S))
        self.cluster.close()


class Part:
    """The default of each step is nothing."""

    name: ClassVar[str]

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng = random.Random(f"{world.seed}:{self.name}")
        self.clients: list[asyncio.Task[Any]] = []
        self.writers: list[asyncio.Task[Any]] = []
        self.topics: list[TopicHistory] = []  # those of this part alone

    def settings(self) -> Mapping[str, str]:
        """Of all brokers."""
        return {}

    def topic_config(self, name: str) -> dict[str, str] | None:
        """The configuration of a topic of this kind; None for others."""
        return None

    def look(self, node_id: int, partition: Any) -> None:
        """A step of this broker has changed its replica."""

    async def create(self) -> None:
        """The topics."""

    def start(self) -> None:
        """Clients begin."""

    async def play(self, faults: ClusterFaults, kind: str, name: str) -> None:
        """A fault of this kind of work, if it is one."""

    async def finish(self) -> None:
        """Clients end."""
        await self.world.served(self.clients, self.name)

    def check(self) -> None:
        """What holds at the end."""

    # -- for the kinds -----------------------------------------------------------------------------

    def start_writer(self, actor: Any) -> None:
        """Begin a client whose end others wait for, as there is nothing to read after it."""
        self.world.clients.append(actor.name)
        self.writers.append(self.world.spawn(actor.name, actor.run()))

    def start_client(self, actor: Any) -> None:
        """Begin a client that `finish` waits for."""
        self.world.clients.append(actor.name)
        self.clients.append(self.world.spawn(actor.name, actor.run()))

    async def create_topic(self, name: str, partitions: int) -> TopicHistory:
        """A topic that is known to all who write and read by topic id."""
        admin = TopicAdmin(self.world, f"{self.name} admin")
        topic = await admin.create(name, partitions)
        admin.cluster.close()
        return topic
