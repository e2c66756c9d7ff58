"""Settings of a broker that change while it runs (KIP-226)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelog
from support.certificates import authority
from support.clusters import run, until
from support.metadata import broker_config, cluster
from support.wire_client import WireClient
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.config.broker import ALTERABLE_KEYS, update_mode
from tidelog.dynamic_settings import DynamicSettings
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

BROKER = 4
# What Kafka 4.3.1's brokers change while they run (DynamicBrokerConfig.dynamicConfigUpdateModes).
KAFKAS = Path(__file__).parent / "vectors/dynamic_broker_configs.txt"


def image_of(**settings: str) -> ClusterImage:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return cluster()._replace(broker_configs={"": named} if named else {})


def test_what_kafka_changes_while_it_runs_changes_here_too() -> None:
    kafkas = dict(line.split() for line in KAFKAS.read_text().splitlines())
    assert {name: update_mode(name) for name in kafkas if name in ALTERABLE_KEYS} == kafkas


def test_a_part_follows_from_its_beginning() -> None:
    seen: list[int] = []
    settings = DynamicSettings(broker_config(max_connections="7"))
    settings.follow(lambda config: seen.append(config.max_connections))
    old, new = image_of(), image_of(max_connections="5")
    settings.on_image(MetadataDelta(old, image_of()), image_of())
    settings.on_image(MetadataDelta(old, new), new)
    settings.follow(lambda config: seen.append(-config.max_connections))
    settings.on_image(MetadataDelta(new, old), old)
    assert seen == [7, 5, -5, 7, -7]


def test_a_setting_that_cannot_be_read_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[BrokerConfig] = []
    settings = DynamicSettings(broker_config())
    settings.follow(seen.append)
    image = image_of(max_connections="many")
    settings.on_image(MetadataDelta(None, image), image)
    assert len(seen) == 1
    assert "max.connections" in caplog.text


async def alter(bootstrap: str, **settings: str) -> None:
    """Change the settings of all brokers."""
    config = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="",
        configs=[
            config(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    async with await WireClient.connect(bootstrap) as client:
        response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [one.error_message for one in response.responses] == [None]


def compactors() -> list[str]:
    """The running tasks that compact."""
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return sorted(name for name in names if name.startswith("maintenance-compaction"))


def test_a_running_broker_follows_and_so_does_its_next_start(tmp_path: Path) -> None:
    async def test() -> None:
        kept = {"log.cleaner.backoff.ms": "1"}
        async with tidelog.Cluster(kept, data_dir=tmp_path) as cluster:
            await cluster.create_topic("t")
            server: Any = cluster.brokers[0].server
            assert compactors() == ["maintenance-compaction-0"]
            await alter(
                cluster.bootstrap_servers,
                log_cleaner_threads="2",
                max_connections="50",
                max_connections_per_ip="40",
                producer_id_expiration_ms="5",
                transaction_partition_verification_enable="false",
            )
            await until(lambda: compactors() == [f"maintenance-compaction-{n}" for n in (0, 1)])
            assert server._connections.connections_max == 50
            assert server._connections.connections_per_ip_max == 40
            assert server._transactions.config.transaction_partition_verification_enable is False
            assert {log.producers.expiration_ms for log in server._logs.loaded()} == {5}
        async with tidelog.Cluster(kept, data_dir=tmp_path) as cluster:
            server = cluster.brokers[0].server
            assert len(compactors()) == 2
            assert server._connections.connections_max == 50
            await alter(cluster.bootstrap_servers, log_cleaner_threads="1", max_connections="90")
            await until(lambda: compactors() == ["maintenance-compaction-0"])
            assert server._connections.connections_max == 90

    run(test)


async def alter_broker(bootstrap: str, value: str, name: str = "cordoned.log.dirs") -> str | None:
    """Set a setting of broker 1; the error."""
    config = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[config(name=name, config_operation=0, value=value)],
    )
    async with await WireClient.connect(bootstrap) as client:
        response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        message: str | None = response.responses[0].error_message
        return message


def test_a_cordoned_directory_gets_no_new_replicas(tmp_path: Path) -> None:
    """KIP-1066."""
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"

    async def test() -> None:
        async with tidelog.Cluster({"log.dirs": f"{one},{two}"}) as cluster:
            server: Any = cluster.brokers[0].server
            bootstrap = cluster.bootstrap_servers
            error = await alter_broker(bootstrap, f"{one},/nowhere")
            assert error is not None
            assert "Invalid entry in cordoned.log.dirs: /nowhere" in error
            assert await alter_broker(bootstrap, one) is None
            await until(lambda: server.logs.cordoned == {one})
            await cluster.create_topic("t", partitions=4)
            assert {server.logs.log_dir(key) for key in server.logs.topic_ids()} == {two}
            async with await WireClient.connect(bootstrap) as client:
                described = await client.ask(DescribeLogDirsRequest(topics=None), 5)
                assert [each.is_cordoned for each in described.results] == [True, False]
                move = AlterReplicaLogDirsRequest.AlterReplicaLogDir
                names = [move.AlterReplicaLogDirTopic(name="t", partitions=[0])]
                request = AlterReplicaLogDirsRequest(dirs=[move(path=one, topics=names)])
                moved = await client.ask(request, 2)
                (answer,) = moved.results[0].partitions
                assert answer.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert await alter_broker(bootstrap, "*") is None
            await until(lambda: server.metadata.image.brokers[1].is_cordoned)
            with pytest.raises(tidelog.ClusterError, match="log directories cordoned"):
                await cluster.create_topic("u")
            assert await alter_broker(bootstrap, "") is None
            await until(lambda: not server.metadata.image.brokers[1].cordoned_log_dirs)
            await cluster.create_topic("u")

    run(test)


def test_listeners_come_and_go_and_advertised_ones_stay() -> None:
    """Those that are added can only be removed if they are not advertised, as in Kafka."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            bootstrap, own = cluster.bootstrap_servers, server.config.given["listeners"]
            error = await alter_broker(bootstrap, "EXTRA://127.0.0.1:0", "listeners")
            assert error == (
                "advertised.listeners listener names must be equal to or a subset of the ones"
                " defined in listeners. Found PLAINTEXT. The valid options based on the current"
                " configuration are EXTRA"
            )
            assert await alter_broker(bootstrap, f"{own},EXTRA://127.0.0.1:0", "listeners") is None
            await until(lambda: "EXTRA" in server._listeners.bound)
            extra = f"127.0.0.1:{server._listeners.bound['EXTRA'].port}"
            async with await WireClient.connect(extra) as client:
                described = await client.ask(DescribeLogDirsRequest(topics=None), 4)
                assert len(described.results) == 1
                assert await alter_broker(bootstrap, own, "listeners") is None
                await until(lambda: "EXTRA" not in server._listeners.bound)
                await until(lambda: all(one.listener != "EXTRA" for one in server.connections))
            with pytest.raises(OSError):  # noqa: PT011 - the system's words
                await WireClient.connect(extra)
            await cluster.create_topic("t")

    run(test)


def test_a_listener_that_cannot_be_opened_is_opened_once_its_settings_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its settings may come later than the listener, and a port may become free. Kafka 4.3.1 opens
    it without a certificate, and takes none later."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:SSL",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            bootstrap, own = cluster.bootstrap_servers, server.config.given["listeners"]
            extra = f"{own},EXTRA://127.0.0.1:"

            async def fails(value: str, why: str) -> None:
                assert await alter_broker(bootstrap, value, "listeners") is None
                await until(lambda: why in caplog.text)
                assert "EXTRA" not in server._listeners.bound

            await fails(f"{extra}0", "listener EXTRA is not open: ssl.keystore.location: ")
            store = {k: v for k, v in authority().listener("b").items() if "keystore" in k}
            for name, text in store.items():
                assert await alter_broker(bootstrap, text, f"listener.name.extra.{name}") is None
            await until(lambda: "EXTRA" in server._listeners.bound)
            assert await alter_broker(bootstrap, own, "listeners") is None
            await until(lambda: "EXTRA" not in server._listeners.bound)
            with socket.create_server(("127.0.0.1", 0)) as taken:
                port = taken.getsockname()[1]
                await fails(f"{extra}{port}", f"cannot listen on 127.0.0.1:{port}")
            assert await alter_broker(bootstrap, f"{extra}{port}", "listeners") is None
            await until(lambda: "EXTRA" in server._listeners.bound)

    run(test)


def test_a_listener_of_the_start_goes_too() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }

    async def test() -> None:
        async with tidelog.Cluster(settings) as cluster:
            server: Any = cluster.brokers[0].server
            bootstrap, both = cluster.bootstrap_servers, server.config.given["listeners"]
            own, _ = both.split(",")
            extra = f"127.0.0.1:{server._listeners.bound['EXTRA'].port}"
            async with await WireClient.connect(extra) as client:
                assert len((await client.ask(DescribeLogDirsRequest(topics=None), 4)).results) == 1
                assert await alter_broker(bootstrap, own, "listeners") is None
                assert await client.closed()
            with pytest.raises(OSError):  # noqa: PT011 - the system's words
                await WireClient.connect(extra)
            assert await alter_broker(bootstrap, both, "listeners") is None
            await until(lambda: "EXTRA" in server._listeners.bound)
            back = f"127.0.0.1:{server._listeners.bound['EXTRA'].port}"
            async with await WireClient.connect(back) as client:
                assert len((await client.ask(DescribeLogDirsRequest(topics=None), 4)).results) == 1

    run(test)
