"""Faults at the moments at which a transaction is half done: beside `sequences.py`'s, for the
coordinators of transactions and of the groups whose offsets they commit.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sim.cluster.sequences import LAG_S, LEADERLESS_S_MAX, Play
from sim.cluster.transactions_checkers import coordinator_of
from sim.cluster.transactions_habits import has_transactions
from sim.history import TopicHistory
from tidelog.cluster.metadata.image import TRANSACTION_STATE_TOPIC
from tidelog.coordinators.transactions.states import COMPLETE, PREPARED, TransactionState
from tidelog.simulation.machine import PORT
from tidelog.simulation.machines import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sim.cluster.faults import ClusterFaults
    from tidelog.coordinators.transactions.transaction import Transaction

MOMENT_S_MAX = 3.0

PLAYS: dict[str, int] = {  # by weight
    "coordinator falls": 4,
    "markers held": 3,
    "coordinator alone": 3,
    "answers late": 3,
    "group coordinator falls": 2,
}


def draw_plays(seed: int | str, plan_s: float) -> list[tuple[float, str]]:
    """What a seed gets of them, and when."""
    if not has_transactions(seed):
        return []
    rng = random.Random(f"{seed}:plays")
    kinds = rng.choices(list(PLAYS), list(PLAYS.values()), k=rng.randint(1, 3))
    return [(rng.uniform(0.5, plan_s), kind) for kind in kinds]


def play(faults: ClusterFaults, name: str) -> TransactionPlay | None:
    """Somewhere; None as long as there are no transactions."""
    image = faults.machines.image()
    topic = None if image is None else image.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        return None
    history = TopicHistory(topic.name, topic.topic_id, len(topic.partitions), {})
    rng = random.Random(f"{faults.world.seed}:{name}:where")
    return TransactionPlay(faults, name, history.partition(rng.randrange(len(topic.partitions))))


def _is_decided(transaction: Transaction) -> bool:
    return transaction.value.state in PREPARED


def _is_being_decided(transaction: Transaction) -> bool:
    return transaction.pending in PREPARED


def _is_being_completed(transaction: Transaction) -> bool:
    return transaction.pending in COMPLETE


def _is_open(transaction: Transaction) -> bool:
    return transaction.value.state is TransactionState.ONGOING


class TransactionPlay(Play):
    """One play; the target is the coordinators' partition."""

    def transactions(self) -> Iterator[tuple[int, Transaction]]:
        """All that coordinators know, and where."""
        for node_id, server in self.machines.servers():
            coordinator = coordinator_of(server)
            for shard in () if coordinator is None else coordinator.led.active():
                for transaction in shard.transactions.values():
                    yield node_id, transaction

    async def moment(self, is_so: Callable[[Transaction], bool]) -> tuple[int, Transaction] | None:
        """Wait for a transaction like this: where it is, and itself."""
        found: list[tuple[int, Transaction]] = []

        def look() -> bool:
            found[:] = [each for each in self.transactions() if is_so(each[1])]
            return bool(found)

        return self.rng.choice(found) if await self.until(look, MOMENT_S_MAX) else None

    async def _fall(self, node_id: int) -> None:
        """A broker goes, or its leadership does."""
        way = self.rng.choice(("kill", "kill", "stop", "elect", "cut"))
        if way == "kill":
            self.kill(node_id)
        elif way == "stop":
            self.stop(node_id)
        elif way == "elect":
            await self.elect(node_id)
        else:
            links = self.links(node_id, list(self.machines.by_id), data=False)
            await self.cut(node_id, links, self.rng.uniform(1.6, 3.5))

    # -- the plays ---------------------------------------------------------------------------------

    async def _coordinator_falls(self) -> None:
        """Between decision, markers and the end; or one of those who get the markers does."""
        for _ in range(self.rng.randint(1, 3)):
            moments = (_is_decided, _is_decided, _is_being_decided, _is_being_completed, _is_open)
            found = await self.moment(self.rng.choice(moments))
            if found is None:
                return
            node_id, transaction = found
            await self.pause(0, 0, 0.002, 0.01)
            partitions = sorted(transaction.value.partitions)
            if partitions and self.rng.random() < 0.3:
                image = self.machines.image()
                one = self.rng.choice(partitions)
                state = None if image is None else image.partition(*one)
                node_id = node_id if state is None or state.leader < 0 else state.leader
            await self._fall(node_id)
            await self.pause(0.05, 0.3, 1.5)

    async def _markers_held(self) -> None:
        """A leader does not hear the coordinator for a while, or its answers get lost."""
        found = await self.moment(_is_open)
        if found is None:
            return
        node_id, _ = found
        links = [
            (*pair, PORT)
            for other in self.machines.by_id
            if other != node_id and self.rng.random() < 0.6
            for pair in ((host_of(node_id), host_of(other)), (host_of(other), host_of(node_id)))
            if self.rng.random() < 0.7
        ]
        cutting = self.cut(node_id, links, self.rng.choice((0.1, 0.5, 2.0, 3.5, 5.0)))
        self._writing.append(self.world.spawn("test", cutting))
        if await self.moment(_is_decided) is not None and self.rng.random() < 0.5:
            await self.pause(0, 0.02, 0.5)
            await self._fall(node_id)

    async def _coordinator_alone(self) -> None:
        """Its followers lag: what it writes is not committed, or is when it has given up."""
        leader = self.leader()
        if leader < 0:
            return
        links = [link for n in self.followers() for link in self.links(leader, [n], data=True)]
        await self.cut(leader, links, self.rng.uniform(0.5, LAG_S[1] + 1))
        if self.rng.random() < 0.5:
            await self.pause(0, 0.01, 0.1)
            self.kill(leader)
            await self.until(lambda: self.leader() not in (-1, leader), LEADERLESS_S_MAX)

    async def _answers_late(self) -> None:
        """What a coordinator says is late where it is heard."""
        leader = self.leader()
        if leader < 0:
            return
        network = self.machines.network
        slow = self.rng.uniform(0.02, 1.0)
        links = [
            link
            for other in self.machines.by_id
            if other != leader
            for link in ((host_of(leader), host_of(other)), (host_of(other), host_of(leader)))
            if self.rng.random() < 0.7
        ]
        network.slow_links |= dict.fromkeys(links, (slow / 10, slow))
        await self.pause(0.5, 1.5, 3.0)
        for link in links:
            network.slow_links.pop(link, None)

    async def _group_coordinator_falls(self) -> None:
        """With offsets that wait for their transaction's end."""
        for _ in range(self.rng.randint(1, 2)):
            holding: list[int] = []

            def look(found: list[int] = holding) -> bool:
                found[:] = [
                    node_id
                    for node_id, server in self.machines.servers()
                    if server.is_built
                    and any(shard.pending for shard in server.parts.groups.led.active())
                ]
                return bool(found)

            if not await self.until(look, MOMENT_S_MAX):
                return
            await self.pause(0, 0, 0.01)
            if holding:
                await self._fall(self.rng.choice(holding))
            await self.pause(0.05, 0.3, 1.5)
