"""The loss of a disk: a broker's logs are gone, and after a while it gets an empty disk.

While there is none it does not start. Then an operator formats the new one for the same node, under
another directory id. The broker rebuilds as a follower: it must not lead with nothing, nor count.

A voter's metadata log lies on a disk of its own: what a quorum of fixed voters forgets with it is
beyond what Kafka promises. The others that are in sync have all records (`may_lose_bytes`), and
until the controller knows of the loss nobody else is taken from them, as after a power failure.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.checkers import METADATA_FOLDER
from sim.raw_logs import DATA
from tidelog_storage.checkpoints import META_PROPERTIES, MetaProperties, write_meta_properties

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults
    from tidelog.simulation.machine import Machine

LOST_DISK = "lost disk"
WITHOUT_S = (0.2, 4.0)
SEEDS_WITH_IT = 0.2
MOMENTS = 300


def draw_lost_disks(seed: int | str, brokers: int, plan_s: float) -> list[tuple[float, int, float]]:
    """(when, whose, for how long), if a seed has it; by a chance of its own."""
    rng = random.Random(f"{seed}:{LOST_DISK}")
    if brokers < 3 or rng.random() >= SEEDS_WITH_IT:
        return []
    return [(rng.uniform(0.5, plan_s), rng.randint(1, brokers), rng.uniform(*WITHOUT_S))]


async def lose_disk(faults: ClusterFaults, node_id: int, for_s: float) -> None:
    """All of it, if others are sure to have the records; come back when there is a new disk."""
    world, machine = faults.world, faults.machines.by_id[node_id]
    for _ in range(MOMENTS):
        if faults.may_lose_bytes(node_id):
            break
        await asyncio.sleep(0.01)
    else:
        return
    machine.die("kill")
    faults.lost_bytes(node_id)
    _empty(machine)
    world.history.count("disks lost")
    await asyncio.sleep(for_s)
    for _ in range(MOMENTS):
        if machine.server is None:  # else it is about to refuse its start
            break
        await asyncio.sleep(0.001)
    rng = random.Random(f"{world.seed}:{LOST_DISK}:{for_s}")
    files = machine.disk.files()
    for path in machine.config.log_directories():
        files.make_dirs(path)
        owner = MetaProperties(machine.cluster_id, node_id, rng.randbytes(16))
        write_meta_properties(files, path, owner)
    world.loop.tell(machine.host, "has a new, formatted disk")


def _empty(machine: Machine) -> None:
    """Remove everything but a metadata log."""
    disk = machine.disk
    for name in list(disk.names):
        if not name.startswith(f"{METADATA_FOLDER}/"):
            disk.change("remove", name)
    for folder in sorted(disk.folders, reverse=True):
        if folder not in ("", DATA, METADATA_FOLDER):
            disk.change("remove_tree", folder)
    disk.sync_names()
    assert f"{DATA}/{META_PROPERTIES}" not in disk.names
