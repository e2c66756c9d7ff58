"""A client on a compacted topic: the newest value of each key, wherever it begins to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat.brokers import Tidelog
from compat.eventually import eventually
from support.compaction import PARTITION
from tidelog_storage.checkpoints import OffsetCheckpoint
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0",
}
KEYS = 10
COUNT = 600
NOW = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Tidelog]:
    settings = {"log.cleaner.backoff.ms": "50", "log.initial.task.delay.ms": "0"}
    broker = Tidelog(tmp_path / "broker", settings)
    broker.start()
    yield broker
    broker.stop()


def client(broker: Tidelog, **more: object) -> dict:
    common = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    return common | {name.replace("_", "."): value for name, value in more.items()}


def consumer_of(broker: Tidelog) -> Consumer:
    return Consumer(client(broker, group_id="g", enable_auto_commit=False))


def read(broker: Tidelog, start: int) -> list[tuple[int, bytes, bytes | None]]:
    """Everything from an offset on."""
    consumer = consumer_of(broker)
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60)
    consumer.assign([TopicPartition("t", 0, start)])
    found: list[tuple[int, bytes, bytes | None]] = []
    while not found or found[-1][0] < end - 1:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def compacted_to(broker: Tidelog) -> int | None:
    path = broker.folder / "data" / "cleaner-offset-checkpoint"
    return OffsetCheckpoint(OsFileSystem(), str(path)).read().get(PARTITION)


def active_base(broker: Tidelog) -> int:
    return max(int(path.stem) for path in (broker.folder / "data" / "t-0").glob("*.log"))


def test_readers_of_a_compacted_topic(broker: Tidelog) -> None:
    topic = NewTopic("t", 1, 1, config=TOPIC)
    admin = AdminClient(client(broker))
    admin.create_topics([topic])["t"].result(60)
    producer = Producer(client(broker, linger_ms=0, enable_idempotence=True))
    expected = {}
    for index in range(COUNT):
        key, value = b"k%d" % (index % KEYS), b"%d" % index
        producer.produce("t", value, key, timestamp=NOW + index)
        expected[key] = value
        if index % 7 == 0:
            producer.flush()
    producer.flush()

    base = active_base(broker)
    assert base > 0
    eventually(lambda: compacted_to(broker) == base, bool, 60)
    everything = read(broker, 0)
    assert len([row for row in everything if row[0] < base]) <= KEYS
    assert {key: value for _, key, value in everything} == expected
    offsets = [offset for offset, _, _ in everything]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == COUNT - 1
    gap = offsets[0] - 1
    assert gap > 0
    for start in (1, gap, offsets[3] + 1):
        assert read(broker, start) == [row for row in everything if row[0] >= start]
    consumer = consumer_of(broker)
    for index in (0, gap, offsets[5]):
        (found,) = consumer.offsets_for_times([TopicPartition("t", 0, NOW + index)], 20)
        assert found.offset == min(offset for offset in offsets if offset >= index)
    consumer.close()

    broker.kill()
    broker.start()
    again = read(broker, 0)
    assert {key: value for _, key, value in again} == expected
    assert set(again) <= set(everything)
