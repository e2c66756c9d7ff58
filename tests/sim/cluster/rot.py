"""Bit rot: a disk returns other bytes than it was given, in the middle of what is committed.

One bit of a committed batch flips on one replica while all others are good, and no other fault that
takes bytes is about. The checksum does not cover a batch's offset, length and leader epoch, in
Kafka's format: see `header_rot.py`.

The broker may die at once (its recovery finds the damage, if it reads that far) or live with it: it
must not hand the damage on, and consumers and followers see it by the checksum. After a while an
operator repairs: stops the broker as soon as another one is in sync, sees that it is in sync no
more, and either takes the marks of the clean stop away, so that all is read and checked, or the
partition's folder.

No configuration tolerates that all others drop out of the in-sync replicas meanwhile, or are dead,
who is bad alone stays, and dies. The simulation is kind then: it was the disk's reading, all is
well again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.cluster.checkers import COMPACTED_TOPICS
from sim.cluster.in_sync_checkers import may_lead
from sim.history import require
from sim.raw_logs import DATA, read_log
from tidelog.simulation.machine import in_lane
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT

if TYPE_CHECKING:
    from sim.cluster.world import ClusterWorld
    from sim.history import PartitionHistory
    from sim.raw_logs import RawBatch
    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.machines import Machines

CHECKED_FROM = 16  # position in a batch: magic, checksum, and all that it covers
LOOK_S = 0.2
REPAIRED_S_MAX = 60.0


class Damage:
    """A batch that has gone bad on one machine."""

    def __init__(
        self, machine: Machine, topic: tuple[str, bytes], folder: str, good: RawBatch
    ) -> None:
        self.machine, self.folder, self.good = machine, folder, good
        self.name, self.topic_id = topic
        self.index = int(folder.rpartition("-")[2])
        self.is_in_header = False
        self._place = ("", 0, 0)
        self._bad = b""

    @property
    def node_id(self) -> int:
        """The broker on the machine."""
        return self.machine.config.node_id

    def do(self, path: str, at: int, bit: int) -> None:
        """Flip a bit, `at` so many bytes into the batch."""
        self._place = (path, at, bit)
        self.machine.disk.flip(path, self.good.position + at, bit)
        self._bad = self._bytes()
        self.is_in_header = at < CHECKED_FROM
        if self.is_in_header:  # no checksum says so
            self.machine.disk.names[path].rotten = (self.good.position, self._bad)

    def undo(self) -> bool:
        """Flip it back, if the bad bytes are still there."""
        path, at, bit = self._place
        if path not in self.machine.disk.names or self._bytes() != self._bad:
            return False
        self.machine.disk.flip(path, self.good.position + at, bit)
        return True

    def _bytes(self) -> bytes:
        start = self.good.position
        return bytes(self.machine.disk.names[self._place[0]].data[start:][: len(self.good.data)])

    def __str__(self) -> str:
        return f"{self.folder} at {self.good.header.base_offset} on {self.machine.host}"

    def is_of(self, node_id: int, topic_id: bytes, index: int) -> bool:
        """Whether it is in this replica."""
        mine = (self.node_id, self.topic_id, self.index)
        return mine == (node_id, topic_id, index)


def least_high_watermarks(machines: Machines) -> dict[tuple[bytes, int], int]:
    """The least high watermark of each partition: all its replicas that run have what is below."""
    ends: dict[tuple[bytes, int], int] = {}
    for _, partition in machines.partitions():
        key = (partition.topic_id, partition.topic_partition.partition)
        ends[key] = min(ends.get(key, 1 << 60), partition.log.high_watermark)
    return ends


class Rot:
    """At most one damage at a time."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.damage: Damage | None = None
        self._gone: list[Damage] = []  # by themselves

    def is_on(self, machine: Machine) -> bool:
        """Whether the machine has bad bytes, or had them until its broker recovers."""
        return self.damage is not None and self.damage.machine is machine

    def seen(self, node_id: int, partition: PartitionHistory) -> bool:
        """A client got bytes with a bad checksum: whether it may, from this replica."""
        damage = self.damage
        if damage is None or not damage.is_of(node_id, partition.topic.topic_id, partition.index):
            return False
        self.world.history.count("rot seen by consumers")
        return True

    def refuses(self, error: ErrorCode, node_id: int, partition: PartitionHistory) -> bool:
        """A client was refused by this replica: whether for its bad bytes.

        A batch whose last offset has rotted does not fit the offset that was asked for. A broker
        that knows of a damage does not serve it until it has read it again, and found it good.
        """
        if error is not ErrorCode.CORRUPT_MESSAGE:
            return False
        key = node_id, partition.topic.topic_id, partition.index
        return any(damage.is_of(*key) for damage in self._gone) or self.seen(node_id, partition)

    def explains(self, message: str) -> bool:
        """Whether a broker logs this of bad bytes: a coordinator does not load them, the cleaner
        does not copy them."""
        damage = self.damage
        if damage is None:
            return False
        place = f"{damage.name}-{damage.index}"
        return message.startswith((f"Loading {place} failed", f"{place} is not compacted any more"))

    def after_step(self) -> None:
        """Who has bad bytes is not left alone with them."""
        damage = self.damage
        if damage is None:
            return
        state = self._newest(damage)
        is_to_lead = state is not None and damage.is_in_header and state.leader == damage.node_id
        if is_to_lead or (state is not None and may_lead(state) == (damage.node_id,)):
            self._undo(damage)

    def before_death(self, machine: Machine) -> None:
        """What is bad goes when it is found: until the controller knows, nobody else may die."""
        if self.is_on(machine) and not self._is_gone_alone():
            self.world.checkers.in_sync.lost_records(machine.config.node_id)
            for other in self.world.machines:
                other.disk.calm()

    def _is_gone_alone(self) -> bool:
        """Whether all others in sync are dead already: then, too, it was the reading."""
        damage = self.damage
        state = None if damage is None else self._newest(damage)
        if damage is None or state is None:
            return False
        by_id = self.world.machines.by_id
        ready = {node_id for node_id, other in by_id.items() if other.is_ready}
        return not ready & set(may_lead(state)) - {damage.node_id} and self._undo(damage)

    def _undo(self, damage: Damage) -> bool:
        if not damage.undo():
            return False
        self._gone.append(damage)
        self.world.loop.tell("bit rot", "it was the reading")
        self.world.history.count("rot gone by itself")
        return True

    async def strike(self, node_id: int, amount: float, for_s: float) -> None:
        """Flip a bit on a broker's disk; come back when it is repaired."""
        rng = random.Random(f"{self.world.seed}:rot:{amount}")
        machine = self.world.machines.by_id[node_id]
        if self.damage is not None or not self.world.faults.may_lose_bytes(node_id):
            return
        damage = self._damage(machine, rng)
        if damage is None:
            return
        self.damage = damage
        self.world.loop.tell("bit rot", f"{damage}")
        self.world.history.count("bits flipped")
        if rng.random() < 0.5:
            machine.die("kill")
        await asyncio.sleep(for_s)
        end_s = self.world.loop.time() + REPAIRED_S_MAX
        while not self.is_good(damage):
            require(self.world.loop.time() < end_s, f"{damage} cannot be repaired")
            if self._may_repair(damage):
                await self._repair(damage, rng)
            await asyncio.sleep(LOOK_S)
        self.damage = None

    def _damage(self, machine: Machine, rng: random.Random) -> Damage | None:
        """Flip a bit of a batch that is committed, and that every replica has."""
        machines = self.world.machines
        ends = least_high_watermarks(machines)
        own_id = machine.config.node_id
        here = [partition for node_id, partition in machines.partitions() if node_id == own_id]
        choice = [  # what goes bad before it is copied is bad in the remote tier, and stays so
            (partition, batch)
            for partition in here
            if not partition.log.is_tiered
            for batch in read_log(machine.disk, partition.log.folder).batches()
            if partition.log.log_start_offset <= batch.header.base_offset
            and batch.header.last_offset
            < ends[partition.topic_id, partition.topic_partition.partition]
        ]
        if not choice:
            return None
        partition, batch = rng.choice(choice)
        folder = partition.log.folder
        base = max(
            base
            for base in read_log(machine.disk, folder).segments
            if base <= batch.header.base_offset
        )
        topic = (partition.topic_partition.topic, partition.topic_id)
        damage = Damage(machine, topic, folder, batch)
        at = rng.randrange(CHECKED_FROM, len(batch.data))
        damage.do(f"{folder}/{base:020d}.log", at, rng.randrange(8))
        return damage

    # -- repairs -----------------------------------------------------------------------------------

    def _newest(self, damage: Damage) -> PartitionImage | None:
        """What the controller last committed, as far as any broker has heard, dead or alive."""
        in_sync = self.world.checkers.in_sync
        return in_sync.memory(damage.topic_id, damage.index, damage.name).state

    def _state(self, damage: Damage) -> PartitionImage | None:
        image = self.world.machines.image()
        topic = None if image is None else image.topic_by_id(damage.topic_id)
        return None if topic is None else topic.partitions[damage.index]

    def is_good(self, damage: Damage) -> bool:
        """Whether the replica has the batch as it was, or needs it no more."""
        state = self._state(damage)
        if state is None or damage.node_id not in state.replicas:
            return True
        log = read_log(damage.machine.disk, damage.folder)
        offset = damage.good.header.base_offset
        if log.segments and min(log.segments) > offset:
            return True  # deleted
        users = self.world.checkers.compacted
        is_compacted = damage.name in COMPACTED_TOPICS or damage.topic_id in users
        is_whole = is_compacted and not any(log.torn.values())
        if is_whole or any(batch.data == damage.good.data for batch in log.batches()):
            self.world.history.count("rot repaired")
            return True
        return False

    def _may_repair(self, damage: Damage) -> bool:
        """Whether the broker can be stopped, and another one is in sync and lives."""
        machine, state = damage.machine, self._state(damage)
        ready = {node for node, other in self.world.machines.by_id.items() if other.is_ready}
        others = ready - {damage.node_id}
        return machine.is_ready and state is not None and bool(others & set(state.isr))

    async def _repair(self, damage: Damage, rng: random.Random) -> None:
        """Stop the broker; what it reads at its next start is checked, or gone."""
        machine = damage.machine
        if not await in_lane("test", machine.stop()) or machine.server is not None:
            return
        state = self._newest(damage)
        if state is None or damage.node_id in may_lead(state):
            return  # others may have died meanwhile, and this one is to lead
        disk = machine.disk
        if rng.random() < 0.5:
            disk.change("remove", f"{DATA}/{CLEAN_SHUTDOWN_MARKER}")
            disk.change("remove", f"{DATA}/{RECOVERY_POINT_CHECKPOINT}")
        else:
            disk.change("remove_tree", damage.folder)
        disk.sync_names()
