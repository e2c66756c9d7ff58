"""librdkafka through confluent-kafka, in a Python process of its own.

`python -m tidelog_bench.loads.librdkafka produce|consume SETTINGS WORK` (both JSON) is that
process; its result is one JSON object. Python's own cost of a record caps the rate: what the rows
show is the broker's cost of librdkafka's batches and fetches.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tidelog_bench.loads.load import Batches, Load, Moved, Work, output_of

if TYPE_CHECKING:
    from tidelog_bench.peers.peer import Served

__all__ = ["Librdkafka"]


class Librdkafka(Load):
    """The C client."""

    name = "librdkafka"

    def produce(self, peer: Served, work: Work) -> Moved:
        """Idempotent, acks=all."""
        return _run("produce", peer, work)

    def consume(self, peer: Served, work: Work) -> Moved:
        """All partitions from the start, without a group."""
        return _run("consume", peer, work)


def _run(op: str, peer: Served, work: Work) -> Moved:
    module = [sys.executable, "-m", "tidelog_bench.loads.librdkafka"]
    settings = {"bootstrap.servers": peer.bootstrap}
    if peer.authority is not None:
        settings |= {"security.protocol": "ssl", "ssl.ca.location": str(peer.authority)}
    output = output_of([*module, op, json.dumps(settings), json.dumps(work)])
    figures = json.loads(output)
    return Moved(figures["records"], figures["seconds"])


def produce(broker: dict[str, str], work: Work) -> dict[str, Any]:
    """Produce all records; time from the first call to the last acknowledgement."""
    from confluent_kafka import Producer  # noqa: PLC0415

    settings: dict[str, Any] = {
        **broker,
        "enable.idempotence": True,
        "queue.buffering.max.messages": 500_000,
    }
    if work.batches.bytes_max is not None:
        settings["batch.size"] = work.batches.bytes_max
        settings["batch.num.messages"] = 100_000
    if work.batches.linger_ms is not None:
        settings["linger.ms"] = work.batches.linger_ms
    producer = Producer(settings)
    value = bytes(index % 251 for index in range(work.record_bytes))
    failed: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    producer.produce(work.topic, value, on_delivery=delivered)
    producer.flush()
    started = time.perf_counter()
    for sent in range(1, work.records):
        while True:
            try:
                producer.produce(work.topic, value, partition=sent % work.partitions)
            except BufferError:
                producer.poll(0.05)
            else:
                break
        if sent % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    assert not failed, failed[0]
    assert left == 0, f"{left} records were not acknowledged"
    return {"records": work.records, "seconds": seconds}


def consume(broker: dict[str, str], work: Work) -> dict[str, Any]:
    """Consume all records; time from the first ones to the last."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            **broker,
            "group.id": "bench",
            "enable.auto.commit": False,
            # It fetches ahead of Python; at its default bound of 64 MB it would then pause for a
            # whole second (fetch.queue.backoff.ms), and the faster broker would look the slower.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign(
        [TopicPartition(work.topic, index, OFFSET_BEGINNING) for index in range(work.partitions)]
    )
    first = 0
    records = 0
    started = time.perf_counter()
    while records < work.records:
        messages = consumer.consume(min(10_000, work.records - records), 20.0)
        assert messages, f"{records} of {work.records} records came"
        records += sum(message.error() is None for message in messages)
        if not first:
            first, started = records, time.perf_counter()
    seconds = time.perf_counter() - started
    consumer.close()
    return {"records": records - first, "seconds": seconds}


def main(arguments: list[str]) -> None:
    """Run one measurement in this process."""
    op, broker, described = arguments
    topic, partitions, records, record_bytes, batches = json.loads(described)
    work = Work(topic, partitions, records, record_bytes, Batches(*batches))
    print(json.dumps({"produce": produce, "consume": consume}[op](json.loads(broker), work)))


if __name__ == "__main__":
    main(sys.argv[1:])
