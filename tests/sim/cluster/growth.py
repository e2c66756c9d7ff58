"""A cluster that grows and shrinks under load: brokers added, drained, stopped and unregistered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sim.cluster.admin import AdminClient
from sim.cluster.client import PAUSE_S
from sim.cluster.moves import Movable
from sim.history import require
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import DescribeClusterRequest
from tidelog_protocol.messages.cluster_admin import UnregisterBrokerRequest

if TYPE_CHECKING:
    from sim.cluster.moves import Mover
    from sim.cluster.world import ClusterWorld

DRAIN_PAUSE_S = 0.3


class Operator(AdminClient):
    """Adds a broker, which is no voter of the quorum, and takes it away again."""

    def __init__(self, world: ClusterWorld, mover: Mover) -> None:
        super().__init__(world, "operator")
        self.mover = mover

    async def run(self) -> None:
        """At most two brokers come; some go."""
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            await asyncio.sleep(self.rng.uniform(0.2, 6))
            node_id = self.world.add_broker()
            self.world.history.count("brokers added")
            if self.rng.random() < 0.6:
                await asyncio.sleep(self.rng.uniform(0.5, 5))
                await self.remove(node_id)
        self.cluster.close()

    async def remove(self, node_id: int) -> None:
        """Drain, stop and unregister a broker."""
        world = self.world
        world.leaving.add(node_id)
        await self._drain(node_id)
        while not await world.take_away(node_id):
            await self._drain(node_id)  # what came while it was still there
        await self._drain(node_id)
        request = UnregisterBrokerRequest(broker_id=node_id)
        result, _ = await self.until_known(request, 0, lambda response: response)
        error = ErrorCode(result.error_code)
        require(  # it may never have got so far as to be registered
            error is ErrorCode.NONE or error is ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"UnregisterBroker {node_id}: {error.name}",
        )
        await self._drain(node_id)  # new replicas are put on fenced brokers if others are too few
        world.promises.unregistered.add(node_id)
        world.history.count("brokers removed")
        await self._forgotten(node_id)

    async def _drain(self, node_id: int) -> None:
        """Move everything that is or will be on a broker to others."""
        while held := self._held_by(node_id):
            for chosen in held:
                if node_id in chosen.state.removing_replicas:
                    continue  # under way
                await self.mover.move(chosen, self._elsewhere(node_id, chosen))
            await asyncio.sleep(DRAIN_PAUSE_S)

    def _held_by(self, node_id: int) -> list[Movable]:
        image = self.world.machines.image()
        if image is None:
            return []
        return [
            Movable(topic.name, (topic.topic_id, state.partition), state)
            for topic in image.topics.values()
            for state in topic.partitions
            if node_id in state.replicas
        ]

    def _elsewhere(self, node_id: int, chosen: Movable) -> list[int]:
        stay = [
            node
            for node in chosen.state.replicas
            if node not in (node_id, *chosen.state.adding_replicas)
        ]
        free = [node for node in self.mover.hosts() if node not in (node_id, *stay)]
        wanted = max(2, len(chosen.state.replicas) - len(chosen.state.adding_replicas))
        while free and len(stay) < wanted:
            stay.append(free.pop(self.rng.randrange(len(free))))
        return stay

    async def _forgotten(self, node_id: int) -> None:
        """Soon nobody tells clients of it any more."""
        end_s = self.world.loop.time() + 20
        while True:
            response = await self.cluster.ask_any(DescribeClusterRequest(), 1)
            if node_id not in {broker.broker_id for broker in response.brokers}:
                return
            require(
                self.world.loop.time() < end_s or not self.world.is_quiet,
                f"broker {node_id} was unregistered, and clients are told of it",
            )
            await asyncio.sleep(PAUSE_S)
