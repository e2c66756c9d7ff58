"""What clients see of a broker's data, to be compared before and after another broker takes its
directories over.

`python -m compat.moving` (with tests/ on the path) records `directories/` again: what Apache Kafka
leaves behind when it is stopped and when it is killed, and what its clients saw of it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from compat.conformance.messages import APIS, decode, encode, request_payload
from compat.eventually import eventually
from compat.jvm import FAST_START
from compat.raw import RawConnection
from compat.reference import SMALL
from tidelog_bench.peers.address import wait_until_serving
from tidelog_bench.peers.apache_kafka import CLUSTER_ID, ApacheKafka
from tidelog_bench.peers.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIRECTORIES = Path(__file__).parent / "directories"
SETTINGS = {
    **SMALL,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.share.delivery.count.limit": "10",  # above half of it records come a few at a time
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # What was recorded gets old: nothing is to expire while a test looks at it.
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
LONE = {
    **SETTINGS,
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
HEAP = ("-Xmx400m", *FAST_START)
TOPICS = {"plain": 2, "compacted": 1, "transactions": 1}
CONFIGS = {
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "delete.retention.ms": "315360000000",  # ten years: tombstones stay in what was recorded
    }
}
GROUPS = ("classic", "consumer")
QUOTAS = (  # an entity, its quota; without a name the default
    ([["user", "alice"]], ["producer_byte_rate", 1e9]),
    ([["client-id", None]], ["consumer_byte_rate", 2e9]),
    ([["user", None], ["client-id", "loader"]], ["request_percentage", 3000.0]),
)
_BROKER, GROUP = 4, 32  # types of config resources
_LONG_MS = 900_000  # no open transaction is aborted for its age


class Tidelog(Peer):
    """tidelog in the place of an Apache Kafka: its directory, its server.properties, its port.

    The first to start makes the directory.
    """

    name = "tidelog"

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__(kafka.folder, port=kafka.port)
        self._kafka = kafka

    def prepare(self) -> None:
        """Prepare the same files; a new directory is formatted by tidelog."""
        data = self.folder / "data"
        is_new = not data.exists()
        self._kafka.prepare()
        if is_new:
            shutil.rmtree(data)
            subprocess.run(self._tidelog("format", "-t", CLUSTER_ID), check=True, timeout=60)

    def _tidelog(self, *arguments: str) -> list[str]:
        properties = str(self.folder / "server.properties")
        return [sys.executable, "-m", "tidelog", *arguments, "-c", properties]

    def command(self) -> Sequence[str]:
        """`tidelog serve` on Kafka's properties."""
        return self._tidelog("serve")


def lone(folder: Path, settings: Mapping[str, str] = LONE) -> ApacheKafka:
    """One node, formatted as `kafka-storage` formats without options."""
    return ApacheKafka(folder / "node", settings, HEAP)


def start(*nodes: Peer) -> None:
    """Start them together: one of several does not serve alone."""
    children = [node.launch() for node in nodes]
    for node, child in zip(nodes, children, strict=True):
        wait_until_serving(node.bootstrap, child.check)


def end(how: signal.Signals, *nodes: Peer) -> None:
    """End all that run, together."""
    for node in nodes:
        if node.is_running:
            node.child.send(how)
    for node in nodes:
        node.end(how)


def ask(bootstrap: str, api: str, version: int, **fields: Any) -> dict[str, Any]:
    """One request and its answer, as plain data."""
    tables = APIS[api]
    with RawConnection(bootstrap) as connection:
        payload = request_payload(tables, version, 1, "moving", encode(tables, version, fields))
        connection.send_frame(payload)
        frame = connection.read_frame()
    assert frame is not None
    return decode(tables, version, frame)


# ---- writing ------------------------------------------------------------------------------------


def fill(bootstrap: str, replicas: int = 1) -> Producer:
    """Write records, transactions, commits of groups and settings. Keep the producer that it
    returns: its transaction is open."""
    at = {"bootstrap.servers": bootstrap}
    make_topics(bootstrap, TOPICS, replicas)
    producer = Producer({**at, "enable.idempotence": True})
    for number in range(400):
        producer.produce("plain", f"v{number}", key=f"k{number % 50}", partition=number % 2)
    _fill_compacted(producer)
    _begin(at, "committed").commit_transaction(60)
    _begin(at, "aborted").abort_transaction(60)
    for group in GROUPS:
        commit(bootstrap, group, 120 + len(group))
    _set_quotas(_first(bootstrap))
    set_config(bootstrap, _BROKER, "", "log.retention.bytes", "123456789")
    set_config(bootstrap, GROUP, "consumer", "consumer.session.timeout.ms", "50000")
    eventually(
        lambda: len(records_of(at, "compacted", 0, "read_committed")), lambda count: count < 200
    )
    return _begin(at, "open")


def go_on(bootstrap: str, number: int) -> None:
    """Write a little more, with a new producer and both groups."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for partition in range(TOPICS["plain"]):
        producer.produce("plain", f"more {number}", partition=partition)
    assert producer.flush(60) == 0
    for group in GROUPS:
        commit(bootstrap, group, 130 + number)


def set_config(bootstrap: str, kind: int, name: str, key: str, value: str) -> None:
    change = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
    answer = ask(_first(bootstrap), "IncrementalAlterConfigs", 1, resources=[resource])
    assert [each["error_code"] for each in answer["responses"]] == [0], answer


def _first(bootstrap: str) -> str:
    return bootstrap.partition(",")[0]


def _fill_compacted(producer: Producer) -> None:
    """Two segments: the records of the second one are later. In the first one most are older
    values of their key, and one key is deleted."""
    now_ms = int(time.time() * 1000)
    for timestamp, count in ((now_ms - 5_000_000, 300), (now_ms, 100)):
        for number in range(count):
            producer.produce("compacted", f"v{number}", key=f"k{number % 10}", timestamp=timestamp)
        producer.produce("compacted", None, key="gone", timestamp=timestamp)
        assert producer.flush(60) == 0


def _set_quotas(address: str) -> None:
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": value, "remove": False}],
        }
        for entity, (key, value) in QUOTAS
    ]
    answer = ask(address, "AlterClientQuotas", 1, entries=entries, validate_only=False)
    assert [each["error_code"] for each in answer["entries"]] == [0] * len(QUOTAS), answer


def make_topics(bootstrap: str, topics: Mapping[str, int], replicas: int) -> None:
    """Make topics with these numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [
            NewTopic(name, partitions, replicas, config=CONFIGS.get(name, {}))
            for name, partitions in topics.items()
        ]
    )
    for each in made.values():
        each.result(60)


def _begin(at: dict[str, Any], name: str) -> Producer:
    producer = Producer({**at, "transactional.id": name, "transaction.timeout.ms": _LONG_MS})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("transactions", f"{name} {number}")
    assert producer.flush(60) == 0
    return producer


def commit(bootstrap: str, group: str, offset: int) -> None:
    """Commit an offset as a member of the group, which reads a little first."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["plain"])
    eventually(lambda: consumer.consume(50, 0.5), bool)
    consumer.commit(offsets=[Place("plain", 0, offset), Place("plain", 1, 7)], asynchronous=False)
    consumer.close()


# ---- reading ------------------------------------------------------------------------------------


def look(bootstrap: str) -> dict[str, Any]:
    """Return all that clients can see, as plain data."""
    at = {"bootstrap.servers": bootstrap}
    admin = AdminClient(at)
    metadata = eventually(
        lambda: admin.list_topics(timeout=30),
        lambda found: all(
            partition.leader >= 0
            for name in TOPICS
            for partition in found.topics[name].partitions.values()
        ),
    )
    addresses = {each.id: f"{each.host}:{each.port}" for each in metadata.brokers.values()}
    places = [(name, number) for name, count in TOPICS.items() for number in range(count)]
    leaders = {
        (name, number): addresses[metadata.topics[name].partitions[number].leader]
        for name, number in places
    }
    return {
        "records": {
            f"{name}-{number} {isolation}": records_of(at, name, number, isolation)
            for name, number in places
            for isolation in ("read_committed", "read_uncommitted")
        },
        "producers": {
            f"{name}-{number}": _producers(leaders[name, number], name, number)
            for name, number in places
        },
        "transactions": sorted(
            [each["transactional_id"], each["producer_id"], each["transaction_state"]]
            for address in addresses.values()
            for each in ask(address, "ListTransactions", 1, duration_filter=-1)[
                "transaction_states"
            ]
        ),
        "offsets": {group: offsets_of(admin, group) for group in GROUPS},
        "groups": sorted(
            [each["group_id"], each["group_type"], each["protocol_type"]]
            for address in addresses.values()
            for each in ask(address, "ListGroups", 5)["groups"]
        ),
        "quotas": _quotas(_first(bootstrap)),
        "ids": _topic_ids(_first(bootstrap)),
        "settings": {
            f"{kind} {name}": _settings(_first(bootstrap), kind, name)
            for kind, name in ((2, "compacted"), (_BROKER, ""), (GROUP, "consumer"))
        },
    }


def records_of(at: dict[str, Any], name: str, number: int, isolation: str) -> list[list[Any]]:
    reader = Consumer(
        {
            **at,
            "group.id": "look",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    reader.assign([Place(name, number, 0)])
    found: list[list[Any]] = []
    while (message := reader.poll(60)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            reader.close()
            return found
        key, value = message.key(), message.value()
        found.append([message.offset(), key and key.decode(), value and value.decode()])
    raise AssertionError(f"{name}-{number} ends nowhere after {len(found)} records")


def _producers(address: str, name: str, number: int) -> list[list[int]]:
    topics = [{"name": name, "partition_indexes": [number]}]
    (topic,) = ask(address, "DescribeProducers", 0, topics=topics)["topics"]
    (partition,) = topic["partitions"]
    assert partition["error_code"] == 0, partition
    fields = ("producer_id", "producer_epoch", "last_sequence", "current_txn_start_offset")
    return sorted([each[field] for field in fields] for each in partition["active_producers"])


def offsets_of(admin: AdminClient, group: str) -> list[list[Any]]:
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return sorted(
        [place.topic, place.partition, place.offset] for place in asked.result(60).topic_partitions
    )


def _quotas(address: str) -> list[Any]:
    answer = ask(address, "DescribeClientQuotas", 1, components=[], strict=False)
    assert answer["error_code"] == 0, answer
    return sorted(
        (
            [
                [[each["entity_type"], each["entity_name"]] for each in entry["entity"]],
                [[each["key"], each["value"]] for each in entry["values"]],
            ]
            for entry in answer["entries"]
        ),
        key=str,
    )


def _topic_ids(address: str) -> dict[str, str]:
    topics = ask(address, "Metadata", 12, topics=None)["topics"]
    return {each["name"]: each["topic_id"].hex() for each in topics}


def _settings(address: str, kind: int, name: str) -> dict[str, str]:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (result,) = ask(address, "DescribeConfigs", 4, resources=resources)["results"]
    assert result["error_code"] == 0, result
    own = {2: 1, _BROKER: 3, GROUP: 8}[kind]  # sources: of the topic, the cluster, the group
    return {
        each["name"]: each["value"] for each in result["configs"] if each["config_source"] == own
    }


# ---- recorded directories -----------------------------------------------------------------------


def unpacked(how: str, node: ApacheKafka) -> dict[str, Any]:
    """Put a recorded directory in the place of a node's; what clients saw of it."""
    node.prepare()
    shutil.rmtree(node.folder / "data")
    with tarfile.open(DIRECTORIES / f"{how}.tar.xz") as archive:
        archive.extractall(node.folder, filter="data")
    seen: dict[str, Any] = json.loads((DIRECTORIES / f"{how}.json").read_text())
    return seen


def record(folder: Path) -> None:
    """Record what Apache Kafka leaves."""
    DIRECTORIES.mkdir(exist_ok=True)
    node = lone(folder)
    start(node)
    producer = fill(node.bootstrap)
    for how, by in (("killed", signal.SIGKILL), ("stopped", signal.SIGTERM)):
        seen = look(node.bootstrap)
        node.end(by)
        (DIRECTORIES / f"{how}.json").write_text(json.dumps(seen) + "\n")
        with tarfile.open(DIRECTORIES / f"{how}.tar.xz", "w:xz") as archive:
            archive.add(node.folder / "data", "data")
        if by is signal.SIGKILL:
            start(node)
    del producer
    node.end(signal.SIGKILL)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        record(Path(made))
