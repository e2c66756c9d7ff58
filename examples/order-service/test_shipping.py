"""Paid orders are shipped (aiokafka): workers that share the work, and logs with holes."""

from __future__ import annotations

import asyncio

from shipping import Warehouse, worker

import tidelog
from tidelog.testing.records import TopicRecord, produce
from tidelog.testing.waits import wait_for_lag


def test_in_the_loop_of_the_test(order):
    """`tidelog.Cluster` starts in some hundredths of a second, without another process."""

    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            await cluster.create_topic("payments")
            servers, warehouse = cluster.bootstrap_servers, Warehouse()
            async with worker(servers, "payments", "shipping", warehouse):
                values = [order(n).to_bytes() for n in range(3)]
                await asyncio.to_thread(produce, servers, "payments", values)
                await warehouse.until(3)
                state = await cluster.wait_for(lambda state: state.group("shipping").offsets)
            assert state.group("shipping").members[0].client_id == "worker"

    asyncio.run(test())


def test_paid_orders_are_shipped(tidelog_bootstrap, tidelog_topic, tidelog_group_id, order):
    async def test() -> None:
        warehouse = Warehouse()
        async with worker(tidelog_bootstrap, tidelog_topic, tidelog_group_id, warehouse):
            await warehouse.until(3)
            where = (tidelog_bootstrap, tidelog_group_id, tidelog_topic)
            assert await asyncio.to_thread(wait_for_lag, *where) == 0
        assert warehouse.asked == ["0", "1", "2"]

    produce(tidelog_bootstrap, tidelog_topic, [order(n).to_bytes() for n in range(3)])
    asyncio.run(test())


def test_two_workers_share_the_partitions(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic_factory, tidelog_group_id, order
):
    topic = tidelog_topic_factory(partitions=4)

    async def test() -> None:
        warehouse = Warehouse()
        names = (tidelog_bootstrap, topic, tidelog_group_id, warehouse)
        async with worker(*names, "worker-a"), worker(*names, "worker-b"):
            await asyncio.to_thread(tidelog_cluster.wait_for, is_shared)
            records = [TopicRecord(order(n).to_bytes(), partition=n % 4) for n in range(8)]
            await asyncio.to_thread(produce, tidelog_bootstrap, topic, records)
            await warehouse.until(8)
        assert set(warehouse.shipped.values()) == {"worker-a", "worker-b"}

    def is_shared(state):
        members = state.group(tidelog_group_id).members
        return [len(member.assignment.get(topic, ())) for member in members] == [2, 2]

    asyncio.run(test())


def test_a_worker_that_hangs_is_replaced(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic, tidelog_group_id, order
):
    async def test() -> None:
        warehouse = Warehouse()
        names = (tidelog_bootstrap, tidelog_topic, tidelog_group_id, warehouse)
        produce(tidelog_bootstrap, tidelog_topic, [order(1).to_bytes()])
        async with worker(*names, "hung") as hung:
            await warehouse.until(1)
            hung.cancel()
        async with worker(*names, "next"):
            await asyncio.to_thread(tidelog_cluster.groups.expire, tidelog_group_id)
            produce(tidelog_bootstrap, tidelog_topic, [order(2).to_bytes()])
            await warehouse.until(2)
        assert warehouse.shipped["2"] == "next"

    asyncio.run(test())


def test_a_refused_commit_ships_nothing_twice(
    tidelog_bootstrap, tidelog_topic, tidelog_group_id, tidelog_faults, order
):
    async def test() -> None:
        warehouse = Warehouse()
        async with worker(tidelog_bootstrap, tidelog_topic, tidelog_group_id, warehouse):
            await warehouse.until(3)
            where = (tidelog_bootstrap, tidelog_group_id, tidelog_topic)
            await asyncio.to_thread(wait_for_lag, *where)
        assert list(warehouse.shipped) == ["0", "1", "2"]

    commits = tidelog_faults.on("OffsetCommit", group=tidelog_group_id).once()
    fault = commits.error("REBALANCE_IN_PROGRESS")
    produce(tidelog_bootstrap, tidelog_topic, [order(n).to_bytes() for n in range(3)])
    asyncio.run(test())
    assert fault.wait(1).hits == 1


def test_offsets_without_orders_are_no_lag(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic, tidelog_group_id, order
):
    """Compaction, aborted transactions and markers leave such offsets. The service's own lag must
    not count them as orders to ship."""

    async def test() -> None:
        warehouse = Warehouse()
        async with worker(tidelog_bootstrap, tidelog_topic, tidelog_group_id, warehouse):
            await warehouse.until(1)
            where = (tidelog_bootstrap, tidelog_group_id, tidelog_topic)
            assert await asyncio.to_thread(wait_for_lag, *where) == 0
        assert warehouse.asked == ["7"]

    tidelog_cluster.topics.make_gap(tidelog_topic, count=3)
    tidelog_cluster.topics.make_aborted(tidelog_topic, values=["never paid"])
    tidelog_cluster.topics.make_control_batch(tidelog_topic)
    (placed,) = produce(tidelog_bootstrap, tidelog_topic, [order(7).to_bytes()])
    assert placed.offset == 6
    asyncio.run(test())


def test_an_alarm_at_a_lag(
    tidelog_cluster, tidelog_bootstrap, tidelog_topic, tidelog_group_id, order
):
    """What monitoring would see, as values."""

    async def test() -> None:
        warehouse = Warehouse()
        async with worker(tidelog_bootstrap, tidelog_topic, tidelog_group_id, warehouse):
            await warehouse.until(1)
            where = (tidelog_bootstrap, tidelog_group_id, tidelog_topic)
            await asyncio.to_thread(wait_for_lag, *where)

    produce(tidelog_bootstrap, tidelog_topic, [order(1).to_bytes()])
    asyncio.run(test())
    produce(tidelog_bootstrap, tidelog_topic, [order(n).to_bytes() for n in range(2, 7)])
    group = tidelog_cluster.state().group(tidelog_group_id)
    assert (group.state, [one.lag for one in group.offsets]) == ("Empty", [5])
