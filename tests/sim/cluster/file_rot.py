"""Rot of derived files: indexes, producer snapshots and checkpoints, while a broker is down.

Between two lives of a broker some of these files lose a bit, their end, all their bytes, or
themselves. The records are whole: they, and the remote tier, tell what the files told. So nothing
may be lost by it, and no client may see it. A checkpoint has no checksum, so that a wrong digit in
it passes: checkpoints are cut, emptied or removed only.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.raw_logs import DATA

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld
    from tidelog.simulation.disk import SimDisk
    from tidelog.simulation.machine import Machine

FILE_ROT = "rot of files"
SEEDS_WITH_IT = 0.2
STRIKES = 0.6  # of the pauses between two lives
FILES_MAX = 6
INDEXES = (".index", ".timeindex", ".txnindex")
SNAPSHOT = ".snapshot"
EPOCHS = "leader-epoch-checkpoint"
LOG_STARTS = f"{DATA}/log-start-offset-checkpoint"
CHECKPOINTS = (
    f"{DATA}/replication-offset-checkpoint",
    LOG_STARTS,
    f"{DATA}/cleaner-offset-checkpoint",
)
RECOVERY_POINTS = f"{DATA}/recovery-point-offset-checkpoint"


class FileRot:
    """The rot of one run, if its seed has it."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self._rng = random.Random(f"{world.seed}:{FILE_ROT}")
        self.is_on = self._rng.random() < SEEDS_WITH_IT

    def between_lives(self, machine: Machine) -> None:
        """The broker is down: damage some files."""
        rng = self._rng
        if not self.is_on or self.world.is_quiet or rng.random() >= STRIKES:
            return
        found = list(self._choice(machine.disk))
        picked = rng.sample(found, min(len(found), rng.randint(1, FILES_MAX)))
        starts_are_lost = any(path == LOG_STARTS for path, _ in picked)
        for path, ways in picked:
            way = rng.choice(ways)
            if starts_are_lost and path.endswith(EPOCHS):
                continue  # nothing else here tells where the records begin that were not deleted
            self.world.loop.note(f"{FILE_ROT}: {way} {path} on {machine.host}")
            self.world.history.count(f"files damaged: {way}")
            damage(machine.disk, path, way, rng)

    def _choice(self, disk: SimDisk) -> list[tuple[str, tuple[str, ...]]]:
        """The files that may be damaged, and how."""
        found: list[tuple[str, tuple[str, ...]]] = []
        for path in sorted(disk.names):
            folder, _, name = path.rpartition("/")
            topic = folder.removeprefix(f"{DATA}/").rpartition("-")[0]
            if path in CHECKPOINTS:
                found.append((path, ("cut", "empty", "remove")))
            elif path == RECOVERY_POINTS:
                found.append((path, ("empty", "remove")))
            elif not topic or "/" in topic or topic == "__cluster_metadata":
                continue
            elif name.endswith(INDEXES):
                found.append((path, ("flip", "cut", "empty", "remove")))
            elif self._has_all_records(disk, folder):
                if name.endswith(SNAPSHOT):
                    found.append((path, ("flip", "cut", "empty", "remove")))
                elif name == EPOCHS:
                    found.append((path, ("cut", "empty", "remove")))
        return found

    def _has_all_records(self, disk: SimDisk, folder: str) -> bool:
        """Whether what is here can tell all: nothing is remote or deleted."""
        return f"{folder}/{0:020d}.log" in disk.names


def damage(disk: SimDisk, path: str, way: str, rng: random.Random) -> None:
    """Let a file rot, in one of four ways."""
    if way == "remove":
        disk.change("remove", path)
        disk.sync_names()
        return
    inode = disk.names[path]
    data = inode.data
    if way == "flip" and data:
        disk.flip(path, rng.randrange(len(data)), rng.randrange(8))
    elif way != "flip":
        del data[rng.randrange(len(data)) if way == "cut" and data else 0 :]
        del inode.durable[len(data) :]
        inode.synced = min(inode.synced, len(data))
