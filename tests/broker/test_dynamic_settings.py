"""Settings of a broker that change while it runs (KIP-226)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import run, until
from support.metadata import broker_config, cluster
from support.wire_client import WireClient
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.dynamic_settings import DynamicSettings
from tidelog_protocol.messages.configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig

BROKER = 4


def image_of(**settings: str) -> ClusterImage:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return cluster()._replace(broker_configs={"": named} if named else {})


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
