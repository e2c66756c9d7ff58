"""Records are written, read and compared without a client library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tidelog
from tidelog.testing import topics
from tidelog.testing.records import (
    TopicRecord,
    assert_records,
    produce,
    produce_json_lines,
    read_all,
)
from tidelog.testing.waits import wait_for_lag, wait_until_tiered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def cluster() -> Iterator[tidelog.RunningCluster]:
    with tidelog.run({"offsets.topic.num.partitions": 1}, tiered=True) as running:
        yield running


def test_records_come_back_as_they_were_written(cluster: tidelog.RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("plain", partitions=2)
    full = TopicRecord(b"2", b"k", (("h", b"x"), ("n", None)), partition=1, timestamp=17)
    placed = produce(servers, "plain", [b"1", full, "text", None])
    found = read_all(servers, "plain")
    assert found == placed
    assert [(one.partition, one.offset, one.value) for one in found] == [
        (0, 0, b"1"),
        (0, 1, b"text"),
        (0, 2, None),
        (1, 0, b"2"),
    ]
    assert read_all(servers, "plain", partition=1) == [placed[3]]
    assert_records(servers, "plain", [b"1", "text", None, full])
    assert_records(servers, "plain", [full, None, b"1", "text"], in_order=False)


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("127.0.0.1:1", r"no answer from 127\.0\.0\.1:1: .*refused"),
        ("here", "'here' is not HOST:PORT"),
    ],
)
def test_an_address_that_does_not_answer_is_named(servers: str, reason: str) -> None:
    for attempt in (
        lambda: topics.create(servers, "t"),
        lambda: topics.delete(servers, "t"),
        lambda: produce(servers, "t", [b"1"]),
        lambda: read_all(servers, "t"),
        lambda: wait_for_lag(servers, "g", "t"),
        lambda: wait_until_tiered(servers, "t", 0),
    ):
        with pytest.raises(tidelog.ClusterError, match=reason):
            attempt()


def test_many_records_take_several_batches(cluster: tidelog.RunningCluster) -> None:
    cluster.create_topic("large")
    values = [b"%d" % number * 100_000 for number in range(8)]
    produce(cluster.bootstrap_servers, "large", values)
    assert [one.value for one in read_all(cluster.bootstrap_servers, "large")] == values


def test_a_difference_is_named(cluster: tidelog.RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("different")
    produce(servers, "different", [b"1", b"2"])
    with pytest.raises(AssertionError, match=r"different: record 1 is .*b'2'.* expected .*b'3'"):
        assert_records(servers, "different", [b"1", b"3"])
    with pytest.raises(AssertionError, match="2 records, expected 1"):
        assert_records(servers, "different", [b"1"])
    with pytest.raises(AssertionError, match=r"b'3'.* is missing"):
        assert_records(servers, "different", [b"3", b"1"], in_order=False)
    with pytest.raises(tidelog.ClusterError, match="topic absent: UNKNOWN_TOPIC_OR_PARTITION"):
        read_all(servers, "absent")
    with pytest.raises(tidelog.ClusterError, match="different has no partition 4"):
        produce(servers, "different", [TopicRecord(b"1", partition=4)])


def test_an_answer_that_is_lost_writes_nothing_twice(cluster: tidelog.RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("lost")
    cluster.faults.on("Produce", topic="lost").once().error("NOT_ENOUGH_REPLICAS")
    produce(servers, "lost", [b"1"])
    cluster.faults.on("Produce", topic="lost").once().drop_connection(after_work=True)
    with pytest.raises(tidelog.ClusterError, match="lost-0"):
        produce(servers, "lost", [b"2"])
    cluster.faults.clear()
    assert_records(servers, "lost", [b"1", b"2"], timeout_s=60)


def test_aborted_records_and_markers_are_shown_on_request(cluster: tidelog.RunningCluster) -> None:
    from confluent_kafka import Producer

    servers = cluster.bootstrap_servers
    cluster.create_topic("transactions")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "kit"})
    producer.init_transactions(30)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"gone", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce("transactions", value)
        producer.flush(30)
        end(30)
    produce(servers, "transactions", [b"plain"])
    assert_records(servers, "transactions", [b"kept", b"plain"])
    raw = read_all(servers, "transactions", committed=False, control=True)
    assert [one.control or one.value for one in raw] == [
        b"kept",
        "COMMIT",
        b"gone",
        "ABORT",
        b"plain",
    ]


def test_json_lines_are_written(cluster: tidelog.RunningCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("seeded")
    lines = [
        {"topic": "seeded", "value": "1", "key": "k", "headers": {"h": "x"}, "timestamp": 17},
        {"topic": "seeded", "value": {"id": 2}},
    ]
    file = tmp_path / "seed.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    assert produce_json_lines(servers, file) == 2
    first = TopicRecord(b"1", b"k", (("h", b"x"),), timestamp=17)
    assert_records(servers, "seeded", [first, b'{"id": 2}'])
    with pytest.raises(ValueError, match="line 2: it has no value"):
        produce_json_lines(servers, ['{"value": "3"}', '{"key": "k"}'], "seeded")
    assert len(read_all(servers, "seeded")) == 2


def test_lag_is_awaited(cluster: tidelog.RunningCluster) -> None:
    from confluent_kafka import Consumer, TopicPartition

    servers = cluster.bootstrap_servers
    cluster.create_topic("lagging")
    produce(servers, "lagging", [b"1", b"2"])
    with pytest.raises(TimeoutError, match="group readers has lag 2 in lagging"):
        wait_for_lag(servers, "readers", "lagging", timeout_s=0)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 1)], asynchronous=False)
    assert wait_for_lag(servers, "readers", "lagging", 1) == 1
    consumer.close()


def test_the_remote_tier_is_awaited(cluster: tidelog.RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    cluster.create_topic("tiered", config={"remote.storage.enable": True})
    produce(servers, "tiered", [b"1", b"2"])
    with pytest.raises(TimeoutError, match="offset 1 is not in the remote tier"):
        wait_until_tiered(servers, "tiered", 1, timeout_s=0)
    cluster.tier.copy("tiered")
    wait_until_tiered(servers, "tiered", 1)
