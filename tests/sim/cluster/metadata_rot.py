"""Rot in the metadata log: a bit of a committed batch flips in one voter's copy.

At most one voter at a time, so that a quorum is always good. Nothing committed may be lost by it,
and nobody may believe the bad bytes: the voter goes on with what it knows, or gives up, and refuses
to start, as a shorter log would let it help to elect a controller that lacks something. After a
while an operator puts back a whole copy, the active controller's; the votes of the voter stay.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.checkers import METADATA_FOLDER
from sim.cluster.rot import CHECKED_FROM, LOOK_S, REPAIRED_S_MAX
from sim.history import require
from sim.raw_logs import read_log
from tidelog.cluster.metadata.quorum_state import QUORUM_STATE
from tidelog.cluster.quorum.core import Role
from tidelog.simulation.disk import Inode
from tidelog.simulation.machine import in_lane

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld
    from tidelog.simulation.disk import SimDisk
    from tidelog.simulation.machine import Machine

METADATA_ROT = "metadata rot"
BAD_S = (0.3, 3.0)
SEEDS_WITH_IT = 0.3


def draw_metadata_rot(seed: int | str, brokers: int, plan_s: float) -> list[Any]:
    """(when, whom, for how long), if a seed has it; by a chance of its own."""
    rng = random.Random(f"{seed}:{METADATA_ROT}")
    if brokers < 3 or rng.random() >= SEEDS_WITH_IT:
        return []
    return [(rng.uniform(0.5, plan_s), rng.randint(1, brokers), rng.uniform(*BAD_S))]


def _files(disk: SimDisk) -> dict[str, Inode]:
    """The log's, without what a voter must not forget of itself."""
    return {
        path: inode
        for path, inode in disk.names.items()
        if path.startswith(f"{METADATA_FOLDER}/") and not path.endswith(QUORUM_STATE)
    }


class MetadataRot:
    """At most one damage at a time, and none beside that of `rot.py`."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.machine: Machine | None = None  # that is damaged

    async def strike(self, node_id: int, for_s: float) -> None:
        """Flip a bit on a voter's disk; come back when it is repaired."""
        world, machine = self.world, self.world.machines.by_id[node_id]
        rng = random.Random(f"{world.seed}:{METADATA_ROT}:{for_s}")
        if self.machine is not None or not await self._moment(node_id):
            return
        log = read_log(machine.disk, METADATA_FOLDER)
        committed = self._committed_end(machine)
        batches = [batch for batch in log.batches() if batch.header.last_offset < committed]
        if not batches:
            return  # all of it is in a snapshot
        batch = rng.choice(batches)
        base = max(base for base in log.segments if base <= batch.header.base_offset)
        position = batch.position + rng.randrange(CHECKED_FROM, len(batch.data))
        machine.disk.flip(f"{METADATA_FOLDER}/{base:020d}.log", position, rng.randrange(8))
        self.machine = machine
        world.loop.tell(machine.host, f"{METADATA_ROT} at {batch.header.base_offset}")
        world.history.count("bits of metadata flipped")
        if rng.random() < 0.7:
            machine.die("kill")
        await asyncio.sleep(for_s)
        end_s = world.loop.time() + REPAIRED_S_MAX
        while not self._is_good(machine):
            require(world.loop.time() < end_s, f"{machine.host}: {METADATA_ROT} stays")
            await self._repair(machine)
            await asyncio.sleep(LOOK_S)
        self.machine = None

    def _committed_end(self, machine: Machine) -> int:
        """What this voter has promised to keep, and a majority has; it may not have heard."""
        quorum, server = self.world.checkers.quorum, machine.server
        kept = quorum.kept(machine.config.node_id)
        if server is None or not server.is_built or not server.metadata.is_open:
            return kept
        return max(kept, min(quorum.committed_end, server.metadata.flushed))

    async def _moment(self, node_id: int) -> bool:
        """Wait until everybody has the records that count on him: who refuses to start would keep
        the controller from hearing of a loss. The others are a quorum."""
        world = self.world
        for _ in range(200):
            is_free = world.rot.damage is None and not world.checkers.in_sync.unnoticed()
            if is_free and world.faults.keeps_quorum(node_id):
                return True
            await asyncio.sleep(0.01)
        return False

    def _is_good(self, machine: Machine) -> bool:
        """A snapshot may have made the log begin later."""
        return not any(read_log(machine.disk, METADATA_FOLDER).torn.values())

    async def _repair(self, machine: Machine) -> None:
        if machine.server is not None and not machine.is_ready:
            return  # it is starting, and will see
        if machine.server is not None and not await in_lane("test", machine.stop()):
            return
        source = self._source(machine)
        if source is None or machine.server is not None:
            return
        disk = machine.disk
        for path in _files(disk):
            disk.change("remove", path)
        for path, inode in _files(source.disk).items():
            copy = Inode()
            copy.data += inode.data
            disk.change("create", path, copy)
            disk.sync(copy)
        disk.sync_names()
        self.world.history.count("copies of metadata put back")

    def _source(self, machine: Machine) -> Machine | None:
        """The active controller, if it has decided in its epoch: nobody has more."""
        newest = max(self.world.checkers.quorum.epochs())
        for node_id, core in self.world.machines.cores():
            other = self.world.machines.by_id[node_id]
            if (
                other is not machine
                and core.role is Role.LEADER
                and core.epoch == newest
                and core.leads_committed
            ):
                return other
        return None
