"""Clusters whose brokers have two log directories, between which replicas move (KIP-113) while
brokers are killed, lose power, follow and lead. In half of the seeds the second directory of a
broker fails (KIP-112), and an operator mends it and starts the broker again.

Bits do not rot here: who repairs them looks into the first directory alone.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from sim.cluster.admin import AdminClient
from sim.cluster.world import ClusterWorld
from sim.history import require
from sim.raw_logs import DATA, MORE
from sim.wire import Lost
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest

PATHS = {place: str(Path(place).absolute()) for place in (DATA, MORE)}  # as clients name them
SEEDS_WITH_FAILURES = 0.5
FAILS_S = (0.5, 6.0)
MENDED_S = (0.5, 4.0)
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
        request = AlterReplicaLogDirsRequest(dirs=[one(path=PATHS[place], topics=[named])])
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


class DirectoryFailures:
    """One directory fails, and brokers with failed ones are started again, whatever failed them.

    Its random stream is its own, so that the other faults of a seed stay what they are.
    """

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.rng = random.Random(f"{world.seed}:failing directories")

    async def run(self) -> None:
        """Until no fault is to come and all directories work."""
        fails_at_s = self.world.loop.time() + self.rng.uniform(*FAILS_S)
        is_over = self.rng.random() >= SEEDS_WITH_FAILURES
        node_id = self.rng.choice(sorted(self.world.machines.by_id))
        while not self.world.is_quiet or self._failed():
            await asyncio.sleep(0.1)
            is_over = is_over or self.world.is_quiet or bool(self._failed())
            if not is_over and self.world.loop.time() >= fails_at_s:
                self._arm(node_id)
            for each in self._failed():
                await self._mend(each)

    def _arm(self, node_id: int) -> None:
        """The next sync of a folder there fails, which takes no bytes, or one of a file that others
        can do without. Other faults calm the disk."""
        faults, trouble = self.world.faults, self.world.machines.by_id[node_id].disk.trouble

        def fails(path: str) -> bool:
            if path != MORE and not path.startswith(f"{MORE}/"):
                return False
            takes_bytes = "." in path.rpartition("/")[2]
            trouble.on_failed_sync = lambda: faults.lost_bytes(node_id) if takes_bytes else None
            return faults.may_lose_bytes(node_id) if takes_bytes else faults.may_strike(node_id)

        trouble.sync_fails = fails

    def _failed(self) -> list[int]:
        return [
            node_id
            for node_id, server in self.world.machines.servers()
            if server.logs is not None
            and any(directory.failure is not None for directory in server.logs.directories)
        ]

    async def _mend(self, node_id: int) -> None:
        machine = self.world.machines.by_id[node_id]
        life = machine.life
        self.world.history.count("directories failed")
        await asyncio.sleep(self.rng.uniform(*MENDED_S))
        if machine.life == life and machine.server is not None:
            if machine.is_ready:
                self.world.history.count("brokers that went on without a directory")
            machine.die("kill")


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
        failing = self.spawn("directory failures", DirectoryFailures(self).run())
        await super()._run()
        await moving
        await failing
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
