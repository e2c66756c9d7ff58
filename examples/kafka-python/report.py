"""A job that reports what was sold since its last run, with kafka-python."""

from __future__ import annotations

import json
from collections import Counter

from kafka import KafkaConsumer, TopicPartition


def report(servers: str, group: str = "report") -> Counter[str]:
    """Count sales by article, from the place of the last run to the present end."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        partitions = [TopicPartition("sales", n) for n in consumer.partitions_for_topic("sales")]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        sold: Counter[str] = Counter()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=1000).values():
                for record in records:
                    sale = json.loads(record.value)
                    sold[sale["article"]] += sale["count"]
        consumer.commit()
        return sold
    finally:
        consumer.close()
