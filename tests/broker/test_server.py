"""One whole broker in this loop: its start, its end, and what is left between."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.embedded.cluster import broker_properties
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer, StartError
from tidelog_protocol.apis import API
from tidelog_protocol.messages import metadata_records
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_protocol.messages.cluster import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    MetadataRequest,
)
from tidelog_protocol.messages.data import FetchRequest, ProduceRequest
from tidelog_protocol.messages.groups import FindCoordinatorRequest
from tidelog_protocol.messages.metadata_records import (
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


def make_server(folder: Path, **settings: str) -> BrokerServer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    port = None if "listeners" in named else 0
    properties = broker_properties(named, port=port, data_dir=str(folder))
    return BrokerServer(BrokerConfig.from_properties(properties), system_runtime())


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(250):
            await test()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks without an owner: {left}"

    asyncio.run(bounded())


async def create_topic(client: WireClient, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert response.topics[0].error_code == 0, response.topics[0].error_message


async def produce(client: WireClient, topic: str, value: bytes) -> int:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value)])
    partition = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    response = await client.ask(request, 9)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 0
    return int(answer.base_offset)


def fetch_request(topic: str, offset: int, max_wait_ms: int) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    data = FetchRequest.FetchTopic(topic=topic, partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[data], session_epoch=-1)


def test_what_is_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        cluster_ids = set()
        for incarnation in range(3):
            server = make_server(tmp_path)
            await server.start()
            async with await WireClient.connect(server.bootstrap_servers) as client:
                if incarnation == 0:
                    await create_topic(client, "t")
                assert await produce(client, "t", b"value") == incarnation
                response = await client.ask(fetch_request("t", 0, 0), 12)
                records = response.responses[0].partitions[0].records
                assert bytes(records).count(b"value") == incarnation + 1
                cluster = await client.ask(DescribeClusterRequest(), 1)
                cluster_ids.add(cluster.cluster_id)
            await server.stop()
            assert (tmp_path / ".kafka_cleanshutdown").exists()
        assert len(cluster_ids) == 1

    run(test)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_loop_has_a_turn_between_the_logs_that_a_stop_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            for number in range(5):
                await create_topic(client, f"t{number}")
                await produce(client, f"t{number}", b"value")
        monotonic, late_s, turns, closed_at = server.runtime.clock.monotonic, 0, 0, []
        close = Log.close

        def slow_close(log: Log) -> None:
            nonlocal late_s
            close(log)
            if log.topic_partition.topic in server.metadata.image.topics:  # not the metadata's
                closed_at.append(turns)
                late_s += 1

        async def other_work() -> None:
            nonlocal turns
            while not stopping.done():
                await asyncio.sleep(0)
                turns += 1
                if is_cancelled and len(closed_at) == 3:
                    stopping.cancel()

        monkeypatch.setattr(server.runtime.clock, "monotonic", lambda: monotonic() + late_s)
        monkeypatch.setattr(Log, "close", slow_close)
        stopping = asyncio.ensure_future(server.stop())
        await other_work()
        assert len(set(closed_at)) == len(closed_at) >= 3, "a turn after each log"
        assert stopping.cancelled() == is_cancelled
        assert (tmp_path / ".kafka_cleanshutdown").exists() != is_cancelled
        again = make_server(tmp_path)
        await again.start()
        await again.stop()

    run(test)


NOT_SERVED = {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
NOT_SERVED |= {71, 72}
"""Tables without a handler: what nodes of a cluster ask each other, and clients' metrics,
which need an endpoint."""


def test_every_other_table_of_the_codec_is_served(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            response = await client.ask(ApiVersionsRequest(), 0)
        await server.stop()
        assert [entry.api_key for entry in response.api_keys] == sorted(API.keys() - NOT_SERVED)

    run(test)


def test_a_waiting_fetch_is_woken_by_a_produce_and_hurried_by_a_request(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        async with (
            await WireClient.connect(server.bootstrap_servers) as consumer,
            await WireClient.connect(server.bootstrap_servers) as producer,
        ):
            await create_topic(producer, "t")
            consumer.send(fetch_request("t", 0, 60_000), 12)
            await produce(producer, "t", b"woken")
            woken = await consumer.receive()
            assert b"woken" in bytes(woken.responses[0].partitions[0].records)
            consumer.send(fetch_request("t", 1, 60_000), 12)
            consumer.send(MetadataRequest(topics=[]), 12)
            hurried = await consumer.receive()
            assert hurried.responses[0].partitions[0].error_code == 0
            assert (await consumer.receive()).brokers
        await server.stop()

    run(test)


def test_stop_does_not_wait_for_waiting_fetches(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            await create_topic(client, "t")
            client.send(fetch_request("t", 0, 60_000), 12)
            await client.ask_nothing()
            async with asyncio.timeout(50):
                await server.stop()
            assert await client.closed()

    run(test)


def test_a_client_may_come_before_the_broker_is_ready(tmp_path: Path) -> None:
    """Its connection is accepted and its request waits."""

    async def test() -> None:
        server = make_server(tmp_path)
        early: list[WireClient] = []
        listen = server._listen

        async def listen_and_connect() -> None:
            await listen()
            early.append(await WireClient.connect(server.bootstrap_servers))
            early[0].send(MetadataRequest(topics=[]), 12)

        server._listen = listen_and_connect  # type: ignore[method-assign]
        await server.start()
        assert (await early[0].receive()).brokers
        await early[0].close()
        await server.stop()

    run(test)


@pytest.mark.parametrize("damage", ["lock", "owner", "not a folder"])
def test_a_start_that_fails_says_why_and_can_be_tried_again(tmp_path: Path, damage: str) -> None:
    async def test() -> None:
        folder = tmp_path / "data"
        files = system_runtime().files
        server = make_server(folder)
        await server.start()
        await server.stop()
        repair: Callable[[], object]
        if damage == "lock":
            repair = files.lock(f"{folder}/.lock").release
        elif damage == "owner":
            repair = swap(folder / "meta.properties", b"node.id=1", b"node.id=7")
        else:
            folder.rename(tmp_path / "away")
            folder.write_text("")
            repair = lambda: (folder.unlink(), (tmp_path / "away").rename(folder))  # noqa: E731
        failed = make_server(folder)
        with pytest.raises(StartError) as refused:
            await failed.start()
        assert str(folder) in str(refused.value)
        assert "\n" not in str(refused.value)
        repair()
        again = make_server(folder)
        await again.start()
        await again.stop()

    run(test)


def test_an_unknown_level_of_a_feature_refuses_the_start_and_changes_no_metadata(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        await server.metadata.commit([FeatureLevelRecord(name="new.version", feature_level=3)])
        await server.stop()
        folder = tmp_path / "__cluster_metadata-0"

        def kept() -> dict[str, bytes]:  # snapshots of producers are made of the log again
            return {
                path.name: path.read_bytes()
                for path in folder.iterdir()
                if path.suffix != ".snapshot"
            }

        before = kept()
        assert {"quorum-state", "00000000000000000000.log"} <= before.keys()
        for _ in range(2):
            with pytest.raises(StartError) as refused:
                await make_server(tmp_path).start()
            assert "new.version 3" in str(refused.value)
            assert "kafka-features downgrade --feature new.version=0" in str(refused.value)
            assert "\n" not in str(refused.value)
        assert kept() == before

    run(test)


def test_an_unknown_record_of_the_metadata_refuses_the_start_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        await server.metadata.commit([ZkMigrationStateRecord(zk_migration_state=0)])
        await server.stop()
        log = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
        before = log.read_bytes()
        with monkeypatch.context() as older:
            older.setattr(
                metadata_records,
                "RECORDS",
                {key: table for key, table in metadata_records.RECORDS.items() if key != 21},
            )
            with pytest.raises(StartError, match=r"unknown api key 21: .*\Z") as refused:
                await make_server(tmp_path).start()
        assert "\n" not in str(refused.value)
        assert log.read_bytes() == before
        again = make_server(tmp_path)
        await again.start()
        await again.stop()

    run(test)


def swap(path: Path, old: bytes, new: bytes) -> Callable[[], object]:
    """Change a file; what is returned changes it back."""
    before = path.read_bytes()
    assert old in before
    path.write_bytes(before.replace(old, new))
    return lambda: path.write_bytes(before)


def test_clients_get_broker_addresses_of_their_own_listener(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(
            tmp_path,
            listeners="OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
            advertised_listeners="OUTSIDE://broker.example:1234,INSIDE://:0",
            inter_broker_listener_name="INSIDE",
            listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        )
        await server.start()
        assert server.bootstrap_servers == "broker.example:1234"
        outside, inside = (listener.port for listener in server._listeners.bound.values())
        wanted = {outside: ("broker.example", 1234), inside: (os.uname().nodename, inside)}
        (broker,) = server.metadata.image.brokers.values()
        assert (broker.host, broker.port) == wanted[inside]  # for other brokers
        assert [endpoint[0] for endpoint in broker.endpoints] == ["INSIDE", "OUTSIDE"]
        for port, address in wanted.items():
            async with await WireClient.connect(f"127.0.0.1:{port}") as client:
                answers = [
                    (await client.ask(MetadataRequest(topics=[]), 12)).brokers[0],
                    (await client.ask(DescribeClusterRequest(), 1)).brokers[0],
                    (
                        await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                    ).coordinators[0],
                ]
            assert [(answer.host, answer.port) for answer in answers] == [address] * 3
        await server.stop()

    run(test)


def test_listeners_and_advertised_addresses(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(
            tmp_path / "1",
            listeners="PLAINTEXT://127.0.0.1:0",
            advertised_listeners="PLAINTEXT://broker.example:1234",
            broker_rack="r1",
        )
        await server.start()
        assert server.bootstrap_servers == "broker.example:1234"
        port = server._listeners.bound["PLAINTEXT"].port
        async with await WireClient.connect(f"127.0.0.1:{port}") as client:
            response = await client.ask(MetadataRequest(topics=[]), 12)
            (broker,) = response.brokers
            assert (broker.host, broker.port, broker.rack) == ("broker.example", 1234, "r1")
        await server.stop()
        everywhere = make_server(tmp_path / "2", listeners="PLAINTEXT://:0")
        await everywhere.start()
        assert everywhere.bootstrap_servers.startswith(f"{os.uname().nodename}:")
        await everywhere.stop()
        with pytest.raises(StartError, match="SSL"):
            await make_server(tmp_path / "3", listeners="SSL://127.0.0.1:0").start()

    run(test)


def test_a_failed_disk_is_reported_to_on_failure(tmp_path: Path) -> None:
    async def test() -> None:
        server = make_server(tmp_path)
        await server.start()
        assert server.failure is None
        told: list[str] = []
        server.on_failure = lambda: told.append("stop")
        error = OSError("the disk is gone")
        server._fail(error)
        server._fail(OSError("again"))
        assert server.failure is error
        assert told == ["stop"]
        await server.stop()

    run(test)
