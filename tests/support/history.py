"""Tiered topics of tiny segments on one broker, for reads of their history."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition

import tidelog
from tidelog.embedded.tier_view import TierViewer
from tidelog_pipeline.replay import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SEGMENT_BYTES = 20_000
_NAMES = itertools.count()
_SETTINGS = {
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "remote.log.manager.task.interval.ms": "100",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}


@contextmanager
def broker(tiered: str, **settings: str) -> Iterator[str]:
    """A broker over this remote tier; its address."""
    given = {name.replace("_", "."): text for name, text in settings.items()}
    with tidelog.run(_SETTINGS | given, tiered=tiered) as cluster:
        yield cluster.bootstrap_servers


def create_tiered(servers: str, partitions: int = 1, **configs: str) -> str:
    """A new topic that keeps old events, and only its active segments local; its name."""
    name = f"history-{next(_NAMES)}"
    given = {
        "retention.ms": "-1",
        "remote.storage.enable": "true",
        "internal.segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        **{key.replace("_", "."): value for key, value in configs.items()},
    }
    asyncio.run(create_topic(servers, name, partitions, given))
    return name


def wait_until_remote(servers: str, topic: str) -> None:
    """Return when only active segments are local."""
    end = time.perf_counter() + 60
    with TierViewer(servers) as viewer:
        while any(view.local_bytes > SEGMENT_BYTES for view in viewer.look(topic)):
            assert time.perf_counter() < end, viewer.look(topic)
            time.sleep(0.05)


def produce(servers: str, topic: str, numbers: Iterable[int], **settings: str) -> None:
    """Records "<number> <300 bytes>" at 1000 + number ms, a fifth of them without a key."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **settings})
    for number in numbers:
        key = b"%d" % (number % 7) if number % 5 else None
        producer.produce(topic, b"%d " % number + bytes(300), key, timestamp=1000 + number)
        if number % 20 == 1:
            producer.flush()
    assert producer.flush(30) == 0


def consumed(servers: str, topic: str, partitions: int = 1) -> list[tuple]:
    """(partition, timestamp, key, value, headers) of committed records, in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            found.append(
                (
                    message.partition(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers(),
                )
            )
    consumer.close()
    return sorted(found, key=lambda each: each[0])
