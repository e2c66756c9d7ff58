"""What clients see of a broker's data, to be compared before and after another broker takes its
directories over.

`python -m compat.moving` (with tests/ on the path) records `directories/` again: what Apache Kafka
leaves behind when it is stopped and when it is killed, and what its clients saw of it.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tarfile
import tempfile
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
from tidelog_bench.peers.apache_kafka import ApacheKafka
from tidelog_bench.peers.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORIES = Path(__file__).parent / "directories"
SETTINGS = {
    **SMALL,
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # What was recorded gets old: nothing is to expire while a test looks at it.
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
HEAP = ("-Xmx400m", *FAST_START)
TOPICS = {"plain": 2, "compacted": 1, "transactions": 1}
GROUPS = ("classic", "consumer")
_BROKER, _GROUP = 4, 32  # types of config resources
_LONG_MS = 900_000  # no open transaction is aborted for its age


class Tidelog(Peer):
    """tidelog in the place of an Apache Kafka: its directory, its server.properties, its port."""

    name = "tidelog"

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__(kafka.folder, port=kafka.port)
        self._kafka = kafka

    def prepare(self) -> None:
        """Prepare the same files."""
        self._kafka.prepare()

    def command(self) -> Sequence[str]:
        """`tidelog serve` on Kafka's properties."""
        properties = str(self.folder / "server.properties")
        return [sys.executable, "-m", "tidelog", "serve", "-c", properties]


def lone(folder: Path) -> ApacheKafka:
    """One node, formatted as `kafka-storage` formats without options."""
    settings = {
        **SETTINGS,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return ApacheKafka(folder / "node", settings, HEAP)


def start(*nodes: Peer) -> None:
    """Start them together, for none of several serves alone."""
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
    _make_topics(AdminClient(at), replicas)
    producer = Producer({**at, "enable.idempotence": True})
    for number in range(400):
        producer.produce("plain", f"v{number}", key=f"k{number % 50}", partition=number % 2)
        producer.produce("compacted", f"v{number}", key=f"k{number % 10}")
    assert producer.flush(60) == 0
    _begin(at, "committed").commit_transaction(60)
    _begin(at, "aborted").abort_transaction(60)
    for group in GROUPS:
        _commit(at, group)
    for kind, name, key, value in (
        (_BROKER, "", "log.retention.bytes", "123456789"),
        (_GROUP, "consumer", "consumer.session.timeout.ms", "50000"),
    ):
        change = {"name": key, "config_operation": 0, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        answer = ask(_first(bootstrap), "IncrementalAlterConfigs", 1, resources=[resource])
        assert [each["error_code"] for each in answer["responses"]] == [0], answer
    return _begin(at, "open")


def _first(bootstrap: str) -> str:
    return bootstrap.partition(",")[0]


def _make_topics(admin: AdminClient, replicas: int) -> None:
    policies = {"compacted": {"cleanup.policy": "compact"}}
    made = admin.create_topics(
        [
            NewTopic(name, partitions, replicas, config=policies.get(name, {}))
            for name, partitions in TOPICS.items()
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


def _commit(at: dict[str, Any], group: str) -> None:
    consumer = Consumer(
        {
            **at,
            "group.id": group,
            "group.protocol": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["plain"])
    eventually(lambda: consumer.consume(50, 0.5), bool)
    consumer.commit(
        offsets=[Place("plain", 0, 120 + len(group)), Place("plain", 1, 7)], asynchronous=False
    )
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
            f"{name}-{number} {isolation}": _records(at, name, number, isolation)
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
        "offsets": {group: _offsets(admin, group) for group in GROUPS},
        "groups": sorted(
            [each["group_id"], each["group_type"], each["protocol_type"]]
            for address in addresses.values()
            for each in ask(address, "ListGroups", 5)["groups"]
        ),
        "settings": {
            f"{kind} {name}": _settings(_first(bootstrap), kind, name)
            for kind, name in ((2, "compacted"), (_BROKER, ""), (_GROUP, "consumer"))
        },
    }


def _records(at: dict[str, Any], name: str, number: int, isolation: str) -> list[list[Any]]:
    reader = Consumer(
        {**at, "group.id": "look", "enable.partition.eof": True, "isolation.level": isolation}
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


def _offsets(admin: AdminClient, group: str) -> list[list[Any]]:
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return sorted(
        [place.topic, place.partition, place.offset] for place in asked.result(60).topic_partitions
    )


def _settings(address: str, kind: int, name: str) -> dict[str, str]:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    (result,) = ask(address, "DescribeConfigs", 4, resources=resources)["results"]
    assert result["error_code"] == 0, result
    own = {2: 1, _BROKER: 3, _GROUP: 8}[kind]  # sources: of the topic, the cluster, the group
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
