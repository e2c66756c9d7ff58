"""MirrorMaker 2 moves users of one broker to the other, as docs/moving.md says."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from compat import brokers, reference
from compat.eventually import eventually
from compat.jvm import FAST_START, QUIET, require_jars
from compat.moving import offsets_of, records_of
from support.snippets import BLOCK, ROOT
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat.brokers import Broker
    from compat.jvm import Jvm

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.reference,
    pytest.mark.compat,
    pytest.mark.timeout(900),
]

PARTITIONS = 3
TOPICS = {
    "orders": (PARTITIONS, {"retention.ms": "86400000", "max.message.bytes": "2000000"}),
    "customers": (1, {"cleanup.policy": "compact"}),
}
PROTOCOLS = ("classic", "consumer")


class MirrorMaker:
    """`connect-mirror-maker.sh` with the properties of docs/moving.md."""

    def __init__(self, folder: Path, old: Broker, new: Broker) -> None:
        blocks = [text for _, text in BLOCK.findall((ROOT / "docs/moving.md").read_text())]
        (properties,) = [text for text in blocks if "clusters = old, new" in text]
        text = properties.replace("old-host:9092", old.bootstrap)
        self._properties = folder / "mm2.properties"
        self._properties.write_text(text.replace("new-host:9092", new.bootstrap))
        self._log = folder / "mirror-maker.log"
        self._child: Child | None = None

    def start(self) -> None:
        java = [kafka_jars.java(), "-Xmx400m", *FAST_START, *QUIET, "-cp", require_jars()]
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        self._child = Child([*java, main, str(self._properties)], self._log)

    def end(self, how: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.check()
            child.end(how)


class Cluster:
    """One of the two clusters, as its users see it."""

    def __init__(self, broker: Broker) -> None:
        self.at = {"bootstrap.servers": broker.bootstrap}
        self.admin = AdminClient(self.at)

    def make_topics(self) -> None:
        topics = [
            NewTopic(name, partitions, 1, config=configs)
            for name, (partitions, configs) in TOPICS.items()
        ]
        for made in self.admin.create_topics(topics).values():
            made.result(60)

    def settings(self, topic: str) -> dict[str, str]:
        (asked,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        of_topic = 1
        return {
            name: entry.value
            for name, entry in asked.result(60).items()
            if entry.source == of_topic
        }

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=60).topics[topic].partitions)

    def ends(self) -> list[list[Any]]:
        """The offsets of a group that has read all orders."""
        found = [
            records_of(self.at, "orders", number, "read_committed") for number in range(PARTITIONS)
        ]
        return [["orders", number, records[-1][0] + 1] for number, records in enumerate(found)]

    def records(self, topic: str) -> list[list[tuple[str | None, str | None]]]:
        """Keys and values of the committed records, partition by partition."""
        return [
            [(key, value) for _, key, value in records_of(self.at, topic, number, "read_committed")]
            for number in range(TOPICS[topic][0])
        ]

    def has(self, topic: str) -> bool:
        found = self.admin.list_topics(timeout=60).topics
        return topic in found and len(found[topic].partitions) == TOPICS[topic][0]

    def offsets(self, group: str) -> list[list[Any]]:
        return offsets_of(self.admin, group)


class Orders:
    """Numbered records, round robin over the partitions."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, to: Cluster, number: int) -> list[str]:
        producer = Producer({**to.at, "enable.idempotence": True})
        sent = []
        for each in range(self.count, self.count + number):
            producer.produce("orders", f"{each}", key=f"k{each % 7}", partition=each % PARTITIONS)
            sent.append(f"{each}")
        assert producer.flush(60) == 0
        self.count += number
        return sent

    def send_in_transactions(self, to: Cluster) -> list[str]:
        """A committed one and an aborted one; the committed values."""
        producer = Producer({**to.at, "transactional.id": "orders"})
        producer.init_transactions(60)
        for how in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for each in range(30):
                value = f"{how.__name__} {each}"
                producer.produce("orders", value, partition=each % PARTITIONS)
            how(60)
        return [f"commit_transaction {each}" for each in range(30)]


def group_of(protocol: str) -> str:
    return f"{protocol}-readers"


class Reader:
    """A member of a group, until it is closed; `values` has what it read."""

    def __init__(self, cluster: Cluster, protocol: str, *, begin: str = "error") -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                **cluster.at,
                "group.id": group_of(protocol),
                "group.protocol": protocol,
                "auto.offset.reset": begin,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "max.poll.interval.ms": 900_000,  # it waits while others work
            }
        )
        self._consumer.subscribe(["orders"])

    def read(self, wanted: set[str]) -> None:
        """Until all of them have come; then commit."""

        def step() -> set[str]:
            for message in self._consumer.consume(100, 0.3):
                assert message.error() is None, message.error()
                self.values.append(message.value().decode())
            return wanted - set(self.values)

        eventually(step, lambda missing: not missing, 120)
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def at_most(offsets: list[list[Any]], limits: list[list[Any]]) -> bool:
    """Whether the group has an offset of each partition, none of them above its limit."""
    return [each[:2] for each in offsets] == [each[:2] for each in limits] and all(
        one[2] <= other[2] for one, other in zip(offsets, limits, strict=True)
    )


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[dict[str, Broker]]:
    require_jars()
    made: dict[str, Broker] = {
        "tidelog": brokers.Tidelog(tmp_path / "tidelog"),
        "kafka": reference.ApacheKafka(tmp_path / "kafka"),
    }
    for broker in made.values():
        broker.start()
    yield made
    for broker in made.values():
        broker.kill()


@pytest.mark.parametrize(("old_kind", "new_kind"), [("kafka", "tidelog"), ("tidelog", "kafka")])
def test_a_move_without_a_stop(
    old_kind: str, new_kind: str, kinds: dict[str, Broker], java: Jvm, tmp_path: Path
) -> None:
    old, new = Cluster(kinds[old_kind]), Cluster(kinds[new_kind])
    mirror_maker = MirrorMaker(tmp_path, kinds[old_kind], kinds[new_kind])
    try:
        move(old, new, mirror_maker, java)
    finally:
        mirror_maker.end(signal.SIGKILL)


def move(old: Cluster, new: Cluster, mirror_maker: MirrorMaker, java: Jvm) -> None:
    old.make_topics()
    customers = Producer(old.at)
    for number in range(100):
        customers.produce("customers", f"v{number}", key=f"k{number % 10}")
    assert customers.flush(60) == 0
    orders = Orders()
    first = {*orders.send(old, 300), *orders.send_in_transactions(old)}
    ahead, behind = (Reader(old, protocol, begin="earliest") for protocol in PROTOCOLS)
    for reader in (ahead, behind):
        reader.read(first)
        assert sorted(reader.values) == sorted(first)

    # 1. MirrorMaker is started, killed and started again, while all are at work.
    mirror_maker.start()
    eventually(lambda: all(map(new.has, TOPICS)), bool, 120)
    eventually(lambda: new.records("orders"), old.records("orders").__eq__, 120)
    read_once = new.ends()
    for group in map(group_of, PROTOCOLS):
        eventually(partial(new.offsets, group), lambda found: at_most(found, read_once), 120)
    second = set(orders.send(old, 3000))
    mirror_maker.end(signal.SIGKILL)
    mirror_maker.start()
    second |= set(orders.send(old, 300))
    for topic in TOPICS:
        eventually(partial(new.records, topic), old.records(topic).__eq__, 180)

    # 2. Consumers go over: of one group that has read all, and of one that has not.
    ahead.read(second)
    ahead.close()
    behind.close()
    eventually(lambda: new.offsets(group_of("classic")), new.ends().__eq__, 120)
    assert at_most(new.offsets(group_of("consumer")), read_once)
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    answer = java.call(
        "translated_offsets",
        settings={**new.at, "replication.policy.class": policy},
        cluster="old",
        group=group_of("classic"),
    )
    assert sorted(answer["offsets"]) == new.ends()
    ahead, behind = (Reader(new, protocol) for protocol in PROTOCOLS)
    third = set(orders.send(old, 100))
    ahead.read(third)
    assert sorted(ahead.values) == sorted(third), "exactly where it was"
    behind.read(second | third)

    # 3. Producers go over; MirrorMaker ends.
    mirrored = old.records("orders")
    mirror_maker.end(signal.SIGTERM)
    last = set(orders.send(new, 100))
    for reader in (ahead, behind):
        reader.read(last)
        reader.close()
    for before, after in zip(mirrored, new.records("orders"), strict=True):
        assert after[: len(before)] == before
    for topic, (partitions, settings) in TOPICS.items():
        assert new.settings(topic).items() >= settings.items()
        assert new.partitions(topic) == partitions
