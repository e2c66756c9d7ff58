"""Settings of the remote tier: the specification's table, plug-ins' own settings, topics."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from support.altered import alter_configs
from support.metadata import broker_config, cluster, topic
from support.wire_client import WireClient
from tidelog.cluster.controller.configs import SET, Change, Resource
from tidelog.cluster.metadata.describe import describe_broker
from tidelog.config.broker import BrokerConfig, update_mode
from tidelog.embedded.cluster import broker_properties
from tidelog.runtime import system_runtime
from tidelog.server import BrokerServer, StartError
from tidelog.tiered.metadata.settings import MetadataSettings
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.admin import CreateTopicsRequest
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MAX = 9223372036854775807
TOPIC_BASED = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)
# tiered-storage.md 17: name, type, default, dynamic
TABLE = [
    ("remote.log.storage.system.enable", "BOOLEAN", False, False),
    ("remote.log.storage.manager.class.name", "STRING", None, False),
    ("remote.log.storage.manager.class.path", "STRING", None, False),
    ("remote.log.storage.manager.impl.prefix", "STRING", "rsm.config.", False),
    ("remote.log.metadata.manager.class.name", "STRING", TOPIC_BASED, False),
    ("remote.log.metadata.manager.class.path", "STRING", None, False),
    ("remote.log.metadata.manager.impl.prefix", "STRING", "rlmm.config.", False),
    ("remote.log.metadata.manager.listener.name", "STRING", None, False),
    ("remote.log.metadata.custom.metadata.max.bytes", "INT", 128, False),
    ("remote.log.index.file.cache.total.size.bytes", "LONG", 1073741824, True),
    ("remote.log.index.file.cache.ttl.ms", "LONG", 900000, False),
    ("remote.log.manager.copier.thread.pool.size", "INT", 10, True),
    ("remote.log.manager.expiration.thread.pool.size", "INT", 10, True),
    ("remote.log.manager.follower.thread.pool.size", "INT", 2, True),
    ("remote.log.manager.thread.pool.size", "INT", 2, False),
    ("remote.log.manager.task.interval.ms", "LONG", 30000, False),
    ("remote.log.manager.task.retry.backoff.ms", "LONG", 500, False),
    ("remote.log.manager.task.retry.backoff.max.ms", "LONG", 30000, False),
    ("remote.log.manager.task.retry.jitter", "DOUBLE", 0.2, False),
    ("remote.log.reader.threads", "INT", 10, True),
    ("remote.log.reader.max.pending.tasks", "INT", 100, False),
    ("remote.fetch.max.wait.ms", "INT", 500, True),
    ("remote.list.offsets.request.timeout.ms", "LONG", 30000, True),
    ("remote.log.manager.copy.max.bytes.per.second", "LONG", MAX, True),
    ("remote.log.manager.fetch.max.bytes.per.second", "LONG", MAX, True),
    ("remote.log.manager.copy.quota.window.num", "INT", 11, False),
    ("remote.log.manager.copy.quota.window.size.seconds", "INT", 1, False),
    ("remote.log.manager.fetch.quota.window.num", "INT", 11, False),
    ("remote.log.manager.fetch.quota.window.size.seconds", "INT", 1, False),
    ("log.local.retention.ms", "LONG", -2, True),
    ("log.local.retention.bytes", "LONG", -2, True),
    ("log.remote.copy.lag.ms", "LONG", 0, True),
    ("log.remote.copy.lag.bytes", "LONG", -1, True),
    ("follower.fetch.last.tiered.offset.enable", "BOOLEAN", False, True),
    ("remote.partition.remover.task.interval.ms", "LONG", 3600000, False),
]
INTERNAL = {
    "remote.log.index.file.cache.ttl.ms",
    "remote.log.manager.task.retry.backoff.ms",
    "remote.log.manager.task.retry.backoff.max.ms",
    "remote.log.manager.task.retry.jitter",
    "remote.partition.remover.task.interval.ms",
}
IMAGE = cluster()


@pytest.mark.parametrize(("name", "type_name", "default", "dynamic"), TABLE)
def test_the_specifications_table(
    name: str, type_name: str, default: object, dynamic: bool
) -> None:
    key = BrokerConfig.KEYS[name]
    assert (key.type_name, key.default, key.internal) == (type_name, default, name in INTERNAL)
    assert (update_mode(name) != "read-only") is dynamic
    shown = {entry.name: entry for entry in describe_broker(broker_config(), IMAGE)}
    assert (name in shown) is (name not in INTERNAL)
    if name in shown:
        assert shown[name].value == key.format(default)
        assert shown[name].read_only is not dynamic


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("remote.log.manager.copier.thread.pool.size", "0"),
        ("remote.log.reader.threads", "0"),
        ("remote.log.metadata.custom.metadata.max.bytes", "-1"),
        ("remote.log.index.file.cache.total.size.bytes", "0"),
        ("remote.fetch.max.wait.ms", "0"),
        ("remote.log.manager.copy.max.bytes.per.second", "0"),
        ("remote.log.manager.task.retry.jitter", "0.6"),
        ("log.local.retention.ms", "-3"),
        ("log.remote.copy.lag.ms", "-2"),
    ],
)
def test_out_of_range(name: str, text: str) -> None:
    value = float(text) if "." in text else int(text)
    with pytest.raises(ConfigError, match=rf"Invalid value {value} for configuration {name}"):
        broker_config(**{name: text})


@pytest.mark.parametrize("name", [name for name, kind, *_ in TABLE if kind == "STRING"])
def test_names_are_not_empty(name: str) -> None:
    if name.endswith("class.path"):
        assert broker_config(**{name: ""}).value(name) == ""
    else:
        with pytest.raises(ConfigError, match="String must be non-empty"):
            broker_config(**{name: ""})


def test_the_metadata_topic_is_made_as_kafka_makes_it() -> None:
    """Settings after `rlmm.config.`, which broker configurations know nothing of."""
    assert MetadataSettings.of({})._asdict() == {
        "partition_count": 50,
        "replication_factor": 3,
        "min_isr": 2,
        "retention_ms": -1,
        "consume_wait_ms": 120_000,
        "retry_ms": 100,
        "retry_ms_max": 120_000,
    }


def test_what_plug_ins_are_given() -> None:
    config = broker_config(
        **{
            "rsm.config.dir": "/tier",
            "rsm.config.chunk.size": "4",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        }
    )
    assert config.given_with_prefix("rsm.config.") == {"dir": "/tier", "chunk.size": "4"}
    assert config.given_with_prefix(config.remote_log_metadata_manager_impl_prefix) == {
        "remote.log.metadata.topic.num.partitions": "5"
    }
    shown = {entry.name: entry for entry in describe_broker(config, IMAGE)}
    assert (shown["rsm.config.dir"].value, shown["rsm.config.dir"].is_sensitive) == ("/tier", False)
    assert shown["rsm.config.chunk.size"].value is None
    assert shown["rsm.config.chunk.size"].is_sensitive
    assert config.with_dynamic({"remote.fetch.max.wait.ms": "7"}).given == {
        **config.given,
        "remote.fetch.max.wait.ms": "7",
    }


def test_secrets_of_stores_are_not_shown() -> None:
    secrets = {
        "rsm.config.secret.key": "s3cret",
        "rsm.config.endpoint.url": "http://me:s3cret@127.0.0.1:9000",
        "rlmm.config.dir": "s3cret",
    }
    config = broker_config(**secrets, **{"rsm.config.bucket": "b"})
    shown = {entry.name: entry for entry in describe_broker(config, IMAGE)}
    assert shown["rsm.config.bucket"].value == "b"
    for name in secrets:
        assert shown[name].value is None
        assert shown[name].is_sensitive
        assert [synonym.value for synonym in shown[name].synonyms] == [None]
    theirs = broker_config(
        **{"rsm.config.dir": "s3cret", "remote.log.storage.manager.class.name": "their.Store"}
    )
    shown = {entry.name: entry for entry in describe_broker(theirs, IMAGE)}
    assert shown["rsm.config.dir"].value is None


def test_prefixes_are_what_they_are_set_to() -> None:
    prefix = {"remote.log.storage.manager.impl.prefix": "mine."}
    assert broker_config(**prefix, **{"mine.key": "1"}).given_with_prefix("mine.") == {"key": "1"}
    with pytest.raises(ConfigError, match=r"Unknown configuration 'rsm\.config\.dir'"):
        broker_config(**prefix, **{"rsm.config.dir": "1"})


def test_local_limits_of_a_broker_with_a_remote_tier() -> None:
    limits = {"log.retention.ms": "1000", "log.local.retention.ms": "1001"}
    assert broker_config(**limits).log_defaults.local_retention_ms == 1001
    with pytest.raises(ConfigError, match="Value must not be more than"):
        broker_config(remote_log_storage_system_enable="true", **limits)


# -- topics, as Kafka's RemoteTopicCrud has them ---------------------------------------------------

DEFAULTS = {
    "remote_log_storage_system_enable": "true",
    "log_retention_ms": "2000",
    "log_local_retention_ms": "1000",
    "log_local_retention_bytes": "1024",
}
ON = {"remote.storage.enable": "true"}
BOTH_LOCAL = {"local.retention.ms": "100", "local.retention.bytes": "100"}
BOTH_TOTAL = {"retention.ms": "1000", "retention.bytes": "1000"}


def altered(
    settings: dict[str, str], before: dict[str, str], **broker: str
) -> tuple[int, str | None]:
    image = cluster(topic("t", 1), topic_configs={"t": before})
    changes = [Change(name, SET, value) for name, value in settings.items()]
    config = broker_config(**(DEFAULTS | broker))
    decision = alter_configs(image, config, [Resource(2, "t", changes, False)])
    (result,) = decision.results
    assert bool(decision.records) is (result.code == 0)
    return result.code, result.message


@pytest.mark.parametrize(
    ("settings", "is_fine"),
    [
        ({"retention.ms": "60000", "local.retention.ms": "30000"}, True),
        ({"retention.bytes": "512", "local.retention.bytes": "256"}, True),
        ({"retention.ms": "1001"}, True),
        ({"retention.bytes": "1025"}, True),
        ({"retention.ms": "200"}, False),
        ({"retention.bytes": "512"}, False),
        ({"cleanup.policy": "compact"}, False),
        ({"remote.log.copy.disable": "true"}, False),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "-2",
          "local.retention.bytes": "-2"}, True),
        ({"remote.log.delete.on.disable": "true"}, True),
        ({**BOTH_TOTAL, **BOTH_LOCAL, "remote.log.copy.disable": "true"}, False),
        ({"retention.ms": "1000", "local.retention.ms": "1000", "retention.bytes": "100",
          "local.retention.bytes": "100", "remote.log.copy.disable": "true"}, True),
    ],
)  # fmt: skip
def test_tiered_topics(settings: dict[str, str], is_fine: bool) -> None:
    for before in ({}, ON):
        code, message = altered(ON | settings, before)
        assert (code == 0) is is_fine, message
        assert is_fine or code == ErrorCode.INVALID_CONFIG


def test_copying_is_turned_off_with_what_is_kept_locally() -> None:
    before = ON | BOTH_TOTAL | BOTH_LOCAL
    code, message = altered({"remote.log.copy.disable": "true"}, before)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert message.startswith("When `remote.log.copy.disable` is set to true, the `local.retention")
    local = {"local.retention.ms": "1000", "local.retention.bytes": "1000"}
    assert altered({"remote.log.copy.disable": "true"} | local, before) == (0, None)


def test_the_tier_is_left_with_its_data_deleted() -> None:
    code, message = altered({"remote.storage.enable": "false"}, ON)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "`remote.storage.enable=false,remote.log.delete.on.disable=true`" in message
    leaving = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
    assert altered(leaving, ON) == (0, None)
    assert altered(ON, leaving) == (0, None)


def test_without_a_remote_tier_no_topic_is_in_it() -> None:
    code, message = altered(ON, {}, remote_log_storage_system_enable="false")
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with"
        " remote log storage.",
    )


def make_server(folder: Path, **settings: str) -> BrokerServer:
    properties = broker_properties(settings, port=0, data_dir=str(folder / "data"))
    return BrokerServer(BrokerConfig.from_properties(properties), system_runtime())


def test_a_broker_refuses_to_start_without_the_tier_of_a_topic(tmp_path: Path) -> None:
    async def create(client: WireClient, settings: dict[str, str]) -> Any:
        wanted = CreateTopicsRequest.CreatableTopic
        configs = [
            wanted.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()
        ]
        asked = wanted(name="t", num_partitions=1, replication_factor=1, configs=configs)
        response = await client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=60_000), 7)
        return response.topics[0].error_code

    async def test() -> None:
        enabled = {
            "remote.log.storage.system.enable": "true",
            "rsm.config.dir": str(tmp_path / "tier"),
        }
        server = make_server(tmp_path, **enabled)
        await server.start()
        async with await WireClient.connect(server.bootstrap_servers) as client:
            assert await create(client, ON) == 0
        await server.stop()
        server = make_server(tmp_path)
        with pytest.raises(StartError, match=re.escape("with the property remote.storage.enable")):
            await server.start()
        server = make_server(tmp_path, **enabled)
        await server.start()
        await server.stop()

    asyncio.run(asyncio.wait_for(test(), 60))
