"""Events into a topic, as fast as one Python producer goes: whole batches, built once.

The producer is aiokafka's, with its idempotence on; batches are filled here per partition, because
a `send` for each record costs ten times as much.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError
from aiokafka.partitioner import DefaultPartitioner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog_pipeline.flights import Event

BATCH_BYTES_MAX = 512 * 1024
BATCHES_IN_FLIGHT_MAX = 8
PROGRESS_EVERY = 5_000


async def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int,
    configs: dict[str, str],
    *,
    replication_factor: int = 1,
) -> None:
    """Create a topic.

    Raises:
        RuntimeError: the cluster has one of that name, which this must not mix its records with.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        new = NewTopic(topic, partitions, replication_factor, topic_configs=configs)
        answer = await admin.create_topics([new], timeout_ms=30_000)
        for _, code, *message in answer.topic_errors:
            if code == TopicAlreadyExistsError.errno:
                text = f"topic {topic} is there already; delete it or choose another broker"
                raise RuntimeError(text)
            if code:
                text = f"topic {topic} could not be created: error {code} {message}"
                raise RuntimeError(text)
    finally:
        await admin.close()


async def replay(
    bootstrap_servers: str,
    topic: str,
    events: Iterable[Event],
    progress: Callable[[int], None] = lambda _count: None,
) -> dict[int, int]:
    """Write all events with their own timestamps and wait until every batch is acknowledged.

    Returns the records written per partition. `progress` is called after every few thousand.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        max_batch_size=BATCH_BYTES_MAX,
        enable_idempotence=True,
        acks="all",
    )
    await producer.start()
    try:
        return await _fill(producer, topic, events, progress)
    finally:
        await producer.stop()


async def _fill(
    producer: AIOKafkaProducer,
    topic: str,
    events: Iterable[Event],
    progress: Callable[[int], None],
) -> dict[int, int]:
    partitions = sorted(await producer.partitions_for(topic))
    choose = DefaultPartitioner()
    partition_of: dict[bytes, int] = {}
    batches = {partition: producer.create_batch() for partition in partitions}
    written = dict.fromkeys(partitions, 0)
    in_flight: list[asyncio.Future[object]] = []

    async def send(partition: int) -> None:
        batch, batches[partition] = batches[partition], producer.create_batch()
        written[partition] += batch.record_count()
        batch.close()
        in_flight.append(await producer.send_batch(batch, topic, partition=partition))
        if len(in_flight) > BATCHES_IN_FLIGHT_MAX:
            await in_flight.pop(0)

    count = 0
    for event in events:
        partition = partition_of.get(event.key)
        if partition is None:
            partition = partition_of[event.key] = choose(event.key, partitions, partitions)
        timestamp, key, value = event.timestamp_ms, event.key, event.value
        if batches[partition].append(key=key, value=value, timestamp=timestamp) is None:
            await send(partition)
            if batches[partition].append(key=key, value=value, timestamp=timestamp) is None:
                message = f"an event of {len(value)} bytes does not fit a batch"
                raise ValueError(message)
        count += 1
        if count % PROGRESS_EVERY == 0:
            progress(PROGRESS_EVERY)
            await asyncio.sleep(0)
    for partition in partitions:
        if batches[partition].record_count():
            await send(partition)
    await asyncio.gather(*in_flight)
    progress(count % PROGRESS_EVERY)
    return written
