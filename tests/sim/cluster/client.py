"""A client that knows the cluster: any broker for metadata, leaders for data, coordinators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sim.wire import Lost, WireConnection
from tidelog.simulation.machines import host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    import random

    from sim.history import PartitionHistory
    from tidelog.simulation.machines import Machines
    from tidelog_protocol.schema import Message

Key = tuple[bytes, int]  # topic id, partition: a name may come back and mean another topic
PAUSE_S = 0.05


class ClusterClient:
    """Connections to all brokers it needs, leaders as far as it heard.

    A leader is forgotten when what it says is older than what is known.
    """

    def __init__(self, machines: Machines, name: str, rng: random.Random) -> None:
        self.machines, self.name, self.rng = machines, name, rng
        self.leaders: dict[Key, tuple[int, int]] = {}  # (leader epoch, node id)
        self._connections: dict[int, WireConnection] = {}

    async def connection(self, node_id: int) -> WireConnection:
        """The open connection to a broker, or a new one; Lost if it does not answer."""
        known = self._connections.get(node_id)
        if known is None or not known.is_open:
            machine = self.machines.by_id.get(node_id)
            if machine is None:
                raise Lost(f"{host_of(node_id)} was removed")
            opening = asyncio.get_running_loop().create_task(
                WireConnection.open(machine, self.name)
            )
            try:
                done, _ = await asyncio.wait([opening], timeout=1.0)
            finally:
                opening.cancel()  # a client that has ended leaves no attempt behind
            if not done:
                raise Lost(f"no connection to {host_of(node_id)}")
            known = self._connections[node_id] = opening.result()
        return known

    async def ask(self, node_id: int, message: Message, version: int) -> Any:
        """One request to one broker; Lost if there is no answer."""
        return await (await self.connection(node_id)).ask(message, version)

    def any_broker(self) -> int:
        """Some broker."""
        return self.rng.choice(list(self.machines.by_id))

    async def ask_any(self, message: Message, version: int) -> Any:
        """Whoever answers first, one after the other."""
        while True:
            try:
                return await self.ask(self.any_broker(), message, version)
            except Lost:
                await asyncio.sleep(PAUSE_S)

    async def refresh(self) -> None:
        """Ask some broker for leaders; one of an older epoch than is known is not believed."""
        try:
            response = await self.ask(self.any_broker(), MetadataRequest(topics=None), 12)
        except Lost:
            await asyncio.sleep(PAUSE_S)
            return
        for topic in response.topics:
            for partition in topic.partitions:
                key = (bytes(topic.topic_id), partition.partition_index)
                told = (partition.leader_epoch, partition.leader_id)
                if partition.error_code == ErrorCode.NONE or partition.leader_id >= 0:
                    self.leaders[key] = max(told, self.leaders.get(key, told))

    async def leader(self, target: PartitionHistory) -> tuple[int, int]:
        """(leader epoch, node id) of a partition; waits until there is one, and is Lost if its
        topic goes."""
        key = (target.topic.topic_id, target.index)
        while key not in self.leaders:
            await self.refresh()
            if key not in self.leaders:
                if target.topic.state != "exists":
                    raise Lost(f"{target} is no more")
                await asyncio.sleep(PAUSE_S)
        return self.leaders[key]

    def close(self) -> None:
        """End all connections."""
        for connection in self._connections.values():
            connection.close()
