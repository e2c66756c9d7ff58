"""The test's application: orders come in, workers ship them, faults strike."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from service import Warehouse

ORDERS = 20


async def shop(simulation, service) -> None:
    """Two workers ship while orders come in, and faults strike."""
    servers, warehouse = simulation.bootstrap_servers, Warehouse()

    def no_order_is_shipped_twice() -> None:
        assert len(set(warehouse.shipped)) == len(warehouse.shipped), warehouse.shipped[-1]

    simulation.invariant(no_order_is_shipped_twice)  # checked after each step
    for name in ("worker-a", "worker-b"):
        simulation.process(name, lambda: service(servers, warehouse))
    ordered = []
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(ORDERS):
            order = f"order-{number}"
            await producer.send_and_wait("orders", order.encode(), key=order.encode())
            ordered.append(order)
            await asyncio.sleep(0.3)
    await simulation.calm()  # no fault will come, all brokers run
    for _ in range(60):
        await asyncio.sleep(0.5)
        if len(warehouse.shipped) == len(ordered):
            return
    lost = sorted(set(ordered) - set(warehouse.shipped))
    raise AssertionError(f"never shipped: {lost}")
