"""One transaction of three brokers, with a kill exactly at one of its steps.

A step is a condition on what the brokers have in memory and in their logs, looked at after every
callback of the loop: when it comes true for the first time, the victim dies there and then. The
client then goes on, as clients do, or is gone as well. In the end every transaction has to be
committed or aborted on all partitions and in the group, as whoever decided it has said.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.admin import AdminClient
from sim.cluster.transactions_checkers import LogOfTransactions, TransactionCheckers
from sim.cluster.transactions_client import GROUP, TRANSACTION, Abort, Fenced, TransactionalClient
from sim.cluster.transactions_habits import Habits
from sim.cluster.transactions_ledger import ABORTED, COMMITTED, Ledger
from sim.history import History, TopicHistory, require
from sim.raw_logs import read_log
from sim.wire import Lost
from tidelog.cluster.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from tidelog.coordinators.transactions.states import COMPLETE, PREPARED, TransactionState
from tidelog.replication.internal_topics import partition_for
from tidelog.simulation.loop import SimLoop
from tidelog.simulation.machine import PORT, in_lane
from tidelog.simulation.machines import Machines, host_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.group_offsets import OffsetFetchRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.cluster.transactions_ledger import Attempt
    from sim.raw_logs import RawBatch
    from tidelog.coordinators.transactions.transaction import Transaction
    from tidelog.replication.partition import Partition
    from tidelog.simulation.machine import Machine
    from tidelog.simulation.network import Link

TOPIC = "steps"
LEADERS = (2, 3)  # of the topic's partitions; the coordinator is broker 1
OFFSET = 5  # that the transaction commits for the group
AWAY_S = 2.0  # longer than a broker's session: others take over what it led
LATE_S = 4.5  # longer than request.timeout.ms
SETTLED_S_MAX = 30.0
ANSWERED_S_MAX = 120.0
_S = TransactionState


class Seen(NamedTuple):
    """What brokers that live have of the transaction; `end` and `committed` are those of the logs
    of both partitions and the group's, which nobody else writes to."""

    state: TransactionState | None
    pending: TransactionState | None
    partitions: int
    end: tuple[int, ...]
    committed: tuple[int, ...]
    is_asking: bool  # requests for markers are on their way


RECORDS = 2  # for each partition, in one batch
ENDED = (RECORDS + 1, RECORDS + 1, 2)  # the logs with their markers
NOTHING = (0, 0, 0)


def _is_written(seen: Seen) -> bool:
    return seen.end[:2] == (RECORDS, RECORDS)


STEPS: dict[str, Callable[[Seen], bool]] = {
    "init is written": lambda s: s.pending is _S.EMPTY,
    "init is done": lambda s: s.state is _S.EMPTY and s.pending is None,
    "a partition is being added": lambda s: s.pending is _S.ONGOING and s.partitions == 0,
    "a partition is added": lambda s: s.partitions == 1 and s.end == NOTHING,
    "a batch is written": lambda s: s.end[0] > s.committed[0],
    "a batch is committed": lambda s: s.committed[0] == RECORDS,
    "offsets are being added": lambda s: _is_written(s) and s.pending is _S.ONGOING,
    "offsets are added": lambda s: s.partitions == 3 and s.end[2] == 0,
    "offsets are written": lambda s: s.end[2] > s.committed[2],
    "offsets are committed": lambda s: s.committed[2] == 1,
    "the end is written": lambda s: s.pending in PREPARED,
    "the end is decided": lambda s: s.state in PREPARED,
    "markers are on their way": lambda s: s.is_asking and s.state in PREPARED,
    "a marker is written": lambda s: s.state in PREPARED and s.end[0] == ENDED[0],
    "a marker is committed": lambda s: s.state in PREPARED and s.committed[0] == ENDED[0],
    "markers are written": lambda s: s.state in PREPARED and s.end == ENDED,
    "its completion is written": lambda s: s.pending in COMPLETE,
    "it is complete": lambda s: s.state in COMPLETE,
}
DECIDED = list(STEPS).index("the end is decided")
ASKED = list(STEPS).index("the end is written")
VICTIMS = ("coordinator", "leader", "group coordinator")


WAYS = {
    "cut": "for a while it does not hear the other brokers, nor they it; clients reach it",
    "late": "its followers do not fetch for longer than it waits for them, and then they do",
}


class Case(NamedTuple):
    """Who dies at which step, and what the client is and does."""

    step: str
    victim: str
    is_v2: bool
    is_commit: bool = True
    is_client_gone: bool = False
    way: str = "kill"  # or one of WAYS: what happens to it
    seed: int = 0


class StepWorld:
    """A run of one case. Has what transactional clients and their checkers ask of a world."""

    is_quiet = True  # clients are patient

    def __init__(self, loop: SimLoop, case: Case) -> None:
        self.loop, self.case, self.seed = loop, case, f"{case}"
        self.machines = Machines(loop, self.seed, 3)
        self.history = History()
        self.transactions = self  # of a run with no others
        self.tier = self  # of one without a remote tier
        self.ledger = Ledger(self.history)
        self.checkers = TransactionCheckers(self)
        self.rng = random.Random(f"{self.seed}:world")
        self.topics = [TOPIC]
        self.copies: list[Any] = []
        self.habits = Habits()
        self.topic: TopicHistory
        self.transactional_id = self.group = ""
        self.home = 0  # the group's partition of __consumer_offsets
        self.killed: int | None = None
        self._is_told: asyncio.Future[None] = loop.create_future()  # of the kill
        self._keepers: list[asyncio.Task[Any]] = []

    def partitions(self) -> list[tuple[str, int]]:
        """Where the transaction writes."""
        return [(TOPIC, 0), (TOPIC, 1), (GROUP_METADATA_TOPIC, self.home)]

    def batches(self, machine: Machine, partition: Any) -> list[RawBatch]:
        """All that a replica has."""
        return read_log(machine.disk, partition.log.folder).batches()

    # -- the kill ----------------------------------------------------------------------------------

    def _after_step(self) -> None:
        """Strike when the step has come."""
        if self.killed is not None:
            return
        seen = self._look()
        if seen is None or not STEPS[self.case.step](seen):
            return
        self.killed = self._victim()
        self.loop.tell(f"broker-{self.killed}", f"dies at {self.case.step}")
        if self.case.is_client_gone:
            self.loop.close_lane("client")
        self._strike(self.killed)
        self._is_told.set_result(None)

    def _strike(self, node_id: int) -> None:
        if self.case.way == "kill":
            self.machines.by_id[node_id].die("kill")
            return
        here = host_of(node_id)
        others = [host_of(other) for other in self.machines.by_id if other != node_id]
        links: list[Link] = [link for each in others for link in ((here, each), (each, here))]
        seconds = AWAY_S
        if self.case.way == "late":
            links, seconds = [(each, here, PORT) for each in others], LATE_S
        self.machines.network.cut(links)
        self.loop.call_later(seconds, self.machines.network.heal, links)

    def _victim(self) -> int:
        victim = self.case.victim
        if victim == "coordinator":
            return self._leader_of(TRANSACTION_STATE_TOPIC, self._partition_of_id())
        name, index = self.partitions()[0 if victim == "leader" else 2]
        return self._leader_of(name, index)

    def _partition_of_id(self) -> int:
        image = self.machines.image()
        assert image is not None
        count = len(image.topics[TRANSACTION_STATE_TOPIC].partitions)
        return partition_for(self.transactional_id, count)

    def _leader_of(self, topic: str, index: int) -> int:
        image = self.machines.image()
        assert image is not None
        return image.topics[topic].partitions[index].leader

    def _replica(self, topic: str, index: int) -> Partition | None:
        """As its leader has it."""
        leader = self._leader_of(topic, index)
        for node_id, partition in self.machines.partitions():
            if node_id == leader and partition.topic_partition == (topic, index):
                return partition
        return None

    def transaction(self) -> Transaction | None:
        """As its coordinator has it."""
        door = self._door()
        if door is None or door.coordinator_in_use is None:
            return None
        shard = door.coordinator_in_use.led.shards.get(self._partition_of_id())
        return None if shard is None else shard.transactions.get(self.transactional_id)

    def _door(self) -> Any:
        node_id = self._leader_of(TRANSACTION_STATE_TOPIC, self._partition_of_id())
        return next(
            (
                server.parts.transactions
                for node, server in self.machines.servers()
                if node == node_id and server.is_built
            ),
            None,
        )

    def _look(self) -> Seen | None:
        transaction = self.transaction()
        if transaction is None:
            return None
        logs: list[Any] = []
        for each in self.partitions():
            replica = self._replica(*each)
            if replica is None:
                return None
            logs.append(replica.log)
        value = transaction.value
        return Seen(
            value.state if value.producer_epoch >= 0 else None,
            transaction.pending,
            len(value.partitions),
            tuple(log.log_end_offset for log in logs),
            tuple(log.high_watermark for log in logs),
            _is_asking(self._door()),
        )

    # -- the run -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """From empty disks to the verdict."""
        for machine in self.machines:
            self._keepers.append(in_lane("test", self._keep(machine)))
        await self.within(SETTLED_S_MAX, self.unready)
        await self._create()
        await self._choose()
        self.loop.after_step = self._after_step
        first = in_lane("client", self._transaction())
        until = self._is_told if self.case.is_client_gone else first
        await asyncio.wait([until], timeout=ANSWERED_S_MAX)
        if first.done():
            first.result()
        require(until.done(), f"{self.case}: there is no end to it")
        require(self.killed is not None, f"{self.case}: the step never came")
        await self.within(SETTLED_S_MAX, self.checkers.unsettled)
        await self._check()
        await self._next()

    async def _keep(self, machine: Any) -> None:
        while True:
            if await machine.start():
                await machine.ended()
            await asyncio.sleep(AWAY_S)

    async def within(
        self, seconds: float, why_not: Callable[[], str | None], look_s: float = 0.05
    ) -> None:
        end_s = self.loop.time() + seconds
        while (reason := why_not()) is not None:
            require(self.loop.time() < end_s, f"{self.case}: {reason}")
            await asyncio.sleep(look_s)

    def unready(self) -> str | None:
        image = self.machines.image()
        if image is None or any(not machine.is_ready for machine in self.machines):
            return "not all brokers run"
        fenced = [node for node in self.machines.by_id if not image.is_alive(node)]
        return f"{fenced} are fenced" if fenced else None

    async def _create(self) -> None:
        admin = AdminClient(self, "admin")  # type: ignore[arg-type]
        assignment_of = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
        topic = CreateTopicsRequest.CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                assignment_of(
                    partition_index=index,
                    broker_ids=[leader, *(n for n in (1, 2, 3) if n != leader)],
                )
                for index, leader in enumerate(LEADERS)
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        made, _ = await admin.until_known(request, 7, lambda response: response.topics[0])
        require(made.error_code == ErrorCode.NONE, f"CreateTopics gives {made.error_code}")
        self.topic = TopicHistory(TOPIC, bytes(made.topic_id), len(LEADERS), {})
        admin.cluster.close()

    async def _choose(self) -> None:
        """Names whose coordinators are brokers 1 and 3, so that each victim is another one."""
        client = self._client("finder")
        for kind in (TRANSACTION, GROUP):
            number = 0
            while True:
                name = f"name-{number}"
                try:
                    node_id = await client._find(name, kind)
                except Lost:
                    await asyncio.sleep(0.05)
                    continue
                if node_id == (1 if kind == TRANSACTION else 3):
                    break
                number += 1
            if kind == TRANSACTION:
                self.transactional_id = name
            else:
                self.group = name
        client.close()
        image = self.machines.image()
        assert image is not None
        self.home = partition_for(self.group, len(image.topics[GROUP_METADATA_TOPIC].partitions))
        await self.within(SETTLED_S_MAX, self.checkers.unsettled)

    def _client(self, name: str) -> TransactionalClient:
        client = TransactionalClient(self, self.transactional_id, name, "client", self.rng)
        client.is_v2 = self.case.is_v2
        client.timeout_ms = 1500 if self.case.is_client_gone else 60_000
        return client

    async def _transaction(self) -> None:
        """As often as it takes: asked again, InitProducerId takes who asks for two."""
        client = self._client("first")
        await client.init()
        await self._write(client)
        client.close()

    async def _write(self, client: TransactionalClient) -> None:
        attempt = client.begin()
        try:
            for index in (0, 1):
                values = [attempt.new_value((TOPIC, index), "") for _ in range(RECORDS)]
                await client.send(self.topic.partition(index), values)
            await client.send_offset(self.group, (TOPIC, 0), OFFSET)
        except Abort:
            await client.abort(attempt)
            return
        if self.case.is_commit:
            await client.commit(attempt)
        else:
            await client.abort(attempt)
        # To its very end: that is where the next transaction of this producer can begin.
        await asyncio.wait([self._is_told])

    # -- the verdict -------------------------------------------------------------------------------

    async def _check(self) -> None:
        self.checkers.check()
        case, (attempt,) = self.case, self.ledger.attempts or (None,)
        number = list(STEPS).index(case.step)
        committed = attempt is not None and self._is_committed(attempt)
        offset = await self._offset()
        require(offset == (OFFSET if committed else -1), f"{case}: {committed}, offset {offset}")
        if not case.is_client_gone:
            wanted = {COMMITTED if case.is_commit else ABORTED}
            if case.way == "cut":  # a leader of the past may have asked the coordinator for it
                wanted.add(ABORTED)
            require(attempt is not None and attempt.outcome in wanted, f"{case}: {attempt}")
        if number < ASKED and case.is_client_gone:
            require(not committed, f"{case}: committed, and nobody asked for that")
        if number >= DECIDED:
            require(committed == case.is_commit, f"{case}: decided, and {committed}")

    def _is_committed(self, attempt: Attempt) -> bool:
        """On all partitions of all replicas; the checkers have seen that it is on all or none."""
        found = set()
        for node_id, partition in self.machines.partitions():
            if partition.topic_partition.topic != TOPIC:
                continue
            machine = self.machines.by_id[node_id]
            log = LogOfTransactions(self.batches(machine, partition))
            wanted = set(attempt.values.get(partition.topic_partition, ()))
            values = {each.value for each in log.committed} & wanted
            if wanted:
                require(values in (set(), wanted), f"{self.case}: half of it on {node_id}")
                found.add(bool(values))
        require(len(found) <= 1, f"{self.case}: not the same everywhere")
        return True in found

    async def _offset(self) -> int:
        """What the group has."""
        client = self._client("onlooker")
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        message = OffsetFetchRequest(groups=[group], require_stable=True)
        for _ in range(200):
            try:
                answer = (await client.ask(self.group, GROUP, message, 8)).groups[0]
            except Lost:
                continue
            offset: int = answer.topics[0].partitions[0].committed_offset if answer.topics else -1
            if answer.error_code == ErrorCode.NONE and client.is_witness:
                client.close()
                return offset
            client.forget(self.group, GROUP)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{self.case}: nobody knows the group's offset")

    async def _next(self) -> None:
        """Nothing hinders the next producer of this id."""
        client = self._client("next")
        await client.init()
        attempt = client.begin()
        await client.send(self.topic.partition(0), [attempt.new_value((TOPIC, 0), "")])
        await client.commit(attempt)
        client.close()
        require(attempt.outcome == COMMITTED, f"{self.case}: {attempt}")
        await self.within(SETTLED_S_MAX, self.checkers.unsettled)
        self.checkers.check()


def _is_asking(door: Any) -> bool:
    """Whether requests for markers have been sent, and not been answered."""
    if door is None or door._colleagues is None or door.coordinator_in_use is None:
        return False
    links = [channel._link for channel in door._colleagues._channels._channels.values()]
    return bool(door.coordinator_in_use._markers._requests) and any(
        link is not None and link._waiting for link in links
    )


def play(case: Case) -> str | None:
    """What went wrong; None if all is whole."""
    loop = SimLoop(str(case))
    world = StepWorld(loop, case)
    failure = None
    try:
        loop.run_until_complete(world.run())
    except (AssertionError, Abort, Fenced) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.close()
        world.machines.bury()
    return failure


def cases(step: str, *, is_v2: bool) -> list[Case]:
    """Everybody who may die at a step, or be cut off: with the client and without, on the way to a
    commit and, when that has been decided, to an abort."""
    ends = (True, False) if list(STEPS).index(step) >= ASKED else (True,)
    return [
        Case(step, victim, is_v2, is_commit, is_client_gone, way)
        for victim in VICTIMS
        for is_commit in ends
        for is_client_gone, way in ((False, "kill"), (True, "kill"), (False, "cut"))
    ]
