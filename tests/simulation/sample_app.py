"""An application for tests: a consumer that commits an order before it is shipped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

if TYPE_CHECKING:
    from tidelog.simulation import Simulation

ORDERS = 10


async def commits_too_early(simulation: Simulation) -> None:
    """Loses an order if it is killed between the commit and the work."""
    servers = simulation.bootstrap_servers
    shipped: set[bytes] = set()

    async def ship() -> None:
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="shipping",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        async with consumer:
            async for order in consumer:
                await consumer.commit()
                await asyncio.sleep(0.2)
                shipped.add(order.value)

    simulation.process("shipping", ship)
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(ORDERS):
            await producer.send_and_wait("orders", b"%d" % number)
    await simulation.calm()
    await asyncio.sleep(15)
    assert len(shipped) == ORDERS, f"lost: {ORDERS - len(shipped)}"


async def sends(simulation: Simulation) -> None:
    """An application without a fault."""
    async with AIOKafkaProducer(bootstrap_servers=simulation.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"order")
