"""Rot of the remote store: a bit of an object flips, or the object is cut or lost.

Kafka's formats show little of that; the manifests of tidelog's stores show all. The scrub of the
leader finds it, or a read, and copies the segment again: from the local log of a replica in sync,
or, if only an index is damaged, from itself. What no replica has locally any more comes back by
itself, as if only the store had not answered.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.tier_habits import has_tier
from sim.cluster.tier_truth import FINISHED
from sim.history import require
from tidelog_storage.remote.layout import LOG_ENDING, MANIFEST_ENDING
from tidelog_storage.remote.lineage import in_lineage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sim.history import Key
    from tidelog.simulation.disk import SimDisk
    from tidelog_storage.remote.api import RemoteSegment

REMOTE_ROT = "remote rot"
SEEDS_WITH_IT = 0.25  # of those with a remote tier
SCRUBS_MS = (300, 1000, 3000)
MOMENTS = 100
LOOK_S = 0.03
REPAIRED_S_MAX = 40.0
RECORDS = (LOG_ENDING, MANIFEST_ENDING)  # without these a segment does not help itself


def has_remote_rot(seed: int | str) -> bool:
    """Whether a seed has it; by a chance of its own."""
    chance = random.Random(f"{seed}:index and rust").random()  # by this name: no seed of old bugs
    return has_tier(seed) and chance < SEEDS_WITH_IT


def draw_remote_rot(seed: int | str, plan_s: float) -> list[float]:
    """When."""
    if not has_remote_rot(seed):
        return []
    rng = random.Random(f"{seed}:{REMOTE_ROT} plan")
    return [rng.uniform(1.5, plan_s) for _ in range(rng.randint(1, 4))]


def remote_rot_settings(seed: int | str) -> Mapping[str, str]:
    """Scrubs come often where they are needed."""
    if not has_remote_rot(seed):
        return {}
    rng = random.Random(f"{seed}:{REMOTE_ROT} scrubs")
    return {"log.scrub.interval.ms": str(rng.choice(SCRUBS_MS))}


class Target(NamedTuple):
    """An object of a finished segment."""

    key: Key
    segment: RemoteSegment
    path: str

    def __str__(self) -> str:
        return self.path

    @property
    def needs_copy(self) -> bool:
        """Whether the segment cannot be rebuilt from what is left of it."""
        return self.path.endswith(RECORDS)


class RemoteRot:
    """Damages of one world, one at a time."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self._is_striking = False

    async def strike(self, name: str) -> None:
        """Damage an object as soon as there is one; come back when its segment is whole."""
        rng = random.Random(f"{self.world.seed}:{name}")
        for _ in range(MOMENTS):
            targets = [] if self._is_striking else list(self._targets())
            if targets:
                break
            await asyncio.sleep(LOOK_S)
        else:
            return
        self._is_striking = True
        await self._damage(rng.choice(targets), rng)
        self._is_striking = False

    async def _damage(self, target: Target, rng: random.Random) -> None:
        world, disk = self.world, self.world.tier.weather.disk
        good = bytes(disk.names[target.path].data)
        how = _do(disk, target.path, rng)
        world.loop.tell(REMOTE_ROT, f"{how}: {target}")
        world.history.count(f"remote objects {how}")
        end_s = world.loop.time() + REPAIRED_S_MAX
        while self._counts(target.key, target.segment):
            require(world.loop.time() < end_s, f"{target} is {how}, and not copied again")
            if target.needs_copy and not self._holders(target.key, target.segment):
                _put_back(disk, target.path, good)
                world.loop.tell(REMOTE_ROT, f"{target} is back")
                world.history.count("remote objects that came back")
                return
            await asyncio.sleep(LOOK_S)
        world.history.count("remote objects copied again")

    # -- looking -----------------------------------------------------------------------------------

    def _targets(self) -> Iterator[Target]:
        checkers, image = self.world.tier.checkers, self.world.machines.image()
        objects: dict[str, list[str]] = {}
        for path in sorted(checkers.weather.disk.names):
            folder, _, name = path.rpartition("/")
            objects.setdefault(f"{folder}/{name.partition('.')[0]}", []).append(path)
        for key, segments in checkers.truth.segments.items():
            if image is None or image.topic_by_id(key[0]) is None:
                continue
            for segment in segments.values():
                if not self._counts(key, segment) or not self._is_led(key, segment):
                    continue
                is_held = bool(self._holders(key, segment))
                for path in objects.get(checkers.place(segment), ()):
                    target = Target(key, segment, path)
                    if is_held or not target.needs_copy:
                        yield target

    def _leaves(self, key: Key) -> bool:
        topic = self.world.history.topic(key[0])
        return topic is not None and (topic.state != "exists" or topic.loses_records)

    def _counts(self, key: Key, segment: RemoteSegment) -> bool:
        """Whether the segment is finished, and not to be deleted."""
        truth = self.world.tier.checkers.truth
        is_finished = truth.states[segment.segment_id] is FINISHED
        return is_finished and key not in truth.marked and not self._leaves(key)

    def _replicas(self, key: Key) -> Iterator[Any]:
        for _, partition in self.world.machines.partitions():
            if (partition.topic_id, partition.topic_partition.partition) == key:
                yield partition

    def _is_led(self, key: Key, segment: RemoteSegment) -> bool:
        """Whether a leader has the segment in its lineage, above its log start."""
        logs = [partition.log for partition in self._replicas(key) if partition.is_leader]
        return any(
            log.is_tiered
            and segment.start_offset >= log.log_start_offset
            and in_lineage(segment, log.epochs.entries, log.log_end_offset)
            for log in logs
        )

    def _holders(self, key: Key, segment: RemoteSegment) -> list[int]:
        """Brokers in sync that have the segment's records locally."""
        image = self.world.machines.image()
        topic = None if image is None else image.topic_by_id(key[0])
        if topic is None:
            return []
        isr = topic.partitions[key[1]].isr
        return [
            partition.node_id
            for partition in self._replicas(key)
            if partition.node_id in isr
            and partition.log.local_log_start_offset <= segment.start_offset
            and partition.log.high_watermark > segment.end_offset
        ]


def _do(disk: SimDisk, path: str, rng: random.Random) -> str:
    """Damage an object; what was done."""
    size = len(disk.names[path].data)
    how = rng.choice(("flipped", "cut", "lost")) if size else "lost"
    if how == "flipped":
        disk.flip(path, rng.randrange(size), rng.randrange(8))
    elif how == "cut":
        del disk.names[path].data[rng.randrange(size) :]
    else:
        disk.change("remove", path)
        disk.sync_names()
    return how


def _put_back(disk: SimDisk, path: str, good: bytes) -> None:
    """If the segment is still there."""
    files = disk.files()
    if not files.exists(path.rpartition("/")[0]):
        return
    file = files.open(path, create=True)
    file.truncate(0)
    file.append([good])
    file.fsync()
    file.close()
