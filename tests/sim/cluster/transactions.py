"""Transactions join a run: their topics, who writes, copies and reads them, and what is checked."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.cluster.admin import AdminClient
from sim.cluster.groups import term_at
from sim.cluster.transactions_actors import Copier, TransactionalProducer
from sim.cluster.transactions_checkers import LogOfTransactions, TransactionCheckers
from sim.cluster.transactions_habits import Habits, has_transactions
from sim.cluster.transactions_ledger import Ledger
from sim.cluster.transactions_members import SESSION_MS, MemberCopier
from sim.cluster.transactions_reader import CommittedReader, Found
from sim.cluster.transactions_streams import APPLICATION, StreamsCopier
from sim.history import TopicHistory, Violation, require
from tidelog.cluster.metadata.image import TRANSACTION_STATE_TOPIC
from tidelog.simulation.machines import replication_of
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import MetadataRequest

if TYPE_CHECKING:
    import asyncio

    from sim.history import PartitionHistory

SOURCE, TARGET = "txn-source", "txn-target"
STEPS_BETWEEN_LOOKS = 4_000
SETTLED_S_MAX = 20.0  # and as long as clocks differ


class Transactions:
    """The transactions of one run, if its seed has any."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.rng = random.Random(f"{world.seed}:transactions-of-run")
        self.is_on = world.is_about_transactions or has_transactions(world.seed)
        self.habits = world.transaction_habits(world.seed) if self.is_on else Habits()
        self.ledger = Ledger(world.history)
        self.checkers = TransactionCheckers(world)
        self.topics: list[str] = []
        self.sources: list[PartitionHistory] = []
        self.targets: list[PartitionHistory] = []
        self.copiers: list[Copier] = []
        self.copies: list[tuple[str, set[str]]] = []  # each whole: its group and who makes it
        self.sources_are_written = False
        self.are_over = False
        self._writing: list[asyncio.Task[Any]] = []
        self._copying: list[asyncio.Task[Any]] = []
        self._reading: list[asyncio.Task[Any]] = []
        self._readers: list[CommittedReader] = []
        self._steps = 0

    def partitions(self) -> list[PartitionHistory]:
        """All that transactions write to."""
        return [*self.sources, *self.targets]

    def movable_topics(self) -> list[str]:
        """Topics whose replicas may be moved."""
        return [*self.topics, TRANSACTION_STATE_TOPIC] if self.is_on else []

    def ends(self) -> dict[PartitionHistory, int]:
        """Where logs end, once all of them are committed everywhere (a new leader's high watermark
        may be behind)."""
        found: dict[tuple[str, int], int] = {}
        for _, partition in self.world.machines.partitions():
            name, end = partition.topic_partition, partition.log.log_end_offset
            found[name] = max(found.get(name, 0), end)
        return {
            each: found.get((each.topic.name, each.index), 1 << 62) for each in self.partitions()
        }

    def after_step(self) -> None:
        """Look into the logs now and then."""
        if self.topics:
            self._steps += 1
            if self._steps % STEPS_BETWEEN_LOOKS == 0:
                self.checkers.check_last_stable_offsets()

    # -- the run -----------------------------------------------------------------------------------

    async def create(self) -> None:
        """The topics."""
        admin = AdminClient(self.world, "txn-admin")
        self.sources = await self._create(admin, SOURCE, self.rng.randint(1, 2))
        self.targets = await self._create(admin, TARGET, self.rng.randint(1, 2))
        self.topics = [SOURCE, TARGET]
        admin.cluster.close()
        if self.habits.instances:
            observer = self.world.observer
            observer.sessions[APPLICATION] = SESSION_MS / 1000
            observer.term_of = partial(term_at, self.world)

    async def _create(
        self, admin: AdminClient, name: str, partitions: int
    ) -> list[PartitionHistory]:
        factor, min_isr = replication_of(self.world.machines.voters)
        config = {
            "internal.segment.bytes": str(self.rng.choice((1500, 6000, 1 << 20))),
            "min.insync.replicas": str(min_isr),
        }
        config = self.world.tier.topic_config(name, config)
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                for key, value in config.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        result, _ = await admin.until_known(request, 7, lambda response: response.topics[0])
        error, topic_id = ErrorCode(result.error_code), bytes(result.topic_id)
        while error is ErrorCode.TOPIC_ALREADY_EXISTS and topic_id == bytes(16):
            response = await admin.cluster.ask_any(MetadataRequest(topics=None), 12)
            known = {each.name: bytes(each.topic_id) for each in response.topics}
            topic_id = known.get(name, topic_id)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Violation(f"CreateTopics {name}: {error.name}")
        history = TopicHistory(name, topic_id, partitions, config)
        return [history.partition(index) for index in range(partitions)]

    def start(self) -> None:
        """Everybody begins."""
        rng = self.rng
        producers = [
            TransactionalProducer(self.world, f"txn-{number}", rng.randint(5, 25))
            for number in range(rng.randint(1, 3))
        ]
        self.copiers = [
            Copier(self.world, f"copier-{number}") for number in range(rng.randint(1, 2))
        ]
        self.copies = [(each.group, {each.name}) for each in self.copiers]
        acked: dict[int, int] = {}
        tasks_acked: dict[int, int] = {}
        members: list[Copier] = [
            MemberCopier(self.world, f"member-copier-{number}", "copiers", acked)
            for number in range(self.habits.members)
        ]
        instances: list[Copier] = [
            StreamsCopier(self.world, f"instance-copier-{number}", APPLICATION, tasks_acked)
            for number in range(self.habits.instances)
        ]
        for group, several in (("copiers", members), (APPLICATION, instances)):
            if several:
                self.copies.append((group, {each.name for each in several}))
        self.copiers += members + instances
        self._readers = [
            CommittedReader(self.world, f"committed-{number}")
            for number in range(rng.randint(1, 2))
        ]
        clients = self.world.clients
        for actor in (*producers, *self.copiers):
            clients += [actor.name, *actor.hosts]
        clients += [reader.name for reader in self._readers]
        start = self.world.spawn
        self._writing = [start(actor.name, actor.run()) for actor in producers]
        self._copying = [start(actor.name, actor.run()) for actor in self.copiers]
        self._reading = [start(actor.name, actor.run()) for actor in self._readers]

    async def finish(self) -> None:
        """Everything is written, over, copied and read."""
        world = self.world
        await world.served(self._writing, "writing transactions")
        clocks = [machine.clock.skew_ms for machine in world.machines]
        seconds = SETTLED_S_MAX + (max(clocks) - min(clocks)) / 1000
        await world.within(seconds, "transactions are not over", self._unwritten)
        self.sources_are_written = True
        await world.served(self._copying, "copying")
        await world.within(seconds, "transactions are not over", self.checkers.unsettled)
        self.are_over = True
        await world.served(self._reading, "reading what is committed")

    def _unwritten(self) -> str | None:
        """The source is not whole: some transaction in it is open."""
        unready: str | None = self.world.unready()
        if unready is not None:
            return unready
        for node_id, partition in self.world.machines.partitions():
            log = partition.log
            is_source = partition.topic_partition.topic == SOURCE
            if is_source and log.last_stable_offset != log.log_end_offset:
                return f"{log!r} of {node_id}: last stable offset {log.last_stable_offset}"
        return None

    def read(self, history: PartitionHistory) -> list[tuple[str, list[Found]]]:
        """What the readers of committed records have read of a partition, by their names."""
        return [(reader.name, reader.found[history]) for reader in self._readers]

    def check(self) -> None:
        """What holds in the end."""
        if not self.is_on:
            return
        self.checkers.check()
        for reader in self._readers:
            self._check_reader(reader)

    def _check_reader(self, reader: CommittedReader) -> None:
        """It has read what is committed, all of it, in order."""
        for history, found in reader.found.items():
            for node_id, partition in self.world.machines.partitions():
                if partition.topic_partition != (history.topic.name, history.index):
                    continue
                machine = self.world.machines.by_id[node_id]
                log = LogOfTransactions(self.world.tier.batches(machine, partition))
                require(
                    log.committed == found,
                    f"{reader.name} has read {len(found)} records of {history}, {node_id} has"
                    f" {len(log.committed)}",
                )
