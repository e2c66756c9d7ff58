"""Rot of batch headers: a bit of a batch's base offset, length or leader epoch flips.

The checksum covers none of these: only the neighbouring batches show the damage. A follower's scrub
finds it and repairs it from another in-sync replica, whatever happens meanwhile; no operator helps.
Until then its consumers could get wrong offsets (in Kafka, too): here their reads get no response.
If the replica is to lead, the bit flips back, as if only a read had failed.

The batch lies below the recovery point: a recovery after a crash goes by checksums.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.checkers import COMPACTED_TOPICS
from sim.cluster.rot import LOOK_S, REPAIRED_S_MAX, Damage, least_high_watermarks
from sim.history import require
from sim.raw_logs import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.cluster.faults import ClusterFaults
    from sim.raw_logs import RawBatch

HEADER_ROT = "header rot"
SEEDS_WITH_IT = 0.08
SCRUBS_MS = (300, 1000)
MOMENTS = 1000
MAGIC_AT = 16  # behind the fields that no checksum covers


def has_header_rot(seed: int | str) -> bool:
    """Whether a seed has it; by a chance of its own."""
    chance = random.Random(f"{seed}:unchecked bits").random()  # no later seed of old bugs
    return chance < SEEDS_WITH_IT


def draw_header_rot(seed: int | str, brokers: int, plan_s: float) -> list[tuple[float, int]]:
    """(when, whose)."""
    if brokers < 3 or not has_header_rot(seed):
        return []
    rng = random.Random(f"{seed}:{HEADER_ROT} plan")
    return [(rng.uniform(1.5, plan_s), rng.randint(1, brokers)) for _ in range(rng.randint(1, 3))]


def header_rot_settings(seed: int | str) -> Mapping[str, str]:
    """Scrubs come often where they are needed."""
    if not has_header_rot(seed):
        return {}
    rng = random.Random(f"{seed}:{HEADER_ROT} scrubs")
    return {"log.scrub.interval.ms": str(rng.choice(SCRUBS_MS))}


async def strike_header(faults: ClusterFaults, node_id: int, name: str) -> None:
    """Flip a bit as soon as the others are sure to have the batch; come back when it is good."""
    world = faults.world
    if world.file_rot.is_on:
        return  # a start without recovery points reads all, by checksums
    rng = random.Random(f"{world.seed}:{name}")
    damage = None
    for _ in range(MOMENTS):
        if world.rot.damage is None and faults.may_lose_bytes(node_id):
            damage = _damage(faults, node_id, rng)
        if damage is not None:
            break
        await asyncio.sleep(0.01)
    if damage is None:
        return
    world.rot.damage = damage
    world.loop.tell(HEADER_ROT, f"{damage}")
    world.history.count("headers rotted")
    world.observer.distrusted.add(damage.machine.host)
    end_s = world.loop.time() + REPAIRED_S_MAX
    while not world.rot.is_good(damage):
        require(world.loop.time() < end_s, f"{damage} is not repaired")
        await asyncio.sleep(LOOK_S)
    world.rot.damage = None
    world.observer.distrusted.remove(damage.machine.host)


def _damage(faults: ClusterFaults, node_id: int, rng: random.Random) -> Damage | None:
    machine = faults.machines.by_id[node_id]
    found = list(_choice(faults, node_id))
    if not found:
        return None
    partition, base, batch = rng.choice(found)
    topic = (partition.topic_partition.topic, partition.topic_id)
    damage = Damage(machine, topic, partition.log.folder, batch)
    path = f"{partition.log.folder}/{base:020d}.log"
    damage.do(path, rng.randrange(MAGIC_AT), rng.randrange(8))
    return damage


def _choice(faults: ClusterFaults, node_id: int) -> Iterator[tuple[Any, int, RawBatch]]:
    """Batches of sealed segments here that all replicas have, and each one's segment."""
    machines = faults.machines
    ends = least_high_watermarks(machines)
    compacted = faults.world.checkers.compacted
    for node, partition in machines.partitions():
        if node != node_id or partition.is_leader or partition.log.is_tiered:
            continue
        log, (topic, index) = partition.log, partition.topic_partition
        if topic in COMPACTED_TOPICS or partition.topic_id in compacted:
            continue
        end = min(ends[partition.topic_id, index], log.recovery_point)
        raw = read_log(machines.by_id[node_id].disk, log.folder)
        for base in sorted(raw.segments)[:-1]:
            for batch in raw.segments[base]:
                is_kept = log.log_start_offset <= batch.header.base_offset
                if is_kept and batch.header.last_offset < end:
                    yield partition, base, batch
