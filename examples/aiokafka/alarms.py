"""Watches temperatures and raises an alarm for each machine that is too hot, with aiokafka."""

from __future__ import annotations

import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

HOT = 90.0


async def watch(servers: str) -> None:
    """Runs until it is cancelled. An alarm may be raised twice, and is never forgotten."""
    consumer = AIOKafkaConsumer(
        "temperatures",
        bootstrap_servers=servers,
        group_id="alarms",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", retry_backoff_ms=20)
    async with consumer, producer:
        async for record in consumer:
            reading = json.loads(record.value)
            if reading["celsius"] > HOT:
                await producer.send_and_wait("alarms", record.value, key=record.key)
            await consumer.commit()
