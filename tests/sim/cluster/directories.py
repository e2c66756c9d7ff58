"""Clusters whose brokers have two log directories, between which replicas move (KIP-113) while
brokers are killed, lose power, follow and lead.

Bits do not rot here: who repairs them looks into the first directory alone.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from sim.cluster.admin import AdminClient
from sim.cluster.world import ClusterWorld
from sim.history import require
from sim.raw_logs import DATA, MORE
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest

FINE = {ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


class DirectoryMover(AdminClient):
    """Moves replicas of all brokers about in their directories, as long as there are faults."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world, "directory mover")

    async def run(self) -> None:
        """Now here, now there; often before the last move is over."""
        while not self.world.is_quiet:
            await asyncio.sleep(self.rng.uniform(0.01, 0.3))
            image = self.world.machines.image()
            if image is None or not image.topics:
                continue
            topic = self.rng.choice(list(image.topics.values()))
            state = self.rng.choice(topic.partitions)
            await self._move(self.rng.choice(state.replicas), topic.name, state.partition)
        self.cluster.close()

    async def _move(self, node_id: int, topic: str, index: int) -> None:
        one = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        named = one.AlterReplicaLogDirTopic(name=topic, partitions=[index])
        place = self.rng.choice((DATA, MORE))
        request = AlterReplicaLogDirsRequest(dirs=[one(path=place, topics=[named])])
        try:
            response = await self.cluster.ask(node_id, request, 2)
        except Lost:
            return
        error = ErrorCode(response.results[0].partitions[0].error_code)
        require(
            error in FINE or error is ErrorCode.KAFKA_STORAGE_ERROR,  # its disk may be full
            f"{topic}-{index} to {place} of {node_id}: {error.name}",
        )
        self.world.history.count(f"asked to move: {error.name}")


async def _nothing(*_: Any) -> None:
    """No fault."""


class MovingWorld(ClusterWorld):
    """A cluster with two directories on each disk."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rot.strike = self.metadata_rot.strike = _nothing  # type: ignore[method-assign]

    def settings(self, brokers: int) -> dict[str, str]:
        rng = random.Random(f"{self.seed}:directories")
        return {
            **super().settings(brokers),
            "log.dirs": f"{DATA},{MORE}",
            "num.replica.alter.log.dirs.threads": str(rng.choice((1, 2, 5))),
        }

    async def _run(self) -> None:
        self.clients.append("directory mover")
        moving = self.spawn("directory mover", DirectoryMover(self).run())
        await super()._run()
        await moving
        for machine in self.machines:
            require(
                not any("-future" in folder for folder in machine.disk.folders),
                f"{machine.host} still moves a replica",
            )
            folders = [
                name for name in machine.disk.folders if not name.endswith(("-delete", "-stray"))
            ]
            names = [name.partition("/")[2] for name in folders if "/" in name]
            require(len(names) == len(set(names)), f"{machine.host}: {sorted(folders)}")
            self.history.count(
                "replicas in the second directory",
                sum(name.startswith(f"{MORE}/") for name in folders),
            )

    def lag(self) -> str | None:
        return super().lag() or self._moves()

    def _moves(self) -> str | None:
        for node_id, server in self.machines.servers():
            moving = server.logs.future_partitions()
            if moving and self.is_quiet:
                return f"broker {node_id} still moves {moving}"
        return None
