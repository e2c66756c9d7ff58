"""Periodic work of logs and of the remote tier, done when a test says so."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import tidelog
from support.clusters import run
from tidelog.control.errors import ControlError

FEW = {"rlmm.config.remote.log.metadata.topic.num.partitions": 1}
NEVER = {"log.retention.check.interval.ms": 3_600_000, "log.cleaner.backoff.ms": 3_600_000}
HOUR_MS = 3_600_000


async def produce(cluster: tidelog.Cluster, topic: str, *values: str, **more: Any) -> None:
    """Produce records `key=value` one by one; no value is a tombstone."""
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as one:
        for text in values:
            key, _, value = text.partition("=")
            await one.send_and_wait(topic, value.encode() or None, key=key.encode(), **more)


async def read(cluster: tidelog.Cluster, topic: str) -> list[str]:
    """All records from the start as `key=value`."""
    servers = cluster.bootstrap_servers
    end = (await cluster.state(topics=[topic])).partition(topic).log().log_end_offset
    found: list[str] = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        while await consumer.position(next(iter(consumer.assignment()))) < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [f"{one.key.decode()}={(one.value or b'').decode()}" for one in records]
    return found


def test_rolled_segments_are_deleted_by_retention_at_once_on_all_replicas() -> None:
    async def test() -> None:
        async with tidelog.Cluster(NEVER, brokers=2) as cluster:
            await cluster.create_topic("t", config={"retention.ms": HOUR_MS})
            old = int(time.time() * 1000) - 2 * HOUR_MS
            await produce(cluster, "t", "a=1", "b=2", timestamp_ms=old)
            await cluster.wait_for(
                lambda state: all(log.high_watermark == 2 for log in state.partition("t").logs)
            )
            await cluster.topics.roll("t")
            await produce(cluster, "t", "c=3")
            await cluster.topics.flush("t", 0)
            state = await cluster.state()
            assert [len(log.segments) for log in state.partition("t").logs] == [2, 2]
            assert state.partition("t").log().recovery_point == 3
            assert await cluster.topics.retain("t") == 1
            logs = (await cluster.state()).partition("t").logs
            assert [log.log_start_offset for log in logs] == [2, 2]
            assert await cluster.topics.retain() == 0
            assert await read(cluster, "t") == ["c=3"]

    run(test)


def test_a_compacted_topic_keeps_the_newest_record_of_each_key() -> None:
    async def test() -> None:
        async with tidelog.Cluster(NEVER) as cluster:
            await cluster.create_topic("t", config={"cleanup.policy": "compact"})
            await produce(cluster, "t", "a=1", "b=1", "a=2", "b=", "a=3")
            assert await cluster.topics.compact("t") == 1
            assert await read(cluster, "t") == ["b=", "a=3"]
            assert await cluster.topics.compact() == 0
            await cluster.create_topic("plain")
            with pytest.raises(ControlError, match="topic: plain is not compacted"):
                await cluster.topics.compact("plain")

    run(test)


def test_a_copy_returns_when_the_records_are_remote_and_expiry_when_they_are_gone() -> None:
    async def test() -> None:
        async with tidelog.Cluster(FEW | NEVER, tiered=True) as cluster:
            config = {"remote.storage.enable": True, "local.retention.ms": 1}
            await cluster.create_topic("t", config=config)
            await produce(cluster, "t", "a=1", "b=2", "c=3")
            await cluster.tier.copy("t")
            partition = (await cluster.state()).partition("t")
            (remote,) = partition.remote
            assert (remote.start_offset, remote.end_offset) == (0, 2)
            assert remote.state == "COPY_SEGMENT_FINISHED"
            await produce(cluster, "t", "d=4")
            assert await cluster.topics.retain("t") == 1
            log = (await cluster.state()).partition("t").log()
            assert (log.log_start_offset, log.local_log_start_offset) == (0, 3)
            assert await read(cluster, "t") == ["a=1", "b=2", "c=3", "d=4"]

            await cluster.tier.copy("t")
            await cluster.tier.expire("t")
            assert len((await cluster.state()).partition("t").remote) == 2
            await alter(cluster, "t", "retention.ms", "1")
            await cluster.tier.expire("t")
            partition = (await cluster.state()).partition("t")
            assert partition.remote == ()
            assert partition.log().log_start_offset == 4

            await cluster.create_topic("local")
            with pytest.raises(ControlError, match="topic: local has no remote tier"):
                await cluster.tier.copy("local")

    run(test)


async def alter(cluster: tidelog.Cluster, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic, and wait until its log has it."""
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        config = {"remote.storage.enable": "true", "local.retention.ms": "1", name: value}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])
    finally:
        await admin.close()
    await cluster.wait_for(lambda state: state.topic(topic).config[name] == value)


@pytest.mark.parametrize(
    ("arguments", "field", "status"),
    [
        ({"topic": "none"}, "topic", 404),
        ({"topic": "t", "partition": 1}, "partition", 404),
        ({"topic": "t", "partition": -1}, "partition", 404),
        ({"partition": 0}, "partition", 400),
        ({"topic": 1}, "topic", 400),
    ],
)
@pytest.mark.parametrize("call", ["topics.roll", "topics.compact", "tier.copy"])
def test_a_refused_call_names_the_field(
    call: str, arguments: dict[str, Any], field: str, status: int, cluster: tidelog.RunningCluster
) -> None:
    with pytest.raises(ControlError) as raised:
        cluster.ask(call, arguments)
    assert (raised.value.field, raised.value.status) == (field, status)


def test_without_a_tier_a_copy_says_what_to_do(cluster: tidelog.RunningCluster) -> None:
    with pytest.raises(ControlError, match="start them with tiered=True") as raised:
        cluster.tier.copy("t")
    assert raised.value.status == 409


def test_records_are_deleted_and_a_moved_partition_gets_its_preferred_leader() -> None:
    async def test() -> None:
        async with tidelog.Cluster(brokers=3) as cluster:
            await cluster.create_topic("t", replication_factor=1)
            await produce(cluster, "t", "a=1", "b=2")
            await cluster.topics.delete_records("t", 0, 1)
            assert await read(cluster, "t") == ["b=2"]
            with pytest.raises(ControlError, match="before_offset: OFFSET_OUT_OF_RANGE"):
                await cluster.topics.delete_records("t", 0, 5)

            before = (await cluster.state()).partition("t").leader
            others = [node.node_id for node in cluster.brokers if node.node_id != before]
            await cluster.topics.move("t", 0, [others[0], before])
            await cluster.wait_for(lambda state: len(state.partition("t").isr) == 2)
            await cluster.topics.elect("t", 0)
            await cluster.wait_for(lambda state: state.partition("t").leader == others[0])
            assert await read(cluster, "t") == ["b=2"]
            with pytest.raises(ControlError, match="replicas: INVALID_REPLICA_ASSIGNMENT"):
                await cluster.topics.move("t", 0, [9])
            with pytest.raises(ControlError, match="t has no partition 1"):
                await cluster.topics.elect("t", 1)

    run(test)


@pytest.fixture(scope="module")
def cluster() -> Any:
    with tidelog.run() as running:
        running.create_topic("t")
        yield running


def test_an_unclean_election_loses_what_the_new_leader_never_had() -> None:
    async def test() -> None:
        # Of three brokers none is given up for dead, and only a cut link makes a replica late.
        quick = {"replica.lag.time.max.ms": 1000, "broker.session.timeout.ms": 60_000}
        async with tidelog.Cluster(quick, brokers=3) as cluster:
            await cluster.create_topic("t", replication_factor=1)
            controller = (await cluster.state()).controller
            leader, other = (each for each in (1, 2, 3) if each != controller)
            await cluster.topics.move("t", 0, [leader, other])
            await cluster.wait_for(lambda state: len(state.partition("t").isr) == 2)
            await cluster.topics.elect("t", 0)
            await produce(cluster, "t", "a=1")
            await cluster.wait_for(
                lambda state: [log.log_end_offset for log in state.partition("t").logs] == [1, 1]
            )

            await cluster.network.cut(leader, other)
            await produce(cluster, "t", "b=2")  # acknowledged once the other has left the ISR
            await cluster.wait_for(lambda state: state.partition("t").isr == (leader,))
            await cluster.brokers[leader - 1].stop()
            await cluster.network.heal()
            await cluster.wait_for(lambda state: state.partition("t").leader == -1)
            with pytest.raises(ControlError, match="PREFERRED_LEADER_NOT_AVAILABLE"):
                await cluster.topics.elect("t", 0)
            await cluster.topics.elect("t", 0, unclean=True)
            await cluster.wait_for(lambda state: state.partition("t").leader == other)
            assert await read(cluster, "t") == ["a=1"]

            await cluster.brokers[leader - 1].start()
            await cluster.wait_for(lambda state: set(state.partition("t").isr) == {leader, other})
            logs = (await cluster.state()).partition("t").logs
            assert [log.log_end_offset for log in logs] == [1, 1]

    run(test)
