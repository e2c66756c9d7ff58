"""An order service: reads orders, ships each one, commits its offsets."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer


class Warehouse:
    """Stands for a database: it outlives the service's process. Order numbers are unique in it."""

    def __init__(self) -> None:
        self.shipped: list[str] = []

    async def ship(self, order: str) -> None:
        await asyncio.sleep(0.2)  # the way to the database
        if order not in self.shipped:
            self.shipped.append(order)


def consumer_of(servers: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="shipping",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        # aiokafka 0.14 asks an old leader for its offsets again and again, until its metadata is
        # this old: with the default a partition may stand still for five minutes. (Found here.)
        metadata_max_age_ms=5000,
    )


async def serve(servers: str, warehouse: Warehouse) -> None:
    """Commit an order when it is shipped. A crash in between ships it again, which does nothing."""
    async with consumer_of(servers) as consumer:
        async for record in consumer:
            await warehouse.ship(record.value.decode())
            await consumer.commit()


async def serve_with_bug(servers: str, warehouse: Warehouse) -> None:
    """Commit an order before it is shipped. A crash in between loses it."""
    async with consumer_of(servers) as consumer:
        async for record in consumer:
            await consumer.commit()
            await warehouse.ship(record.value.decode())
