"""Disks that fail a sync, a write or reads, as faults of a plan; see `disk_trouble.py`.

Drawn by a chance of their own, so that the other faults of a seed stay what they are. In a cluster
a failed sync is a power failure of one machine: it strikes when others are sure to have what is
lost.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.cluster.faults import ClusterFaults
    from tidelog.simulation.disk_trouble import Trouble

FAILED_SYNC, FAILED_WRITE, FAILED_READ = "failed sync", "failed write", "failed read"
DISK_FAILURES = {FAILED_SYNC: 3, FAILED_WRITE: 1, FAILED_READ: 1}  # by weight
SEEDS_WITH_THEM = 0.25
ARMED_S = (0.5, 2.0)


def draw_disk_failures(seed: int | str, plan_s: float) -> list[tuple[float, str, float]]:
    """(when, kind, armed for so long), if a seed has them."""
    rng = random.Random(f"{seed}:failing disks")
    if rng.random() >= SEEDS_WITH_THEM:
        return []
    kinds = rng.choices(list(DISK_FAILURES), list(DISK_FAILURES.values()), k=rng.randint(1, 2))
    return [(rng.uniform(0.3, plan_s), kind, rng.uniform(*ARMED_S)) for kind in kinds]


async def fail_disk(trouble: Trouble, kind: str, for_s: float) -> None:
    """Let a disk fail at something, once or as long as it lasts."""
    match kind:
        case "failed sync":
            trouble.sync_fails = trouble.sync_fails or (lambda _path: True)
        case "failed write":
            trouble.write_fails = True
        case "failed read":
            trouble.read_fails = True
    await asyncio.sleep(for_s)
    trouble.calm()


async def fail_disk_of_member(faults: ClusterFaults, node_id: int, kind: str, for_s: float) -> None:
    """As `fail_disk`, when a cluster can bear it."""
    trouble = faults.machines.by_id[node_id].disk.trouble
    if kind == FAILED_SYNC:
        trouble.sync_fails = lambda _path: faults.may_lose_bytes(node_id)
        trouble.on_failed_sync = lambda: faults.lost_bytes(node_id)
    else:
        await faults.until_may_strike(node_id)
    await fail_disk(trouble, kind, for_s)
