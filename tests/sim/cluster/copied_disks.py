"""A copied disk: a whole second process on it, with the broker's id, while the first one lives.

The copy has the first one's directory ids, logs and checkpoints, and a host of its own. As long as
the controllers hear the first one, the second may not register, whoever the controller is: it
refuses to start, and says why. It is ended before the first one's session can have run out; what a
process that has registered may do is another fault ("broker replaced").

Voters of the metadata quorum are a fixed list of addresses, and a copy of one is another matter:
the broker is one that came later.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.strangers import INTRUSION_S, LOOK_S, MOMENT_S_MAX, Stranger
from sim.history import require
from tidelog.simulation.disk import Inode
from tidelog.simulation.machine import PORT, Machine

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults
    from tidelog.simulation.disk import SimDisk

COPIED_DISK = "copied disk"
SEEDS_WITH_IT = 0.06
REFUSAL = "another process runs as broker"
PATIENCE_MS = 500  # of the copy
USED_S = (0.0, 0.5, 2.0)  # for so long the first process runs before


def draw_copied_disks(seed: int | str, plan_s: float) -> list[float]:
    """When, if a seed has it; by a chance of its own."""
    rng = random.Random(f"{seed}:copies of disks")  # by this name: no later seed of old bugs
    return [rng.uniform(0.5, plan_s - 2)] if rng.random() < SEEDS_WITH_IT else []


async def copy_disk(faults: ClusterFaults, name: str) -> None:
    """Add a broker, and soon start a process on a copy of its disk."""
    node_id = faults.world.add_broker()
    await Copy(faults, node_id, name).play()


class Copy(Stranger):
    """The second process."""

    async def play(self) -> None:
        """It begins as soon as the first one is surely heard, up to three times."""
        await asyncio.sleep(self.rng.choice(USED_S))
        for _ in range(self.rng.randint(1, 3)):
            if self.node_id not in self.machines.by_id:
                return  # an operator has taken it away
            if await self._until(self._is_fresh, MOMENT_S_MAX):
                await self._intrude()

    async def _intrude(self) -> None:
        first, second = self._life(), self._second()
        copy_of(self.machine.disk, second.disk)
        self.world.history.count("copied disks")
        leader = self.machines.controller()
        if self.rng.random() < 0.4 and leader is not None and self.faults.may_strike(leader):
            self.machines.by_id[leader].die("kill")
        starting = asyncio.get_running_loop().create_task(second.start())
        heard_s = self.world.loop.time()
        while not starting.done() and self._life() is first:
            now_s = self.world.loop.time()
            heard_s = now_s if self._is_fresh() else heard_s
            if now_s - heard_s > INTRUSION_S:
                break
            await asyncio.sleep(LOOK_S)
        has_taken_over = second.is_ready and self._life() is first
        require(
            not has_taken_over and "another process" not in str(first.failure),
            f"a process on a copied disk runs as broker {self.node_id}, which has a session",
        )
        if second.has_refused and REFUSAL in second.deaths[-1][1]:
            self.world.history.count("copies refused")
        second.die("kill")
        await starting

    def _second(self) -> Machine:
        machines, host = self.machines, f"copy-{len(self.machines.all)}"
        settings = {
            **machines._settings(self.node_id),
            "listeners": f"PLAINTEXT://{host}:{PORT}",
            "initial.broker.registration.timeout.ms": str(PATIENCE_MS),
        }
        second = Machine(
            self.world.loop, machines.network, f"{self.world.seed}:{host}", settings, host=host
        )
        second.clock.skew_ms = self.machine.clock.skew_ms
        machines.all.append(second)  # to be buried with the others
        return second


def copy_of(disk: SimDisk, to: SimDisk) -> None:
    """What a file has now, on another disk. Locks and their notes stay behind."""
    to.folders |= disk.folders
    to.durable_folders |= disk.folders
    for path, inode in disk.names.items():
        other = to.names[path] = to.durable_names[path] = Inode()
        other.data += inode.data
        to.sync(other)
