"""The service and three brokers run in the loop of the test. pytest's plugin of anyio runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from alarms import watch

import tidelog

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def cluster():
    async with tidelog.Cluster(brokers=3, min_insync_replicas=2) as cluster:
        await cluster.create_topic("temperatures")
        await cluster.create_topic("alarms")
        yield cluster


@pytest.fixture
async def service(cluster):
    """The service, as long as the test."""
    task = asyncio.create_task(watch(cluster.bootstrap_servers))
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def measure(cluster: tidelog.Cluster, machine: str, *temperatures: float) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 20}
    async with AIOKafkaProducer(**options) as producer:
        for celsius in temperatures:
            reading = json.dumps({"machine": machine, "celsius": celsius}).encode()
            await producer.send_and_wait("temperatures", reading, key=machine.encode())


async def alarms(cluster: tidelog.Cluster, count: int) -> list[dict]:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
    async with asyncio.timeout(30), AIOKafkaConsumer("alarms", **options) as consumer:
        return [json.loads((await consumer.getone()).value) for _ in range(count)]


def has_read_all(state: tidelog.ClusterState) -> bool:
    (committed,) = state.group("alarms").offsets
    return committed.offset == 3


async def test_only_hot_machines_raise_an_alarm(cluster, service):
    await measure(cluster, "press", 70.0, 95.5, 80.0)
    assert await alarms(cluster, 1) == [{"machine": "press", "celsius": 95.5}]
    state = await cluster.wait_for(has_read_all)
    assert len(state.group("alarms").members) == 1


async def test_the_service_goes_on_when_its_leader_stops(cluster, service):
    await measure(cluster, "press", 91.0)
    assert len(await alarms(cluster, 1)) == 1
    state = await cluster.state()
    leader = state.partition("temperatures").leader
    await cluster.brokers[leader - 1].stop()
    await measure(cluster, "press", 92.0)
    assert [alarm["celsius"] for alarm in await alarms(cluster, 2)] == [91.0, 92.0]


async def test_an_alarm_is_repeated_until_enough_brokers_have_it(cluster, service):
    faults = cluster.faults.on("Produce", topic="alarms").times(2)
    fault = await faults.error("NOT_ENOUGH_REPLICAS")
    await measure(cluster, "press", 99.0)
    assert await alarms(cluster, 1) == [{"machine": "press", "celsius": 99.0}]
    assert (await fault.wait(2)).calls == 3
