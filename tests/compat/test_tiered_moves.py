"""The metadata of remote segments, when another broker goes on with a directory.

The stores have files of their own: Apache Kafka's LocalTieredStorage, tidelog's directory store. So
each reads what is local, and what it copied itself.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from compat.eventually import eventually
from compat.jvm import require_jars
from compat.moving import LONE, Tidelog, end, lone, records_of, start
from tidelog_bench.peers.tiered import kafkas_tier
from tidelog_storage.remote.api import RemoteSegment, SegmentState, SegmentUpdate
from tidelog_storage.remote.metadata_records import MetadataEvent, decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog_bench.peers.peer import Peer

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.reference,
    pytest.mark.compat,
    pytest.mark.timeout(600),
]

TOPIC, METADATA = "tiered", "__remote_log_metadata"
RECORDS = 10  # of each segment


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Peer]]:
    require_jars()
    settings = {
        **LONE,
        **kafkas_tier(tmp_path / "node"),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "200",
    }
    kafka = lone(tmp_path, settings)
    made: list[Peer] = [kafka, Tidelog(kafka)]
    yield made
    end(signal.SIGKILL, *made)


def events(at: dict[str, Any]) -> list[MetadataEvent]:
    reader = Consumer({**at, "group.id": "look", "enable.partition.eof": True})
    reader.assign([Place(METADATA, 0, 0)])
    found: list[MetadataEvent] = []
    while (message := reader.poll(60)) is not None:
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            reader.close()
            return found
        found.append(decode(message.value()))
    raise AssertionError(f"{METADATA} ends nowhere")


def copied(at: dict[str, Any]) -> list[tuple[int, int]]:
    """First and last offset of each segment whose copy was finished."""
    seen = events(at)
    begun = {each.segment_id: each for each in seen if isinstance(each, RemoteSegment)}
    finished = [
        begun[each.segment_id]
        for each in seen
        if isinstance(each, SegmentUpdate) and each.state is SegmentState.COPY_SEGMENT_FINISHED
    ]
    return sorted((segment.start_offset, segment.end_offset) for segment in finished)


def write_segment(at: dict[str, Any], number: int) -> None:
    """A new segment begins with these records: they are 10 s later."""
    producer = Producer(at)
    timestamp = int(time.time() * 1000) - 3_600_000 + number * 10_000
    for each in range(RECORDS):
        producer.produce(TOPIC, f"{number} {each}", partition=0, timestamp=timestamp)
    assert producer.flush(60) == 0


def segments(count: int) -> list[tuple[int, int]]:
    return [(number * RECORDS, number * RECORDS + RECORDS - 1) for number in range(count)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_segment_is_copied_twice(how: signal.Signals, nodes: list[Peer]) -> None:
    first, second = nodes
    at = {"bootstrap.servers": first.bootstrap}
    start(first)
    admin = AdminClient(at)
    configs = {"remote.storage.enable": "true", "segment.ms": "1000"}
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)]).values()
    made.result(60)
    for number in range(3):
        write_segment(at, number)
    eventually(lambda: copied(at), segments(2).__eq__)
    for number, (here, there) in enumerate([(first, second), (second, first)], 3):
        seen = records_of(at, TOPIC, 0, "read_committed")
        end(how, here)
        start(there)
        assert records_of(at, TOPIC, 0, "read_committed") == seen
        write_segment(at, number)
        eventually(lambda: copied(at), segments(number).__eq__)
