"""Shipping sends what is paid: workers of one consumer group (aiokafka) around a warehouse."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalGenerationError, RebalanceInProgressError
from orders import Order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOT_OURS_ANY_MORE = (CommitFailedError, IllegalGenerationError, RebalanceInProgressError)


class Warehouse:
    """Stands for a database in which order numbers are unique: an order is shipped once."""

    def __init__(self) -> None:
        self.shipped: dict[str, str] = {}
        """The worker that shipped each order."""
        self.asked: list[str] = []
        self._changed = asyncio.Condition()

    async def ship(self, order: Order, worker: str) -> None:
        async with self._changed:
            self.asked.append(order.number)
            self.shipped.setdefault(order.number, worker)
            self._changed.notify_all()

    async def until(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until so many orders are shipped."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: len(self.shipped) >= count)


async def ship(servers: str, topic: str, group: str, warehouse: Warehouse, worker: str) -> None:
    """Ship, then commit: a crash in between ships again, which the warehouse knows."""
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        client_id=worker,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        heartbeat_interval_ms=100,
        retry_backoff_ms=20,
    ) as consumer:
        async for record in consumer:
            await warehouse.ship(Order.from_bytes(record.value), worker)
            place = TopicPartition(record.topic, record.partition)
            with suppress(*NOT_OURS_ANY_MORE):  # another worker ships it again
                await consumer.commit({place: record.offset + 1})


@asynccontextmanager
async def worker(
    servers: str, topic: str, group: str, warehouse: Warehouse, name: str = "worker"
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker in the background of this loop."""
    task = asyncio.create_task(ship(servers, topic, group, warehouse, name))
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
