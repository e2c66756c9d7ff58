"""Every client library does its everyday work: one text, five clients (clients/protocol.py)."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from compat.clients.protocol import encoded
from compat.eventually import eventually
from compat.line_process import WorkerError
from tidelog_protocol.records import Codec, iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat.brokers import Broker
    from compat.conftest import Client

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000
SESSION_TIMEOUT_MS = 5000


def make(index: int, **more: Any) -> dict[str, Any]:
    return {
        "key": encoded(b"key-%d" % index),
        "value": encoded(b"value-%d" % index * 20),
        "headers": [["n", encoded(b"%d" % index)], ["same", encoded(b"1")], ["same", encoded(b"")]],
        "timestamp": TIME + index,
        "partition": 0,
        **more,
    }


ODD = [
    make(0),
    make(1, key=None),
    make(2, value=None),
    make(3, key=None, value=None, headers=[]),
    make(4, key=encoded(b""), value=encoded(b"")),
    make(5, headers=[["é", encoded(bytes(range(256)))]]),
    *[make(index) for index in range(6, 40)],
]


def produce(client: Client, topic: str, records: list[dict[str, Any]], **options: Any) -> Any:
    settings = {"codec": "none", "acks": "all", "idempotent": False, **options}
    return client.call("produce", topic=topic, records=records, **settings)["offsets"]


def consume(client: Client, topic: str, count: int, start: int | str = "earliest") -> Any:
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "from": start, "count": count}
    return client.call("consume", **fields)["records"]


@pytest.fixture
def topic(client: Client, fresh: Callable[[str], str]) -> str:
    name = fresh("topic")
    client.call("create_topic", topic=name, partitions=1, configs={})
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_went(client: Client, topic: str, codec: str) -> None:
    records = list(ODD)
    if client.name in ("aiokafka", "kafka-python"):  # they refuse to send neither key nor value
        records[3] = make(3)
    if client.name != "kafka-python":  # it refuses headers without a value
        records[6] = make(6, headers=[["null", None]])
    sent = produce(client, topic, records, codec=codec)
    assert sent == [[0, offset] for offset in range(len(records))]
    expected = [{**record, "offset": offset} for offset, record in enumerate(records)]
    assert consume(client, topic, len(records)) == expected
    assert consume(client, topic, 3, start=37) == expected[37:]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, topic: str, acks: str) -> None:
    records = [make(index) for index in range(10)]
    sent = produce(client, topic, records, acks=acks)
    if acks != "0":
        assert sent == [[0, offset] for offset in range(10)]
    assert [record["value"] for record in consume(client, topic, 10)] == [
        record["value"] for record in records
    ]


def test_idempotent_producer(client: Client, topic: str) -> None:
    for start in (0, 50):
        records = [make(index) for index in range(start, start + 50)]
        sent = produce(client, topic, records, idempotent=True)
        assert sent == [[0, offset] for offset in range(start, start + 50)]
    keys = [record["key"] for record in consume(client, topic, 100)]
    assert keys == [encoded(b"key-%d" % index) for index in range(100)]


def test_a_topic_is_created_by_use(client: Client, fresh: Callable[[str], str]) -> None:
    name = fresh("auto")
    assert produce(client, name, [make(0)]) == [[0, 0]]
    assert client.call("describe_topic", topic=name)["partitions"] == 1


def test_records_of_a_megabyte(client: Client, topic: str) -> None:
    values = [encoded(bytes([65 + index]) * 1_000_000) for index in range(4)]
    records = [make(index, value=value) for index, value in enumerate(values)]
    produce(client, topic, records)
    assert [record["value"] for record in consume(client, topic, 4)] == values


def test_a_record_above_the_topic_limit_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(WorkerError, match=r"(?i)too.?large|larger"):
        produce(client, topic, [make(0, value=encoded(b"x" * 1_500_000))])
    produce(client, topic, [make(1)])
    assert consume(client, topic, 1)[0]["offset"] == 0


def test_offsets_by_timestamp(client: Client, topic: str) -> None:
    records = [make(index, timestamp=TIME + 1000 * index) for index in range(20)]
    produce(client, topic, records)

    def offset_at(at: str | int) -> int:
        return client.call("offsets", topic=topic, partition=0, at=at)["offset"]

    assert offset_at("earliest") == 0
    assert offset_at("latest") == 20
    assert offset_at(TIME) == 0
    assert offset_at(TIME + 6500) == 7
    assert offset_at(TIME + 7000) == 7
    # Nothing that late: clients say "none" as -1, or as the log's end (franz-go, librdkafka).
    assert offset_at(TIME + 1_000_000) in (-1, 20)


def test_topics_are_created_described_and_deleted(
    client: Client, fresh: Callable[[str], str]
) -> None:
    name = fresh("admin")
    configs = {"cleanup.policy": "compact", "segment.bytes": "2000000"}
    client.call("create_topic", topic=name, partitions=3, configs=configs)
    with pytest.raises(WorkerError, match=r"(?i)exist"):
        client.call("create_topic", topic=name, partitions=3, configs={})
    described = client.call("describe_topic", topic=name)
    assert described["partitions"] == 3
    assert name in client.call("topics")["topics"]
    client.call("delete_topic", topic=name)
    eventually(lambda: client.call("topics")["topics"], lambda topics: name not in topics)
    with pytest.raises(WorkerError, match=r"(?i)unknown"):
        client.call("delete_topic", topic=name)


def test_invalid_topics_are_refused(client: Client, fresh: Callable[[str], str]) -> None:
    with pytest.raises(WorkerError, match=r"(?i)invalid"):
        client.call("create_topic", topic="no/such+name", partitions=1, configs={})
    bad = {"retention.ms": "soon"}
    with pytest.raises(WorkerError, match=r"(?i)invalid.?config"):
        client.call("create_topic", topic=fresh("bad"), partitions=1, configs=bad)


def test_records_are_deleted_up_to_an_offset(client: Client, topic: str) -> None:
    produce(client, topic, [make(index) for index in range(30)])
    deleted = client.call("delete_records", topic=topic, partition=0, before=12)
    assert deleted["low_watermark"] == 12
    assert client.call("offsets", topic=topic, partition=0, at="earliest")["offset"] == 12
    assert [record["offset"] for record in consume(client, topic, 18)] == list(range(12, 30))


def test_commit_and_resume(client: Client, topic: str, fresh: Callable[[str], str]) -> None:
    group = fresh("group")
    join = {"group": group, "topic": topic, "session_timeout_ms": 6000}
    produce(client, topic, [make(index) for index in range(10)])
    client.call("join", member="first", **join)
    eventually(lambda: consumed(client, "first"), lambda seen: len(seen) == 10)
    client.call("commit", member="first")
    client.call("leave", member="first")
    assert client.call("committed", group=group, topic=topic, partition=0)["offset"] == 10
    produce(client, topic, [make(index) for index in range(10, 15)])
    client.call("join", member="second", **join)
    seen = eventually(lambda: consumed(client, "second"), lambda seen: len(seen) >= 5)
    client.call("leave", member="second")
    assert [record["offset"] for record in seen] == [10, 11, 12, 13, 14]


def consumed(client: Client, member: str) -> list[dict[str, Any]]:
    return client.call("consumed", member=member)["records"]


def test_a_killed_member_of_three_is_replaced(
    client: Client, doomed_client: Client, fresh: Callable[[str], str]
) -> None:
    name = fresh("three")
    client.call("create_topic", topic=name, partitions=6, configs={})
    join = {"group": fresh("group"), "topic": name, "session_timeout_ms": SESSION_TIMEOUT_MS}
    members = [(client, "a"), (client, "b"), (doomed_client, "c")]
    for program, member in members:
        program.call("join", member=member, **join)

    def shares(of: list[tuple[Client, str]]) -> list[list[int]]:
        return [one.call("assignment", member=name)["partitions"] for one, name in of]

    def spread(sizes: list[int]) -> Callable[[list[list[int]]], bool]:
        return lambda seen: (
            sorted(map(len, seen)) == sizes and sorted(itertools.chain(*seen)) == list(range(6))
        )

    eventually(lambda: shares(members), spread([2, 2, 2]))
    doomed_client.process.kill()
    eventually(lambda: shares(members[:2]), spread([3, 3]))
    produce(client, name, [make(index, partition=index % 6) for index in range(60)])
    seen = eventually(
        lambda: consumed(client, "a") + consumed(client, "b"), lambda seen: len(seen) >= 60
    )
    assert sorted((record["partition"], record["offset"]) for record in seen) == [
        (partition, offset) for partition in range(6) for offset in range(10)
    ]
    for member in ("a", "b"):  # before one leaves: whoever gets new partitions forgets the old
        client.call("commit", member=member)
    for member in ("a", "b"):
        client.call("leave", member=member)


@pytest.mark.parametrize("target", CODECS)
def test_a_topics_own_codec(
    client: Client, broker: Broker, fresh: Callable[[str], str], target: str
) -> None:
    """The broker compresses anew what came in another codec; clients read both the same."""
    name = fresh("recompressed")
    configs = {"compression.type": "uncompressed" if target == "none" else target}
    client.call("create_topic", topic=name, partitions=1, configs=configs)
    records = [make(index) for index in range(40)]
    for source in ("none", "gzip"):
        produce(client, name, records, codec=source, idempotent=True)
    expected = [{**record, "offset": at} for at, record in enumerate(records + records)]
    assert consume(client, name, 80) == expected
    (segment,) = broker.folder.glob(f"**/{name}-0/*.log")
    batches = [header for _, header in iter_batches(segment.read_bytes())]
    assert {Codec(header.codec).name.lower() for header in batches} == {target}


def test_the_time_of_the_append(client: Client, fresh: Callable[[str], str]) -> None:
    name = fresh("appended")
    configs = {"message.timestamp.type": "LogAppendTime"}
    client.call("create_topic", topic=name, partitions=1, configs=configs)
    before = time.time_ns() // 1_000_000
    for codec in ("none", "lz4"):
        produce(client, name, [make(0), make(1)], codec=codec)
    after = time.time_ns() // 1_000_000
    records = consume(client, name, 4)
    assert all(before <= record["timestamp"] <= after for record in records)
    assert [record["key"] for record in records] == [make(0)["key"], make(1)["key"]] * 2


def test_a_static_member_comes_back_to_its_partitions(
    client: Client, doomed_client: Client, fresh: Callable[[str], str]
) -> None:
    """KIP-345: killed and back within its session timeout, nobody else is rebalanced."""
    name = fresh("static")
    client.call("create_topic", topic=name, partitions=6, configs={})
    join = {"group": fresh("group"), "topic": name, "session_timeout_ms": 30_000}
    client.call("join", member="stays", instance="one", **join)
    doomed_client.call("join", member="goes", instance="two", **join)

    def share(of: Client, member: str) -> list[int]:
        return of.call("assignment", member=member)["partitions"]

    eventually(lambda: len(share(doomed_client, "goes")), (3).__eq__)
    eventually(lambda: len(share(client, "stays")), (3).__eq__)
    kept, left = share(client, "stays"), share(doomed_client, "goes")
    doomed_client.process.kill()
    # Its session has 30 s left. As a third member the new one would get two partitions.
    client.call("join", member="returns", instance="two", **join)
    eventually(lambda: share(client, "returns"), left.__eq__, 29)
    assert share(client, "stays") == kept
    produce(client, name, [make(index, partition=index % 6) for index in range(12)])
    eventually(lambda: len(consumed(client, "returns")), (6).__eq__)
    eventually(lambda: len(consumed(client, "stays")), (6).__eq__)
    for member in ("returns", "stays"):
        client.call("leave", member=member)
