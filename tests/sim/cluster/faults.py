"""Faults of a cluster: a plan drawn from the seed, and what each word of it does.

A power failure is only what the configuration tolerates: it takes the unsynced end of a log, so it
strikes when every partition is in sync on all its brokers, nobody is cut off, and no other machine
lost power since then; else it is a kill. Until the controller knows of its new life, nothing else
happens that would take others out of the in-sync replicas: for the controller, who is killed is as
bad as who loses power, and may be the one that keeps the records. Kills lose nothing written, and
else may come at any moment to anybody.

A plan has faults of two sorts: single ones, and `sequences.py`'s. Somebody writes all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, NamedTuple

from sim.cluster.copied_disks import COPIED_DISK, copy_disk, draw_copied_disks
from sim.cluster.file_rot import FILE_ROT
from sim.cluster.header_rot import HEADER_ROT, draw_header_rot, strike_header
from sim.cluster.lost_disks import LOST_DISK, draw_lost_disks, lose_disk
from sim.cluster.machine_faults import MACHINE_FAULTS, draw_machine_faults, strike_machine
from sim.cluster.metadata_rot import METADATA_ROT, draw_metadata_rot
from sim.cluster.rare_plays import RARE, draw_rare, play_rare
from sim.cluster.remote_rot import REMOTE_ROT, draw_remote_rot
from sim.cluster.sequences import SEQUENCES, Play
from sim.cluster.strangers import STRANGERS, draw_strangers, play_stranger
from sim.cluster.tier_habits import STORE_FAULTS, draw_store_faults, has_tier
from sim.cluster.transactions_plays import PLAYS, draw_plays, play
from sim.cluster.work.seeds import WORK_FAULTS, draw_work_faults
from sim.cluster.writers import SteadyIdempotent, SteadyPlain
from sim.failing_disks import DISK_FAILURES, draw_disk_failures, fail_disk_of_member
from sim.faults import CALM_NETWORK_S
from sim.history import require
from tidelog.simulation.disk import NAMES_APART
from tidelog.simulation.machine import CALM_DISK_S
from tidelog.simulation.machines import host_of
from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sim.cluster.world import ClusterWorld
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.network import Link

PLAN_S = 7.0
SINGLE_FAULTS = (6, 18)
SKEW_MS_MAX = 60_000
SEQUENCES_IN_A_PLAN = (2, 5)
BROKERS = (1, 1, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5, 6, 7)  # in a run, by weight
WRITTEN_S_MAX = 60.0
OVER_S_MAX = 120.0  # every fault is over that long after the last one began


class ClusterFault(NamedTuple):
    """What happens to broker `node` (or to it and others) at `at_s`."""

    at_s: float
    kind: str
    node: int
    amount: float
    for_s: float

    def __str__(self) -> str:
        return (
            f"{self.at_s:.3f} s {self.kind} of {self.node}, {self.amount:g} for {self.for_s:.3f} s"
        )


# kind: weight, smallest and largest amount, longest time
KINDS: dict[str, tuple[int, float, float, float]] = {
    "kill": (4, 0, 0, 0),
    "kill leader": (2, 0, 0, 0),  # of the quorum
    "kill inside": (3, 1, 80, 0),  # file operations until then
    "power failure": (3, 0, 0, 0),
    "restart": (3, 0, 0, 0),
    "pause": (3, 0, 0, 4),
    "isolate": (3, 0, 0, 4),  # from all other brokers and clients
    "cut from brokers": (3, 0, 0, 4),  # clients still reach it
    "cut one way": (3, 0, 1, 4),  # amount below 0.5: nothing gets out; else nothing gets in
    "cut one link": (3, 0, 1, 4),  # to the broker that the amount chooses
    "slow disk": (2, 0.02, 0.3, 3),  # seconds a sync takes at most
    "full disk": (1, 0, 4_000, 2),  # bytes that still fit
    "reset": (3, 1, 8, 0),  # connections
    "clock jump": (1, -SKEW_MS_MAX / 4, SKEW_MS_MAX / 4, 0),  # milliseconds
    "slow network": (2, 0.01, 0.2, 3),  # seconds a write travels at most
    "slow link": (2, 0.05, 0.6, 4),  # seconds that a write travels from here to another broker
    "elect preferred": (2, 0, 0, 0),
    "bit rot": (3, 0, 1, 3),  # until somebody repairs it
}


# A slow link is none of these: fetches over it may be further apart than replicas may lag.
QUIET = frozenset(
    {"bit rot", "clock jump", "elect preferred", "reset", "slow disk", "slow network"}
)
DISTURBING = frozenset(KINDS) - QUIET - {"kill leader", "power failure"}

FAULTS = (
    *KINDS,
    *DISK_FAILURES,
    *MACHINE_FAULTS,
    *SEQUENCES,
    *PLAYS,
    *RARE,
    *STRANGERS,
    *STORE_FAULTS,
    *WORK_FAULTS,
    LOST_DISK,
    METADATA_ROT,
    HEADER_ROT,
    REMOTE_ROT,
    COPIED_DISK,
    FILE_ROT,
    NAMES_APART,
)
"""All that a run of a cluster may have, as `docs/faults.md` lists them."""


def brokers_of(seed: int | str) -> int:
    """How many brokers a seed's run has, unless somebody says."""
    return random.Random(f"{seed}:brokers").choice(BROKERS)


def draw_cluster_plan(seed: int | str, brokers: int) -> list[ClusterFault]:
    """The faults of a seed, by time."""
    rng = random.Random(f"{seed}:faults")
    kinds, weights = list(KINDS), [row[0] for row in KINDS.values()]
    plan = []
    for _ in range(rng.randint(*SINGLE_FAULTS)):
        kind = rng.choices(kinds, weights)[0]
        _, low, high, longest = KINDS[kind]
        at_s, node = rng.uniform(0.1, PLAN_S), rng.randint(1, brokers)
        amount = round(rng.uniform(low, high), 3)
        plan.append(ClusterFault(at_s, kind, node, amount, rng.uniform(0.2, 1) * longest))
    if has_tier(seed):
        plan += draw_weather(seed)
        plan += [ClusterFault(at_s, REMOTE_ROT, 1, 0, 0) for at_s in draw_remote_rot(seed, PLAN_S)]
    plan += [ClusterFault(*one) for one in draw_machine_faults(seed, brokers, PLAN_S)]
    return sorted(plan + _draw_sequences(seed, brokers) + _draw_disk_failures(seed, brokers))


def _draw_disk_failures(seed: int | str, brokers: int) -> list[ClusterFault]:
    rng = random.Random(f"{seed}:machines of failing disks")
    return [
        ClusterFault(at_s, kind, rng.randint(1, brokers), 0, for_s)
        for at_s, kind, for_s in draw_disk_failures(seed, PLAN_S)
    ]


def draw_weather(seed: int | str) -> list[ClusterFault]:
    """What the remote store does, if there is one."""
    return [
        ClusterFault(at_s, kind, 1, amount, for_s)
        for at_s, kind, amount, for_s in draw_store_faults(seed, PLAN_S)
    ]


def _draw_sequences(seed: int | str, brokers: int) -> list[ClusterFault]:
    """By a chance of their own, so that the single faults of a seed stay what they are."""
    if brokers < 3:
        return []  # nobody may be missed
    rng = random.Random(f"{seed}:sequences")
    kinds = rng.choices(
        list(SEQUENCES), list(SEQUENCES.values()), k=rng.randint(*SEQUENCES_IN_A_PLAN)
    )
    return (
        [
            ClusterFault(rng.uniform(0.1, PLAN_S), kind, rng.randint(1, brokers), 0, 0)
            for kind in kinds
        ]
        + [
            ClusterFault(at_s, kind, rng.randint(1, brokers), 0, 0)
            for at_s, kind in draw_plays(seed, PLAN_S)
        ]
        + [
            ClusterFault(at_s, METADATA_ROT, node, 0, for_s)
            for at_s, node, for_s in draw_metadata_rot(seed, brokers, PLAN_S)
        ]
        + [
            ClusterFault(at_s, kind, rng.randint(1, brokers), 0, 0)
            for at_s, kind in draw_rare(seed, PLAN_S)
        ]
        + [
            ClusterFault(at_s, LOST_DISK, node, 0, for_s)
            for at_s, node, for_s in draw_lost_disks(seed, brokers, PLAN_S)
        ]
        + [
            ClusterFault(at_s, kind, rng.randint(1, brokers), 0, 0)
            for at_s, kind in draw_strangers(seed, PLAN_S)
        ]
        + [
            ClusterFault(at_s, kind, rng.randint(1, brokers), 0, 0)
            for at_s, kind in draw_work_faults(seed, PLAN_S)
        ]
        + [
            ClusterFault(at_s, HEADER_ROT, node, 0, 0)
            for at_s, node in draw_header_rot(seed, brokers, PLAN_S)
        ]
        + [ClusterFault(at_s, COPIED_DISK, 1, 0, 0) for at_s in draw_copied_disks(seed, PLAN_S)]
    )


class ClusterFaults:
    """Brings a plan about, several faults at a time."""

    def __init__(self, world: ClusterWorld, plan: Sequence[ClusterFault]) -> None:
        self.world, self.machines, self.plan = world, world.machines, plan
        self.done: dict[str, int] = {}
        self._without_power: set[int] = set()  # and not yet caught up again
        self._cut_off: list[int] = []  # brokers that cannot do their part now

    async def run(self) -> None:
        """All of the plan; afterwards everything is as good as new."""
        loop = self.world.loop
        start_s = loop.time()
        writers = [
            SteadyIdempotent(self.world, "idempotent-steady"),
            SteadyPlain(self.world, "plain-steady"),
        ]
        writing = []
        if self.plan:
            self.world.clients += [writer.name for writer in writers]
            writing = [self.world.spawn(writer.name, writer.run()) for writer in writers]
        ends: list[asyncio.Task[None]] = []
        for fault in self.plan:
            await asyncio.sleep(max(0.0, start_s + fault.at_s - loop.time()))
            loop.tell("fault", str(fault))
            self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
            ends.append(asyncio.get_running_loop().create_task(self._do(fault)))
        if ends:
            _, late = await asyncio.wait(
                ends, timeout=OVER_S_MAX, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in ends:
                if task.done():
                    task.result()
            require(not late, f"{len(late)} faults last longer than {OVER_S_MAX:g} s")
        self._calm()
        for writer in writers:
            writer.is_stopped = True
        if writing:
            _, late = await asyncio.wait(writing, timeout=WRITTEN_S_MAX)
            require(not late, f"a write is not done {WRITTEN_S_MAX:g} s after the last fault")

    def _calm(self) -> None:
        self.machines.network.latency_s = CALM_NETWORK_S
        self.machines.network.slow_links.clear()
        self.world.tier.calm()
        for machine in self.machines:
            machine.disk_delay_s = CALM_DISK_S
            machine.disk.capacity_bytes = None
            machine.disk.calm()

    # -- what the configuration tolerates ----------------------------------------------------------

    def may_strike(self, node_id: int) -> bool:
        """Whether this broker may be missed, or restart, now."""
        return not set(self.world.checkers.in_sync.unnoticed()) - {node_id}

    async def until_may_strike(self, node_id: int) -> None:
        """Wait for it, some seconds at most."""
        for _ in range(1000):
            if self.may_strike(node_id):
                return
            await asyncio.sleep(0.01)

    def keeps_quorum(self, node_id: int) -> bool:
        """Whether a majority of the voters is left if this broker, too, is missing for long.

        Who is away comes back when a controller has done something, and who has a rotten metadata
        log when there is a controller to copy it from. One voter less may be one too few.
        """
        if self.world.are_voters_in_doubt:
            return False
        rotten = self.world.metadata_rot.machine
        missing = {node_id, *self.world.away}
        if rotten is not None:
            missing.add(rotten.config.node_id)
        image = self.machines.image()
        voters = [each.node_id for each in image.voters] if image is not None else []
        voters = voters or list(range(1, self.machines.voters + 1))
        return 2 * sum(voter not in missing for voter in voters) > len(voters)

    def cut_off(self, node_id: int) -> contextlib.AbstractContextManager[None]:
        """While this lasts, no other machine loses its power."""

        @contextlib.contextmanager
        def counted() -> Iterator[None]:
            self._cut_off.append(node_id)
            try:
                yield
            finally:
                self._cut_off.remove(node_id)

        return counted()

    # -- single faults -----------------------------------------------------------------------------

    async def _do(self, fault: ClusterFault) -> None:
        if fault.kind in DISTURBING:
            await self.until_may_strike(fault.node)
        machine = self.machines.by_id[fault.node]
        match fault.kind:
            case "kill":
                machine.die("kill")
            case "kill leader":
                leader = self.machines.controller() or fault.node
                await self.until_may_strike(leader)
                self.machines.by_id[leader].die("kill")
            case "kill inside":
                machine.disk.die_at = machine.disk.operations + int(fault.amount)
            case "power failure":
                self.power_failure(fault.node)
            case "restart":
                if machine.is_ready:
                    with self.cut_off(fault.node):
                        await machine.stop()
            case "reset":
                for index in range(int(fault.amount)):
                    self.machines.network.reset(index * 7)
            case "clock jump":
                skew_ms = machine.clock.skew_ms + int(fault.amount)
                machine.clock.skew_ms = max(-SKEW_MS_MAX, min(SKEW_MS_MAX, skew_ms))
            case "elect preferred":
                await self._elect(fault.node)
            case "bit rot":
                await self.world.rot.strike(fault.node, fault.amount, fault.for_s)
            case "lost disk":
                await lose_disk(self, fault.node, fault.for_s)
            case "metadata rot":
                await self.world.metadata_rot.strike(fault.node, fault.for_s)
            case "header rot":
                await strike_header(self, fault.node, str(fault))
            case "remote rot":
                await self.world.remote_rot.strike(str(fault))
            case "copied disk":
                await copy_disk(self, str(fault))
            case "pause":
                await self.pause(fault.node, fault.for_s)
            case "slow disk" | "full disk" | "slow network" | "slow link":
                await self._slow(machine, fault)
            case kind if kind in DISK_FAILURES:
                await fail_disk_of_member(self, fault.node, kind, fault.for_s)
            case kind if kind in MACHINE_FAULTS:
                await strike_machine(self, kind, fault.node, fault.amount, fault.for_s)
            case kind if kind in SEQUENCES:
                await self._play(fault)
            case kind if kind in STORE_FAULTS:
                await self.world.tier.strike(fault)
            case kind if kind in WORK_FAULTS:
                await self.world.work.play(self, kind, str(fault))
            case kind if kind in STRANGERS:
                await play_stranger(self, kind, fault.node, str(fault))
            case kind if kind in RARE:
                await play_rare(self, kind, str(fault))
            case kind if kind in PLAYS:
                transactions = play(self, str(fault))
                if transactions is not None:
                    await transactions.run(kind)
            case _:
                await self._cut(fault)

    async def _play(self, fault: ClusterFault) -> None:
        topics = [topic for topic in self.world.base_topics if topic.state == "exists"]
        rng = random.Random(f"{self.world.seed}:{fault}")
        topic = rng.choice(topics)
        target = topic.partition(rng.randrange(topic.partitions_min))
        await Play(self, str(fault), target).run(fault.kind)

    # -- power -------------------------------------------------------------------------------------

    def power_failure(self, node_id: int) -> None:
        """Lose the unsynced, if others are sure to have it."""
        if not self.may_lose_bytes(node_id):
            if self.may_strike(node_id):
                self.machines.by_id[node_id].die("kill")
            return
        self.lost_bytes(node_id)
        self.machines.by_id[node_id].die("power")
        self.world.history.count("power failures")

    def lost_bytes(self, node_id: int) -> None:
        """A machine's disk loses bytes: until it has them again, no other's may."""
        self._without_power.add(node_id)
        self.world.checkers.in_sync.lost_records(node_id)
        for machine in self.machines:
            machine.disk.calm()

    def may_lose_bytes(self, node_id: int) -> bool:
        """Whether others are sure to have what this machine loses."""
        is_whole = self.is_whole()
        if is_whole:
            self._without_power.clear()
        damage = self.world.rot.damage
        alone = damage is None or damage.machine is self.machines.by_id[node_id]
        alone = alone and self.world.metadata_rot.machine is None  # it may be long in coming back
        others = {*self._without_power, *self._cut_off} - {node_id}
        return is_whole and alone and not others

    def is_whole(self) -> bool:
        """Every replica is in sync, as its leader and the controller have it, and no change of
        that is under way."""
        image = self.machines.image()
        servers = dict(self.machines.servers())
        if image is None or len(servers) < len(self.machines.by_id):
            return False
        for node_id, server in servers.items():
            broker = image.brokers.get(node_id)
            if broker is None or broker.fenced or broker.epoch != server.membership.broker_epoch:
                return False
        for topic in image.topics.values():
            for state in topic.partitions:
                if sorted(state.isr) != sorted(state.replicas) or state.leader not in servers:
                    return False
                key = TopicPartition(topic.name, state.partition)
                leader = servers[state.leader].replicas.hosted(key)
                if leader is None or not leader.is_leader or leader.pending_change is not None:
                    return False
                if leader.leader_epoch != state.leader_epoch:
                    return False
                if sorted(leader.isr) != sorted(state.replicas):
                    return False
        return len(self.machines.by_id) > 1

    # -- for a while -------------------------------------------------------------------------------

    async def pause(self, node_id: int, for_s: float) -> None:
        """A broker stands still."""
        lane, loop = self.machines.by_id[node_id].lane, self.world.loop
        with self.cut_off(node_id):
            loop.pause_lane(lane)
            await asyncio.sleep(for_s)
            loop.resume_lane(lane)

    async def _slow(self, machine: Machine, fault: ClusterFault) -> None:
        network = self.machines.network
        match fault.kind:
            case "slow disk":
                machine.disk_delay_s = (fault.amount / 4, fault.amount)
            case "full disk":
                machine.disk.capacity_bytes = machine.disk.used_bytes() + int(fault.amount)
            case "slow network":
                network.latency_s = (fault.amount / 10, fault.amount)
            case "slow link":
                slow = (fault.amount / 10, fault.amount)
                network.slow_links |= dict.fromkeys(self._slow_links(fault), slow)
        await asyncio.sleep(fault.for_s)
        match fault.kind:
            case "slow disk":
                machine.disk_delay_s = CALM_DISK_S
            case "full disk":
                machine.disk.capacity_bytes = None
            case "slow network":
                network.latency_s = CALM_NETWORK_S
            case "slow link":
                for link in self._slow_links(fault):
                    network.slow_links.pop(link, None)

    def _slow_links(self, fault: ClusterFault) -> list[tuple[str, str]]:
        """Both ways to every second of the other brokers: messages overtake each other."""
        here = host_of(fault.node)
        others = [host_of(node) for node in self.machines.by_id if (node + fault.node) % 2]
        return [link for other in others for link in ((here, other), (other, here))]

    async def _cut(self, fault: ClusterFault) -> None:
        links = self._links(fault)
        with self.cut_off(fault.node):
            self.machines.network.cut(links)
            await asyncio.sleep(fault.for_s)
            self.machines.network.heal(links)

    def _links(self, fault: ClusterFault) -> list[Link]:
        here = host_of(fault.node)
        brokers = [host_of(node) for node in self.machines.by_id if node != fault.node]
        if not brokers:
            return []
        everybody = brokers + self.world.clients if fault.kind == "isolate" else brokers
        if fault.kind == "cut one link":
            everybody = [brokers[int(fault.amount * len(brokers)) % len(brokers)]]
        out: list[Link] = [(here, other) for other in everybody]
        back: list[Link] = [(other, here) for other in everybody]
        if fault.kind == "cut one way":
            return out if fault.amount < 0.5 else back
        return out + back

    async def _elect(self, node_id: int) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000)
        await self.world.ask_in_vain(node_id, request, 2)
