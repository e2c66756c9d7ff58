"""Both doors of Python, as mypy checks them: `mypy --strict doors.py`."""

from __future__ import annotations

import asyncio

import tidelog


def blocking() -> int:
    """Code without asyncio: each call returns when it is done."""
    with tidelog.run(brokers=3) as cluster:
        cluster.topics.create("orders", partitions=2, config={"min.insync.replicas": 2})
        fault = cluster.faults.on("Produce", topic="orders").once().error("NOT_ENOUGH_REPLICAS")
        was_enabled: bool = fault.disable().is_enabled
        cluster.network.cut(1, 2)
        held: int = cluster.network.wait(1, 2)
        cluster.network.heal()
        cluster.devices.slow_disk(1, 0.01, "writes")
        cluster.devices.heal()
        cluster.clock.advance(hours=1)
        state = cluster.wait_for(lambda state: len(state.partition("orders").isr) == 3)
        leader: int = state.partition("orders").leader
        cluster.brokers[leader - 1].stop()
        cluster.reset()
        return int(was_enabled) + int(held < 1) + len(cluster.state().topics)


async def awaited() -> int:
    """The same names with `await`, in the loop of the test."""
    async with tidelog.Cluster(brokers=3) as cluster:
        await cluster.topics.create("orders", partitions=2, config={"min.insync.replicas": 2})
        faults = cluster.faults.on("Produce", topic="orders").once()
        fault = await faults.error("NOT_ENOUGH_REPLICAS")
        was_enabled: bool = (await fault.disable()).is_enabled
        await cluster.network.cut(1, 2)
        held: int = await cluster.network.wait(1, 2)
        await cluster.network.heal()
        await cluster.devices.slow_disk(1, 0.01, "writes")
        await cluster.devices.heal()
        await cluster.clock.advance(hours=1)
        state = await cluster.wait_for(lambda state: len(state.partition("orders").isr) == 3)
        leader: int = state.partition("orders").leader
        await cluster.brokers[leader - 1].stop()
        await cluster.reset()
        return int(was_enabled) + int(held < 1) + len((await cluster.state()).topics)


if __name__ == "__main__":
    print(blocking() + asyncio.run(awaited()))
