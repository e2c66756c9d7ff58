"""Words of Apache Kafka's transaction suite on tiered topics, through a real client: producers by
name, records by their values, brokers that come and go."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import TYPE_CHECKING, Any, TypeVar

from compat.clients.protocol import decoded, encoded
from compat.line_process import WorkerError
from support.clusters import image_of, until
from support.txn_client import Nodes
from tidelog_protocol.messages.txn_admin import DescribeProducersRequest
from tidelog_storage.remote.api import IndexKind
from tier import admin
from tier.recording_store import INDEX

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from compat.conftest import Client
    from tier.threaded import Threaded

T = TypeVar("T")

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "3",
}
ALL = (0, 1, 2)
# Java's TimeoutException; librdkafka's _TIMED_OUT, and what it does with the records behind.
TIMED_OUT = r"(?i)timed?[ _]?out|purge_queue"
_names = itertools.count()


class World:
    """A cluster of three brokers and one client. Topics have a batch per segment."""

    def __init__(self, it: Threaded, client: Client) -> None:
        self._it = it
        self.cluster = it.cluster
        self._client = client
        away = [number for number in ALL if not self.cluster.node(number).is_running]
        if away:  # a test before has failed
            self.start(*away)
        client.bootstrap = self.cluster.cluster.bootstrap_servers

    @property
    def is_v2(self) -> bool:
        """Whether the client speaks the transaction protocol of KIP-890, part 2."""
        return self._client.name == "java"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the brokers' loop."""
        return self._it.run(work)

    def name(self, kind: str) -> str:
        """One that nobody has used."""
        return f"{kind}-{next(_names)}"

    def topic(self, partitions: int = 1, replicas: Iterable[int] = ALL, **configs: str) -> str:
        """A new tiered topic; with `min.insync.replicas` 2 unless it has fewer replicas."""
        name, on = self.name("t"), tuple(replicas)
        settings = {"min.insync.replicas": str(min(2, len(on)))} | configs
        self.run(self.cluster.create(name, [on] * partitions, configs=settings))
        return name

    # ---- the client --------------------------------------------------------------------------

    def call(self, op: str, **fields: object) -> Any:
        return self._client.call(op, **fields)

    def open(self, transactional_id: str, producer: str = "one", **fields: object) -> None:
        """A producer that has initialised its transactions. A time-out is the machine's."""
        while True:
            try:
                self.call(
                    "txn_open", producer=producer, transactional_id=transactional_id, **fields
                )
            except WorkerError as error:
                if re.search(TIMED_OUT, str(error)) is None:
                    raise
            else:
                return

    def send(
        self,
        topic: str,
        *values: str,
        producer: str = "one",
        partition: int = 0,
        begin: bool = False,
        timestamp: int | None = None,
    ) -> None:
        """A batch for each value, acknowledged."""
        for value in values:
            record = {"key": None, "headers": [], "partition": partition, "timestamp": timestamp}
            records = [record | {"value": encoded(value.encode())}]
            self.call("txn_send", producer=producer, topic=topic, records=records, begin=begin)
            begin = False

    def send_many(self, topic: str, values: Iterable[int], partitions: int, *, begin: bool) -> None:
        """Spread over the partitions, in batches as the client makes them."""
        records = [
            {
                "key": None,
                "headers": [],
                "partition": value % partitions,
                "value": encoded(b"%d" % value),
            }
            for value in values
        ]
        self.call("txn_send", producer="one", topic=topic, records=records, begin=begin)

    def begin(self, producer: str = "one") -> None:
        self.call("txn_send", producer=producer, topic="", records=[], begin=True)

    def end(self, producer: str = "one", *, commit: bool) -> None:
        self.call("txn_end", producer=producer, commit=commit)

    def open_and_send(
        self, transactional_id: str, topic: str, producer: str, **fields: object
    ) -> None:
        """A producer in a transaction that has a record; begun anew while it takes too long."""
        while True:
            self.open(transactional_id, producer, **fields)
            try:
                self.send(topic, producer, producer=producer, begin=True)
            except WorkerError as error:
                if re.search(TIMED_OUT, str(error)) is None:
                    raise
                self.close(producer)
            else:
                return

    def commit(self, *records: tuple[str, str], producer: str = "one") -> None:
        """A transaction of (topic, value); begun anew when a record takes too long."""
        while True:
            try:
                self.begin(producer)
                for topic, value in records:
                    self.send(topic, value, producer=producer)
            except WorkerError as error:
                if re.search(TIMED_OUT, str(error)) is None:
                    raise
                self.end(producer, commit=False)
            else:
                self.end(producer, commit=True)
                return

    def close(self, *producers: str) -> None:
        for producer in producers or ("one",):
            self.call("txn_close", producer=producer, at_once=True)

    def read(
        self, topic: str, count: int, *, committed: bool = True, partition: int = 0
    ) -> list[str]:
        """The first values, in the order of their offsets; a fetch may bring more than `count`."""
        found = self.read_with_offsets(topic, count, committed=committed, partition=partition)
        return [value for _, value in found]

    def read_with_offsets(
        self, topic: str, count: int, *, committed: bool, partition: int = 0, **more: object
    ) -> list[tuple[int, str]]:
        fields = {"topic": topic, "partition": partition, "from": "earliest", "count": count}
        records = self.call("consume", committed=committed, **fields, **more)["records"]
        return [(one["offset"], (decoded(one["value"]) or b"").decode()) for one in records]

    # ---- the brokers -------------------------------------------------------------------------

    def starts(self, topic: str, partition: int, log_start: int, local_log_start: int) -> None:
        """On every replica, at the end of it."""

        def seen() -> set[tuple[int, int]]:
            logs = [each.log for each in self.cluster.replicas(topic, partition)]
            return {(each.log_start_offset, each.local_log_start_offset) for each in logs}

        wanted = {(log_start, local_log_start)}
        self.run(until(lambda: seen() == wanted, f"{topic}-{partition} starts at {wanted}"))

    def moved(self, *partitions: tuple[str, int]) -> None:
        """At least one segment of each is remote only, on all replicas."""
        for topic, index in partitions:
            self.run(
                until(
                    lambda topic=topic, index=index: all(
                        each.log.local_log_start_offset >= 1
                        for each in self.cluster.replicas(topic, index)
                    ),
                    f"{topic}-{index} has moved",
                )
            )

    def leader_log(self, topic: str, partition: int = 0) -> Any:
        """Of the broker that leads; once one does."""
        self.run(until(lambda: self.cluster.leader(topic, partition) >= 0, f"{topic} is led"))
        return self.cluster.partition(self.cluster.leader(topic, partition), topic, partition).log

    def decided(self, topic: str, partition: int = 0) -> None:
        """Every transaction in the partition has its marker."""
        held = self.leader_log(topic, partition)
        self.run(until(lambda: held.last_stable_offset == held.log_end_offset, "decided"))

    def transaction_indexes(self, topic: str, partition: int) -> set[int]:
        """Where the segments begin whose transaction indexes the tier was asked for."""
        calls = self.cluster.history.calls(INDEX, topic, partition)
        return {each.segment.start_offset for each in calls if each.kind is IndexKind.TRANSACTION}

    def latest(self, topic: str, *, committed: bool) -> int:
        """The end that a consumer of this isolation may seek to."""

        async def ask() -> int:
            async with Nodes(self.cluster.cluster.bootstrap_servers) as nodes:
                return await nodes.end_offset(topic, committed=committed)

        return self.run(ask())

    def epochs(self, topic: str, partition: int = 0) -> dict[int, int]:
        """Epochs of the partition's producers by id, as its leader tells."""
        asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
        self.leader_log(topic, partition)
        server = self.cluster.server(self.cluster.leader(topic, partition))
        answer = self.run(admin.ask(server, DescribeProducersRequest(topics=[asked]), 0))
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0
        return {each.producer_id: each.producer_epoch for each in found.active_producers}

    def transaction(self, transactional_id: str) -> Any:
        """As its coordinator has it."""
        for node in self.cluster.cluster.brokers:
            coordinator = node.server.parts.transactions.coordinator
            found = coordinator.find(transactional_id) if coordinator else None
            if isinstance(found, tuple):
                return found[1]
        raise AssertionError(f"{transactional_id} has no coordinator")

    def expire(self, transactional_id: str) -> None:
        """Its transaction has run out of time."""
        transaction = self.transaction(transactional_id)
        transaction.value = transaction.value._replace(timeout_ms=1)

    def stop(self, *brokers: int) -> None:
        """One after the other, in order: each leaves the replicas in sync."""
        for each in brokers:
            self.run(self.cluster.stop(each))

    def leave_alone(self, broker: int) -> None:
        """Stop all others; it knows that the transactions' log has no other replica in sync.

        Who finds no controller for a second stops without having told: then all is done again.
        """
        others = [each for each in ALL if each != broker]
        while True:
            self.stop(*others)
            log = image_of(self.cluster.node(broker)).topics["__transaction_state"]
            if all(len(state.isr) == 1 for state in log.partitions):
                return
            self.start(*others)

    def kill(self, *brokers: int) -> None:
        """As crashes end them."""
        nodes = [self.cluster.node(each) for each in brokers]

        async def kill() -> None:
            await asyncio.gather(*(node.kill() for node in nodes))

        self.run(kill())

    def start(self, *brokers: int) -> None:
        """Return when all replicas of everything are in sync, to all brokers that run."""
        nodes = [self.cluster.node(each) for each in brokers]

        async def start() -> None:
            await asyncio.gather(*(node.start() for node in nodes))
            await until(
                lambda: all(
                    set(state.isr) == set(state.replicas)
                    for node in self.cluster.cluster.brokers
                    if node.is_running
                    for topic in image_of(node).topics.values()
                    for state in topic.partitions
                ),
                "all are in sync",
            )

        self.run(start())
