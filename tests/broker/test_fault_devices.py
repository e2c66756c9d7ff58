"""Disks and remote stores that are full, fail or are slow, as brokers and clients see them."""

from __future__ import annotations

import asyncio
import errno
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

import tidelog
from support.clusters import FAST, run
from tidelog.control.errors import ControlError
from tidelog.control.faults.rules import Trigger
from tidelog_storage.os_files import OsFileSystem

if TYPE_CHECKING:
    from pathlib import Path

FEW = {"rlmm.config.remote.log.metadata.topic.num.partitions": 1}


def test_a_broker_with_a_full_disk_goes_and_another_one_leads() -> None:
    """As in Kafka, a log directory that fails ends the broker; with space it starts again."""

    async def test() -> None:
        async with tidelog.Cluster(FAST, brokers=3) as cluster:
            await cluster.create_topic("t", 1, 3)
            leader = (await cluster.state()).partition("t", 0).leader
            node = cluster.brokers[leader - 1]
            await cluster.devices.fill_disk(leader, topic="t")
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, acks="all"
            ) as producer:
                await producer.send_and_wait("t", b"kept")
            assert not node.is_running
            assert "No space left on device" in str(node.failure)
            await cluster.devices.heal(leader)
            await node.start()
            await cluster.wait_for(lambda state: len(state.partition("t", 0).isr) == 3)

    run(test)


def test_a_slow_disk_slows_what_is_written_and_a_trigger_counts() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            await cluster.create_topic("t")
            await cluster.create_topic("other")
            await cluster.devices.slow_disk(
                node_id, 0.2, "writes", topic="t", trigger=Trigger(times=1)
            )
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("other", b"fast")
                (before,) = await cluster.devices.list()
                assert before.hits == 0
                started = time.monotonic()
                await producer.send_and_wait("t", b"slow")
                assert time.monotonic() - started >= 0.2
                await producer.send_and_wait("t", b"fast")
            (after,) = await cluster.devices.list()
            assert after.hits == 1
            await cluster.devices.heal(device="store")
            assert len(await cluster.devices.list()) == 1
            await cluster.devices.heal()
            assert await cluster.devices.list() == ()

    run(test)


def test_a_fault_that_is_added_again_has_its_own_count() -> None:
    """They shared one, so that a trigger such as `times` had used up the second before it began."""

    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            await cluster.create_topic("t")
            for _ in range(2):
                await cluster.devices.slow_disk(node_id, 0.001, "writes", topic="t")
                await cluster.topics.make_tombstones("t", ["k"])
            first, second = await cluster.devices.list()
            assert first.hits > second.hits >= 1

    run(test)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_slow_disk_does_not_slow_the_end_of_its_broker(how: str, tmp_path: Path) -> None:
    """A stop syncs all that was written, and waits for a sync under way."""
    slow_s = 30.0

    async def test() -> None:
        async with tidelog.Cluster(data_dir=str(tmp_path)) as cluster:
            (node,) = cluster.brokers
            await cluster.create_topic("t")
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"record")
            await cluster.devices.slow_disk(node.node_id, slow_s, "syncs", topic="t")
            flushing = asyncio.ensure_future(cluster.topics.flush("t"))
            assert await cluster.devices.wait(node.node_id, "disk") >= 1
            started = time.monotonic()
            await (node.stop() if how == "stop" else node.kill())
            assert time.monotonic() - started < slow_s
            await asyncio.gather(flushing, return_exceptions=True)

    run(test)


def test_a_failing_store_is_tried_again_until_it_works() -> None:
    settings = FEW | {"remote.log.manager.task.retry.backoff.ms": 10}

    async def test() -> None:
        async with tidelog.Cluster(settings, tiered=True) as cluster:
            node_id = cluster.brokers[0].node_id
            config = {"remote.storage.enable": True, "local.retention.ms": 1}
            await cluster.create_topic("t", config=config)
            async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                for value in (b"a", b"b"):
                    await producer.send_and_wait("t", value, partition=0)
            await cluster.devices.fail_store(node_id, "copies", trigger=Trigger(times=1))
            await cluster.devices.throttle_store(node_id, 1000)
            await cluster.tier.copy("t")
            hits = [each.hits for each in await cluster.devices.list()]
            assert hits[0] == 1
            assert hits[1] >= 1
            copies = (await cluster.state()).partition("t").remote  # the one that failed as well
            copied = [each for each in copies if each.state == "COPY_SEGMENT_FINISHED"]
            assert [each.end_offset for each in copied] == [1]
            assert await cluster.topics.retain("t") == 1
            await cluster.devices.heal()
            await cluster.devices.fail_store(node_id, "fetches", trigger=Trigger(times=1))
            await cluster.devices.slow_store(node_id, 0.05, "fetches")
            assert await values(cluster, 2) == [b"a", b"b"]
            hits = [each.hits for each in await cluster.devices.list()]
            assert min(hits) >= 1, hits
            await cluster.devices.heal(node_id)
            assert "fetch_segment" not in vars(storage_of(cluster))

    run(test)


def storage_of(cluster: tidelog.Cluster) -> Any:
    node: Any = cluster.brokers[0]
    return node.server.tier.storage


async def values(cluster: tidelog.Cluster, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition("t", 0)])
    found = []
    async with consumer, asyncio.timeout(60):
        while len(found) < count:
            found.append((await consumer.getone()).value)
    return found


def test_each_operation_of_the_files_can_fail_and_changes_nothing(tmp_path: Path) -> None:
    files = OsFileSystem()
    path = f"{tmp_path}/a"
    file = files.open(path, create=True)
    file.append([b"abc"])
    asked: list[str] = []

    def fail(operation: str, where: str) -> None:
        asked.append(operation)
        raise OSError(errno.ENOSPC, "full", where)

    files.trouble = fail
    for operation in (
        lambda: file.append([b"d"]),
        lambda: file.pread(0, 3),
        lambda: file.view(0, 3),
        lambda: file.pread_into(0, memoryview(bytearray(3))),
        file.fsync,
        lambda: files.open(f"{tmp_path}/b", create=True),
        lambda: files.write_atomic(path, b"other"),
    ):
        with pytest.raises(OSError, match="full"):
            operation()
    assert asked == ["writes", "reads", "reads", "reads", "syncs", "writes", "writes"]
    files.trouble = None
    assert file.pread(0, 9) == b"abc"
    assert files.list(str(tmp_path)) == ["a"]
    file.close()


def test_hits_that_do_not_come_or_cannot_come_are_an_error() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            with pytest.raises(ControlError, match="the disk of broker 1 has no fault") as raised:
                await cluster.devices.wait(node_id, "disk")
            assert raised.value.field == "device"
            await cluster.create_topic("t")
            await cluster.devices.fail_disk(node_id, topic="t", trigger=Trigger(times=1))
            with pytest.raises(
                ControlError, match="has 0 of 2 hits after 0 s; its faults together"
            ):
                await cluster.devices.wait(node_id, "disk", 2, seconds=0)
            for args, field in (({"hits": 0}, "hits"), ({"seconds": -1}, "seconds")):
                with pytest.raises(ControlError) as raised:
                    await cluster.devices.wait(node_id, "disk", **args)
                assert raised.value.field == field

    run(test)


def test_faults_that_cannot_be_are_refused() -> None:
    async def test() -> None:
        async with tidelog.Cluster() as cluster:
            node_id = cluster.brokers[0].node_id
            own = {"broker": node_id}
            for call, args, field in (
                ("fill_disk", {"broker": 9}, "broker"),
                ("throttle_disk", own, "call"),
                ("fail_store", own, "broker"),  # it has no remote tier
                ("fail_disk", {**own, "operations": "copies"}, "operations"),
                ("slow_disk", own, "seconds"),
                ("slow_disk", {**own, "seconds": 0}, "seconds"),
                ("slow_disk", {**own, "seconds": -1}, "seconds"),
                ("throttle_store", {**own, "bytes_per_second": 0}, "bytes_per_second"),
                ("fill_disk", {**own, "trigger": {"times": 0}}, "trigger.times"),
                ("fill_disk", {**own, "topic": "nope"}, "topic"),
            ):
                with pytest.raises(ControlError) as raised:
                    await cluster.ask(f"devices.{call}", args)
                assert raised.value.field == field, args
            assert await cluster.devices.list() == ()

    run(test)
