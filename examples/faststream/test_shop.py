"""The application on a real broker, where FastStream's `TestKafkaBroker` has none: partitions,
offsets and failures are Kafka's. pytest's plugin of anyio runs it.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from shop import Order, new_broker

from tidelog.testing.records import read_all
from tidelog.testing.waits import wait_for_lag

pytestmark = pytest.mark.anyio
CUPS = {"order": 1, "text": "2 cups are on the way"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def shop(tidelog_cluster):
    """The application, as long as the test, on empty topics."""
    tidelog_cluster.create_topic("orders", partitions=3)
    tidelog_cluster.create_topic("confirmations")
    async with new_broker(tidelog_cluster.bootstrap_servers) as broker:
        await broker.start()
        yield broker
    tidelog_cluster.reset()


async def confirmations(servers: str) -> list[dict]:
    """What customers got, once all orders are done. The kit's calls block: a thread makes them."""
    await asyncio.to_thread(wait_for_lag, servers, "shop", "orders")
    return [json.loads(record.value) for record in read_all(servers, "confirmations")]


async def test_an_order_is_confirmed(shop, tidelog_bootstrap):
    await shop.publish(Order(id=1, article="cups", count=2), topic="orders")
    assert await confirmations(tidelog_bootstrap) == [CUPS]


async def test_what_is_no_order_is_skipped(shop, tidelog_bootstrap):
    await shop.publish("two cups, please", topic="orders", partition=0)
    await shop.publish(Order(id=1, article="cups", count=2), topic="orders", partition=0)
    assert await confirmations(tidelog_bootstrap) == [CUPS]


async def test_a_confirmation_survives_a_lost_connection(shop, tidelog_bootstrap, tidelog_faults):
    fault = tidelog_faults.on("Produce", topic="confirmations").once().drop_connection()
    await shop.publish(Order(id=1, article="cups", count=2), topic="orders")
    assert await confirmations(tidelog_bootstrap) == [CUPS]
    assert fault.wait(1).calls == 2
