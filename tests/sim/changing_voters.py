"""Voters come and go while nodes are killed, lose their power and are cut off (KIP-853).

Five controllers of a metadata quorum whose log names the voters, at first one or three of them. An
operation that was acknowledged is never lost, two leaders never share an epoch, no committed record
is cut, sets of voters that follow each other differ by one voter; those of a log whose end was cut
off are those that it still names; and once faults stop, the voters elect a leader that all follow.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from sim.history import require
from sim.raw_logs import read_log
from support.quorum_nodes import setting, simulate
from tidelog.cluster.metadata.log import NotControllerError
from tidelog.cluster.metadata.voters import voters_in
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from support.quorum_nodes import QuorumNode, QuorumWorld
    from tidelog.cluster.metadata.voters import Voters

NODES = 5
STEPS = 14
QUIET_S_MAX = 60.0
ALONE_S = 5.0  # enough to elect another leader


class ChangingVoters:
    """A seed's run of the play."""

    def __init__(self, world: QuorumWorld, seed: int) -> None:
        self.world = world
        self.rng = random.Random(f"{seed}:changing voters")
        self.acknowledged: list[str] = []
        self.leaders: dict[int, int] = {}  # by epoch
        self.changes = 0
        self._count = 0
        self._nodes = {node.host: node for node in world.nodes.values()}
        self._ends: dict[str, int] = {}  # of logs, by the lane of a node's life
        world.loop.after_step = self._after_step
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """The whole of it; Violation if a promise is broken."""
        await self.world.start()
        await self.world.elected()
        for _ in range(STEPS):
            await self._step()
            self._check()
        await self._quiet()

    async def _step(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            leader = self.world.leader()
            if leader is not None:
                self._do(leader, self._write(leader))
                if self.rng.random() < 0.6:
                    self._do(leader, self._change(leader))
            await asyncio.sleep(self.rng.choice((0.01, 0.3, 1.0)))
            self._check()
        await self.rng.choice((self._cut, self._kill, self._kill))()

    def _do(self, node: QuorumNode, coroutine: object) -> None:
        self._tasks.append(node.spawn(coroutine))  # type: ignore[arg-type]

    async def _write(self, node: QuorumNode) -> None:
        self._count += 1
        name = f"op{self._count}"
        try:
            await node.metadata.commit([setting(name)])
        except NotControllerError:
            return
        self.acknowledged.append(name)

    async def _change(self, leader: QuorumNode) -> None:
        """Add a node, or remove one; the leader may remove itself."""
        voters = leader.metadata.voters
        others = [node for node in self.world.nodes.values() if node.node_id not in voters]
        if others and (len(voters) < 2 or self.rng.random() < 0.6):
            node = self.rng.choice(others)
            assert node.own is not None
            waits = self.rng.random() < 0.8
            outcome = await leader.changes.add(node.own, waits=waits)
        else:
            node = self.world.nodes[self.rng.choice(voters)]
            outcome = await leader.changes.remove(node.node_id, node.directory_id)
        self.changes += outcome.error is ErrorCode.NONE

    async def _cut(self) -> None:
        """Cut one or two nodes off from the others, for a while."""
        hosts = [node.host for node in self.world.nodes.values()]
        alone = self.rng.sample(hosts, self.rng.randint(1, 2))
        rest = [host for host in hosts if host not in alone]
        links = [(a, b) for a in alone for b in rest]
        links += [(b, a) for a, b in links]
        self.world.network.cut(links)
        await asyncio.sleep(self.rng.uniform(0.5, 4))
        self._check()
        self.world.network.heal(links)

    async def _kill(self) -> None:
        victim = self.rng.choice(list(self.world.nodes.values()))
        if victim.alive:
            victim.kill(power=self.rng.random() < 0.5)
        if self.rng.random() < 0.7:
            await asyncio.sleep(self.rng.uniform(0, 2))
            await victim.start()

    def _check(self) -> None:
        for node in self.world.live:
            if node.metadata.is_leader:
                epoch = node.metadata.leader_epoch
                known = self.leaders.setdefault(epoch, node.node_id)
                require(known == node.node_id, f"{known} and {node.node_id} lead in epoch {epoch}")
                new, old = set(node.metadata.voters), {v[0] for v in node.metadata.image.voters}
                require(len(new ^ old) <= 1, f"{new} follow {old}")
            require(not node.failures, f"node {node.node_id} failed: {node.failures}")

    def _after_step(self) -> None:
        """Look at the node whose step it was, if that has cut its log."""
        lane = self.world.loop.lane
        node = self._nodes.get(lane.partition(".")[0])
        if node is None or node.lane != lane:
            return
        end = node.metadata.log.log_end_offset
        if end < self._ends.get(lane, 0):
            known, named = node.metadata.voter_set, voters_of_log(node)
            require(known == named, f"{known} count on node {node.node_id}, its log names {named}")
        self._ends[lane] = end

    async def _quiet(self) -> None:
        """No more faults: all follow one leader, and have what was acknowledged."""
        for node in self.world.nodes.values():
            if not node.alive:
                await node.start()
        await self._settled()
        await self._change_alone()
        await self._settled()
        for node in self.world.live:
            lost = [name for name in self.acknowledged if name not in node.settings]
            require(not lost, f"node {node.node_id} lost {lost}")
        sets = {node.metadata.voter_set for node in self.world.live}
        require(len(sets) == 1, f"the nodes know different voters: {sets}")
        for task in self._tasks:
            task.cancel()

    async def _settled(self) -> None:
        end = self.world.loop.time() + QUIET_S_MAX
        while not self.world.is_settled():
            require(self.world.loop.time() < end, "no leader that all follow")
            await asyncio.sleep(0.05)
            self._check()

    async def _change_alone(self) -> None:
        """A leader removes a voter while it is cut off: the next leader has that record cut off."""
        leader = await self.world.elected()
        others = [node for node in self.world.nodes.values() if node is not leader]
        links = [(leader.host, node.host) for node in others]
        links += [(b, a) for a, b in links]
        self.world.network.cut(links)
        voter = self.world.nodes[leader.metadata.voters[0]]
        self._do(leader, leader.changes.remove(voter.node_id, voter.directory_id))
        await asyncio.sleep(ALONE_S)
        self._check()
        self.world.network.heal(links)


def voters_of_log(node: QuorumNode) -> Voters:
    """The newest voters in a node's files, committed or not."""
    image = node.metadata.image
    named = image.voters
    for batch in read_log(node.disk, "data/__cluster_metadata-0").batches():
        for record in batch.records() if batch.header.is_control else ():
            voters = voters_in(record)
            if voters is not None and record.offset > image.offset:
                named = voters
    return named


def run_changing_voters(seed: int) -> ChangingVoters:
    """Violation if a promise is broken."""
    runs: list[ChangingVoters] = []

    async def play(world: QuorumWorld) -> None:
        runs.append(ChangingVoters(world, seed))
        await runs[0].run()

    first = 1 if seed % 3 == 0 else 3
    simulate(play, f"voters-{seed}", first, NODES - first, is_named=True)
    return runs[0]
