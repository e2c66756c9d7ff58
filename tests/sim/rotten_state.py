"""A play: what a follower needs of the remote tier has rotted while the follower was away.

It comes back behind the leader's local log start. So it begins with the leader epochs and producers
that lie beside a remote segment. They are damaged, and no scrub is near: the leader has to hear of
it, and to copy the segment again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from sim.history import require
from tidelog.simulation.application import Plan, Simulation, play

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition
    from tidelog.simulation.machine import Machine

TOPIC = ("orders", 0)
ENDINGS = (".snapshot", ".leader-epoch-checkpoint")
ROUNDS = 4
PAUSE_S = 1.5  # a segment is as short
BEGUN_S_MAX = 60.0
SETTINGS = (("num.partitions", "1"),)


def run_rotten_state(seed: int) -> None:
    """Play it once."""
    verdict = play(_live, Plan(seed, 3, (), SETTINGS, tiered=True))
    require(verdict.failure is None, f"{verdict.failure}")


async def _live(simulation: Simulation) -> None:
    world, rng = simulation._world, random.Random(f"{simulation.seed}:rotten state")
    async with AIOKafkaProducer(
        bootstrap_servers=simulation.bootstrap_servers, enable_idempotence=True
    ) as producer:
        await producer.send_and_wait(TOPIC[0], b"before")
        away = rng.choice([one for one in world.machines if not _replica(world, one).is_leader])
        world.take_down(away, "kill")
        for number in range(ROUNDS):
            await producer.send_and_wait(TOPIC[0], b"%d" % number)
            await asyncio.sleep(PAUSE_S)
    leader = await _led_from_the_tier(world)
    _rot(world, leader.log.local_log_start_offset, rng)
    world.bring_up(away)
    is_whole = await world.is_whole_within(BEGUN_S_MAX)
    require(is_whole, "a follower cannot begin behind a damaged segment, and nothing repairs it")
    follower = _replica(world, away)
    require(
        follower.log.epochs.entries == leader.log.epochs.entries,
        f"epochs {follower.log.epochs.entries} are not the leader's {leader.log.epochs.entries}",
    )
    known = [sorted(one.log.producers.producers) for one in (follower, leader)]
    require(known[0] == known[1], f"producers {known[0]} are not the leader's {known[1]}")


def _replica(world: Any, machine: Machine) -> Partition:
    for node_id, partition in world.machines.partitions():
        if world.machines.by_id[node_id] is machine and partition.topic_partition == TOPIC:
            return partition
    raise AssertionError(f"{machine.host} has no replica")


async def _led_from_the_tier(world: Any) -> Partition:
    """The leader, once it has nothing locally of what was written before."""
    for _ in range(200):
        await asyncio.sleep(0.1)
        for _, partition in world.machines.partitions():
            if partition.topic_partition == TOPIC and partition.is_leader:
                log = partition.log
                if log.local_log_start_offset == log.log_end_offset:
                    return partition
    raise AssertionError("the leader keeps its records")


def _rot(world: Any, before: int, rng: random.Random) -> None:
    """Damage an object beside the last segment that ends before this offset."""
    disk, ending = world.store.disk, rng.choice(ENDINGS)
    path = max(name for name in disk.names if f"/{TOPIC[0]}-0-" in name and name.endswith(ending))
    require(int(path.rpartition("/")[2][:20]) < before, "the follower needs it")
    data = disk.names[path].data
    if rng.random() < 0.5:
        del data[len(data) - 1 :]
    else:
        disk.flip(path, rng.randrange(len(data)), rng.randrange(8))
