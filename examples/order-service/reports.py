"""Reports read topics from one end to the other (kafka-python): the stock, and what was sold."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition
from orders import Order

if TYPE_CHECKING:
    from collections.abc import Iterator


def stock(servers: str, topic: str) -> dict[str, int]:
    """Return the newest count of each item; the topic may be compacted, at any time."""
    counts: dict[str, int] = {}
    for record in _records(servers, topic):
        if record.value is None:
            counts.pop(record.key.decode(), None)
        else:
            counts[record.key.decode()] = int(record.value)
    return counts


def sold_cents(servers: str, topic: str, since_ms: int = 0) -> int:
    """Return what the orders since a time are worth together."""
    return sum(
        Order.from_bytes(record.value).cents for record in _records(servers, topic, since_ms)
    )


def _records(servers: str, topic: str, since_ms: int = 0) -> Iterator[Any]:
    """Yield the committed records of a topic up to its present end.

    The end is reached by position: the last offsets may have no record (markers, compaction).
    """
    with closing(
        KafkaConsumer(
            bootstrap_servers=servers,
            client_id="reports",
            enable_auto_commit=False,
            isolation_level="read_committed",
            reconnect_backoff_max_ms=500,
        )
    ) as consumer:
        places = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        starts = consumer.offsets_for_times(dict.fromkeys(places, since_ms))
        for place in places:
            found = starts[place]
            consumer.seek(place, ends[place] if found is None else found.offset)
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(timeout_ms=1000).items():
                yield from (record for record in records if record.offset < ends[place])
