"""Faults that belong together: what has to happen, in this order, for a mistake to show.

A single fault at a random moment seldom meets the few milliseconds in which an election, a join or
a commit is under way. Here each play waits for its moment (it looks into the brokers, as a
debugger's breakpoint would) and strikes then; who, how often and how long is the seed's.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from sim.cluster.writers import Scribe
from tidelog.cluster.quorum.core import Role
from tidelog.cluster.quorum.events import NO_NODE
from tidelog.simulation.machine import PORT
from tidelog.simulation.machines import host_of
from tidelog_protocol.messages.cluster_admin import ElectLeadersRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sim.cluster.faults import ClusterFaults
    from sim.history import PartitionHistory
    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.replication.partition import Partition
    from tidelog.simulation.network import Link

LOOK_S = 0.003
LEADERLESS_S_MAX = 4.0  # a session ends, and somebody is elected
LAG_S = (2.1, 3.6)  # replica.lag.time.max.ms is 2 s, looked at every second

SEQUENCES: dict[str, int] = {  # by weight
    "commit and kill": 3,
    "elections in a row": 3,
    "zombie leader": 4,
    "follower lags": 4,
    "leader alone": 2,
    "late proposal": 4,
    "vote and die": 3,
    "append and die": 2,
    "lead and lose power": 1,
}


class Play:
    """One sequence, on one partition."""

    def __init__(self, faults: ClusterFaults, name: str, target: PartitionHistory) -> None:
        self.faults, self.world, self.machines = faults, faults.world, faults.machines
        self.rng = random.Random(f"{self.world.seed}:{name}")
        self.target = target
        self.scribe = Scribe(self.world, f"scribe-{len(self.world.clients)}")
        self._writing: list[asyncio.Task[Any]] = []

    async def run(self, kind: str) -> None:
        """The whole of it; what it cut is healed afterwards."""
        await getattr(self, "_" + kind.replace(" ", "_"))()
        if self._writing:
            await asyncio.wait(self._writing)
            for task in self._writing:
                task.result()
        self.scribe.cluster.close()

    # -- looking -----------------------------------------------------------------------------------

    def state(self) -> PartitionImage | None:
        """The partition as the newest image has it; None if it is no more."""
        image = self.machines.image()
        topic = None if image is None else image.topic_by_id(self.target.topic.topic_id)
        if topic is None or self.target.index >= len(topic.partitions):
            return None
        return topic.partitions[self.target.index]

    def leader(self) -> int:
        """Who leads, -1 for nobody."""
        state = self.state()
        return -1 if state is None else state.leader

    def followers(self) -> list[int]:
        """The other replicas."""
        state = self.state()
        return [] if state is None else [n for n in state.replicas if n != state.leader]

    def replica(self, node_id: int) -> Partition | None:
        """A replica as its broker has it."""
        for node, partition in self.machines.partitions():
            key = (partition.topic_id, partition.topic_partition.partition)
            if node == node_id and key == (self.target.topic.topic_id, self.target.index):
                return partition
        return None

    async def until(self, is_so: Callable[[], Any], seconds: float) -> bool:
        """Wait for a moment; whether it came."""
        loop = self.world.loop
        end_s = loop.time() + seconds
        while not is_so():
            if loop.time() >= end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    # -- doing -------------------------------------------------------------------------------------

    async def pause(self, *seconds: float) -> None:
        """One of these."""
        await asyncio.sleep(self.rng.choice(seconds))

    def write(self, node_id: int, acks: int, batches: int = 1) -> asyncio.Task[Any]:
        """Begin to write to a broker, leader or not."""

        async def send() -> bool:
            done = True
            for _ in range(batches):
                done = await self.scribe.send(node_id, self.target, acks) and done
                await self.pause(0.0, 0.005, 0.02)
            return done

        task = self.world.spawn(self.scribe.name, send())
        self._writing.append(task)
        return task

    def kill(self, node_id: int) -> None:
        """Between two steps, or soon inside one."""
        machine = self.machines.by_id.get(node_id)
        if machine is None or machine.server is None or not self.faults.may_strike(node_id):
            return
        if self.rng.random() < 0.3:
            machine.disk.die_at = machine.disk.operations + self.rng.randint(1, 4)
        else:
            machine.die("kill")

    def stop(self, node_id: int) -> None:
        """Begin an orderly stop."""
        machine = self.machines.by_id.get(node_id)
        if machine is not None and machine.is_ready and self.faults.may_strike(node_id):

            async def stop() -> None:
                with self.faults.cut_off(node_id):
                    await machine.stop()

            self._writing.append(self.world.spawn("test", stop()))

    async def cut(self, node_id: int, links: Sequence[Link], seconds: float) -> None:
        """For a while."""
        await self.faults.until_may_strike(node_id)
        with self.faults.cut_off(node_id):
            self.machines.network.cut(links)
            await asyncio.sleep(seconds)
            self.machines.network.heal(links)

    def links(self, node_id: int, others: Sequence[int], *, data: bool) -> list[Link]:
        """Between a broker and others, both ways or one; of the data's port alone, or all."""
        here, there = host_of(node_id), [host_of(n) for n in others if n != node_id]
        ways = self.rng.choice(("both", "both", "out", "in"))
        pairs: list[tuple[str, str]] = []
        if ways != "in":
            pairs += [(here, other) for other in there]
        if ways != "out":
            pairs += [(other, here) for other in there]
        return [(*pair, PORT) for pair in pairs] if data else list(pairs)

    async def elect(self, node_id: int) -> None:
        """Preferred leaders, whether they want to or not."""
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000)
        await self.world.ask_in_vain(node_id, request, 2)

    async def depose(self) -> None:
        """Bring about another leader epoch, one way or another."""
        leader = self.leader()
        if leader < 0:
            return
        way = self.rng.choice(("kill", "kill", "stop", "elect", "cut"))
        if way == "kill":
            self.kill(leader)
        elif way == "stop":
            self.stop(leader)
        elif way == "elect":
            await self.elect(leader)
        else:
            links = self.links(leader, list(self.machines.by_id), data=False)
            cutting = self.cut(leader, links, self.rng.uniform(1.6, 2.6))
            self._writing.append(self.world.spawn("test", cutting))

    # -- the sequences -----------------------------------------------------------------------------

    async def _commit_and_kill(self) -> None:
        """KIP-101, 1: committed, acknowledged, and not yet known to be so by the followers."""
        for _ in range(self.rng.randint(1, 3)):
            leader = self.leader()
            writing = self.write(leader, acks=-1)
            await self.until(writing.done, 1.0)
            await self.pause(0, 0, 0.003, 0.03)
            self.kill(leader)
            await self.until(lambda was=leader: self.leader() not in (-1, was), LEADERLESS_S_MAX)
            followers = self.followers()
            if followers and self.rng.random() < 0.4:
                self.kill(self.rng.choice(followers))
            await self.pause(0, 0.1, 0.5, 1.5)

    async def _elections_in_a_row(self) -> None:
        """KIP-279: two or three elections, and some writes that nobody else has in each epoch."""
        for _ in range(self.rng.randint(2, 3)):
            leader, state = self.leader(), self.state()
            epoch = -1 if state is None else state.leader_epoch
            self.write(leader, acks=self.rng.choice((0, 1, -1)), batches=self.rng.randint(1, 3))
            await self.pause(0, 0.005, 0.02)
            await self.depose()

            def is_new(before: int = epoch) -> bool:
                now = self.state()
                return now is not None and now.leader_epoch > before and now.leader >= 0

            await self.until(is_new, LEADERLESS_S_MAX)
            await self.pause(0, 0.01, 0.05, 0.3)

    async def _zombie_leader(self) -> None:
        """KIP-101, 2: a leader goes on without the others, who go on without it."""
        zombie = self.leader()
        if zombie < 0:
            return
        await self.faults.until_may_strike(zombie)
        with self.faults.cut_off(zombie), self.apart(zombie):
            self.write(zombie, acks=self.rng.choice((0, 1)), batches=self.rng.randint(1, 6))
            await self.until(lambda: self.leader() not in (-1, zombie), LEADERLESS_S_MAX)
            successor = self.leader()
            if successor not in (-1, zombie):
                await self.pause(0, 0.05)
                acks = self.rng.choice((1, -1))
                writing = self.write(successor, acks, batches=self.rng.randint(1, 8))
                await self.until(writing.done, 1.0)
        await self.pause(0, 0.02, 0.1, 0.6)
        if successor >= 0 and self.rng.random() < 0.6:
            self.kill(successor)

    @contextlib.contextmanager
    def apart(self, node_id: int) -> Iterator[None]:
        """A broker stands still, or does not hear the others, or they don't hear it."""
        lane, loop = self.machines.by_id[node_id].lane, self.world.loop
        if self.rng.random() < 0.25:
            loop.pause_lane(lane)
            yield
            loop.resume_lane(lane)
            return
        links = self.links(node_id, list(self.machines.by_id), data=False)
        self.machines.network.cut(links)
        yield
        self.machines.network.heal(links)

    async def _follower_lags(self) -> None:
        """Out of the in-sync replicas, back into them, and just then something happens."""
        leader, followers = self.leader(), self.followers()
        if leader < 0 or not followers:
            return
        follower = self.rng.choice(followers)
        links = self.links(leader, [follower], data=True)
        cutting = self.cut(follower, links, self.rng.uniform(*LAG_S))
        self.write(leader, acks=self.rng.choice((1, -1)), batches=self.rng.randint(5, 20))
        await cutting

        def is_joining() -> bool:
            replica = self.replica(leader)
            change = None if replica is None else replica.pending_change
            return change is not None and change.joining == follower

        if await self.until(is_joining, 1.0):
            await self.pause(0, 0, 0.002, 0.01)
        match self.rng.choice(("kill leader", "kill follower", "cut", "elect")):
            case "kill leader":
                self.kill(leader)
            case "kill follower":
                self.kill(follower)
            case "cut":
                links = self.links(leader, [follower], data=True)
                await self.cut(follower, links, self.rng.uniform(0.1, 1.5))
                self.kill(leader)
            case "elect":
                await self.elect(leader)

    async def _leader_alone(self) -> None:
        """All followers lag: the in-sync replicas shrink below the minimum, and writes go on."""
        leader, followers = self.leader(), self.followers()
        if leader < 0:
            return
        links = [link for n in followers for link in self.links(leader, [n], data=True)]
        seconds = self.rng.uniform(*LAG_S) + 0.5
        cutting = self.world.spawn("test", self.cut(leader, links, seconds))
        self._writing.append(cutting)
        while not cutting.done():
            self.write(leader, acks=self.rng.choice((1, -1)), batches=2)
            await self.pause(0.1, 0.3)
        if self.rng.random() < 0.5:
            await self.pause(0, 0.01, 0.1)
            self.kill(leader)

    async def _late_proposal(self) -> None:
        """AlterPartition is under way, and before it comes the controller decides otherwise."""
        leader, followers = self.leader(), self.followers()
        if leader < 0 or not followers:
            return
        lagging = self.rng.choice(followers)
        links = self.links(leader, [lagging], data=True)
        cutting = self.cut(lagging, links, self.rng.uniform(*LAG_S))
        self._writing.append(self.world.spawn("test", cutting))
        self.write(leader, acks=1, batches=self.rng.randint(5, 15))
        wants_join = self.rng.random() < 0.6

        def is_proposed() -> bool:
            replica = self.replica(leader)
            change = None if replica is None else replica.pending_change
            return change is not None and (not wants_join or change.joining >= 0)

        if not await self.until(is_proposed, LAG_S[1] + 1.5):
            return
        controller = self.machines.controller()
        if controller is None or controller == leader:
            return
        held: list[Link] = [(host_of(leader), host_of(controller))]
        with self.faults.cut_off(leader):
            self.machines.network.cut(held)
            self.write(leader, acks=self.rng.choice((1, -1)), batches=3)
            await self._decide_otherwise(leader, controller)
            self.write(leader, acks=1, batches=2)
            await self.pause(0, 0.05)
            self.machines.network.heal(held)

    async def _decide_otherwise(self, leader: int, controller: int) -> None:
        followers = self.followers()
        match self.rng.choice(("elect", "elect", "fence", "kill", "stop")):
            case "elect":
                await self.elect(controller)
                await self.pause(0, 0.01, 0.1)
            case "fence":
                await self.until(lambda: self.leader() != leader, LEADERLESS_S_MAX)
                self.write(self.leader(), acks=-1, batches=3)
                await self.pause(0, 0.1)
            case "kill" if followers:
                self.kill(self.rng.choice(followers))
                await self.pause(0.3, 1.0)
            case "stop" if followers:
                self.stop(self.rng.choice(followers))
                await self.pause(0.3, 1.0)

    async def _vote_and_die(self) -> None:
        """A voter dies just after it has voted, and is back while the election goes on."""
        for _ in range(self.rng.randint(1, 3)):
            leading = self.machines.controller()
            if leading is None:
                return
            epoch = max(core.epoch for _, core in self.machines.cores())
            self.kill(leading)

            def voters(before: int = epoch) -> list[int]:
                return [
                    node_id
                    for node_id, core in self.machines.cores()
                    if core.epoch > before
                    and (core.role is Role.CANDIDATE or core.voted_id != NO_NODE)
                ]

            if await self.until(voters, LEADERLESS_S_MAX):
                self.kill(self.rng.choice(voters() or [leading]))
            await self.pause(0.05, 0.3, 1.0)

    async def _append_and_die(self) -> None:
        """The controller dies with records that are in its log and not committed."""
        node_id = self.rng.choice(list(self.machines.by_id))
        self.kill(node_id)

        def is_between() -> bool:
            active = self.machines.controller()
            server: Any = None if active is None else self.machines.by_id[active].server
            if server is None or not server.metadata.is_open:
                return False
            metadata = server.metadata
            return bool(metadata.is_leader and metadata.log_end()[1] > metadata.high_watermark)

        for _ in range(self.rng.randint(1, 2)):
            if await self.until(is_between, LEADERLESS_S_MAX):
                active = self.machines.controller()
                assert active is not None
                self.kill(active)
            await self.pause(0, 0.2, 1.0)

    async def _lead_and_lose_power(self) -> None:
        """A power failure right after an election, of who leads or of who follows."""
        await self.until(self.faults.is_whole, LEADERLESS_S_MAX)
        await self.elect(self.rng.choice(list(self.machines.by_id)))
        leader = self.leader()
        if leader < 0:
            return
        self.write(leader, acks=-1, batches=2)
        await self.pause(0, 0.005, 0.05)
        self.faults.power_failure(self.rng.choice([leader, *self.followers()]))
