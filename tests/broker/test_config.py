"""BrokerConfig: keys, refusals, topic defaults, listeners, dynamic settings."""

from __future__ import annotations

import re

import pytest

from support.metadata import broker_config
from tidelog.config.broker import DEVELOPER_PROFILE, BrokerConfig, Endpoint, update_mode
from tidelog_storage.config_key import ConfigError


def refused(**settings: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        broker_config(**settings)
    assert "\n" not in caught.value.message
    return caught.value


def test_kafkas_defaults() -> None:
    config = BrokerConfig.from_properties({"node.id": "7"})
    assert config.node_id == 7
    assert config.num_partitions == 1
    assert config.offsets_topic_replication_factor == 3
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.socket_request_max_bytes == 104857600
    assert config.process_roles == ["broker", "controller"]
    assert config.log_dirs is None
    assert config.log_directories() == ["/tmp/kafka-logs"]
    assert config.log_flush_scheduler_interval_ms == 2**63 - 1
    assert config.value("auto.create.topics.enable") is True


def test_developer_profile_is_valid_and_underneath() -> None:
    config = BrokerConfig.from_properties(DEVELOPER_PROFILE)
    assert config.offsets_topic_replication_factor == 1
    assert broker_config(node_id="5").node_id == 5


@pytest.mark.parametrize(
    ("settings", "key", "text"),
    [
        (
            {"max.connections.per.ip.overrides": "10.0.0.1"},
            "max.connections.per.ip.overrides",
            "'10.0.0.1' is not of the form ADDRESS:COUNT",
        ),
        (
            {"queued.max.request.bytes": "1000"},
            "queued.max.request.bytes",
            "larger or equal to socket.request.max.bytes",
        ),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "zero only if"),
        (
            {"leader.replication.throttled.rate": "1"},
            "leader.replication.throttled.rate",
            "only be set while the broker runs",
        ),
        ({"no_such_key": "1"}, "no.such.key", "no.such.key"),
        ({"num_partitions": "x"}, "num.partitions", "Not a number of type INT"),
        ({"num_partitions": "0"}, "num.partitions", "Value must be at least 1"),
        ({"num_partitions": "3000000000"}, "num.partitions", "Not a number of type INT"),
        ({"auto_create_topics_enable": "yes"}, "auto.create.topics.enable", "either true or false"),
        ({"process_roles": "broker,zk"}, "process.roles", "one of: broker, controller"),
        ({"log_segment_bytes": "5"}, "log.segment.bytes", "at least 1048576"),
        ({"log_cleanup_policy": "burn"}, "log.cleanup.policy", "one of: compact, delete"),
        ({"node_id": "2", "broker_id": "3"}, "broker.id", "node.id"),
        ({"listeners": "here"}, "listeners", "Unable to parse here"),
        ({"listeners": "A://h:70000"}, "listeners", "Unable to parse"),
        ({"listeners": "A://h:1,A://h:2"}, "listeners", "different name"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:1"}, "listeners", "a different port, listeners"),
        ({"listeners": "SSL://:1,PLAINTEXT://1.2.3.4:1"}, "listeners", "unless exactly one"),
        ({"listeners": "SSL://[::]:1,PLAINTEXT://[::1]:1"}, "listeners", "needs to be IPv4"),
        ({"listeners": ""}, "listeners", "must not be empty"),
        ({"listeners": "CONTROLLER://h:1"}, "listeners", "at least one broker advertised"),
        ({"listeners": "SSL://0.0.0.0:1"}, "advertised.listeners", "0.0.0.0"),
        ({"advertised_listeners": "A://h"}, "advertised.listeners", "Unable to parse"),
        ({"advertised_listeners": "A://h:1"}, "advertised.listeners", "No security protocol"),
        ({"inter_broker_listener_name": "A"}, "inter.broker.listener.name", "not found in"),
        ({"log_retention_ms": "0"}, "log.retention.ms", "log.retention.ms"),
    ],
)
def test_refusals_name_the_key(settings: dict[str, str], key: str, text: str) -> None:
    error = refused(**settings)
    assert error.key == key
    assert text in error.message
    assert key in error.message or text in error.message


def test_required_key() -> None:
    with pytest.raises(ConfigError, match=r"node\.id"):
        BrokerConfig.from_properties({})


def test_a_config_does_not_change() -> None:
    with pytest.raises(AttributeError, match="num_partitions"):
        broker_config().num_partitions = 3


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log_retention_hours": "2"}, 7_200_000),
        ({"log_retention_hours": "2", "log_retention_minutes": "3"}, 180_000),
        ({"log_retention_minutes": "3", "log_retention_ms": "4"}, 4),
        ({"log_retention_hours": "-1"}, -1),
        ({"log_retention_ms": "-1", "log_retention_hours": "2"}, -1),
    ],
)
def test_retention_precedence(settings: dict[str, str], retention_ms: int) -> None:
    assert broker_config(**settings).log_defaults.retention_ms == retention_ms


def test_topic_defaults_come_from_the_broker() -> None:
    defaults = broker_config(
        message_max_bytes="2000", log_roll_hours="1", log_cleanup_policy="compact"
    ).log_defaults
    assert defaults.max_message_bytes == 2000
    assert defaults.segment_ms == 3_600_000
    assert defaults.is_compacted


def test_stock_server_properties_of_kafka_are_accepted() -> None:
    config = broker_config(
        process_roles="broker,controller",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        inter_broker_listener_name="PLAINTEXT",
        advertised_listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller_listener_names="CONTROLLER",
        controller_quorum_bootstrap_servers="localhost:9093",
        listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        num_network_threads="3",
        num_io_threads="8",
        socket_send_buffer_bytes="102400",
        socket_receive_buffer_bytes="102400",
        log_dirs="/tmp/kraft-combined-logs",
        num_recovery_threads_per_data_dir="2",
        share_coordinator_state_topic_replication_factor="1",
        share_coordinator_state_topic_min_isr="1",
        transaction_state_log_min_isr="1",
        log_retention_hours="168",
        log_segment_bytes="1073741824",
        log_retention_check_interval_ms="300000",
    )
    assert config.client_listeners() == [Endpoint("PLAINTEXT", "", 9092)]
    assert config.advertised_endpoints()[0] == Endpoint("PLAINTEXT", "localhost", 9092)
    assert config.metadata_directory() == "/tmp/kraft-combined-logs"


def test_listeners() -> None:
    config = broker_config(listeners="plaintext://[::1]:0")
    assert config.client_listeners() == [Endpoint("PLAINTEXT", "::1", 0)]
    assert config.advertised_endpoints() == config.client_listeners()


def test_every_key_is_described() -> None:
    for name, key in BrokerConfig.KEYS.items():
        assert key.name == name
        assert key.documentation, name
        assert re.fullmatch(r"[a-z0-9.]+", name)
        assert update_mode(name) in ("read-only", "per-broker", "cluster-wide")
        if key.default is not None and not key.required:
            text = key.format(key.default)
            assert text is not None
            assert key.parse(text) == key.default


def test_dynamic_settings_lie_over_the_given_ones() -> None:
    config = broker_config(log_retention_hours="1", message_max_bytes="5000")
    dynamic = config.with_dynamic({"log.retention.ms": "100", "num.network.threads": "4"})
    assert dynamic.log_defaults.retention_ms == 100
    assert dynamic.log_defaults.max_message_bytes == 5000
    assert dynamic.num_network_threads == 4
    assert config.log_defaults.retention_ms == 3_600_000


def test_undeclared_dynamic_settings_are_ignored() -> None:
    config = broker_config()
    assert config.with_dynamic({"somebodys.plugin": "x"}) is config
    with pytest.raises(ConfigError):
        config.with_dynamic({"log.retention.ms": "x"})


CLUSTER = {
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "3@[::1]:9193,1@a:9093,2@127.0.0.1:9093",
}


def test_voters_of_the_quorum() -> None:
    config = BrokerConfig.from_properties(CLUSTER)
    assert config.quorum_voters() == [(1, "a", 9093), (2, "127.0.0.1", 9093), (3, "::1", 9193)]
    assert config.controller_listeners() == [("CONTROLLER", "127.0.0.1", 9093)]
    assert config.client_listeners() == [("PLAINTEXT", "127.0.0.1", 9092)]
    assert BrokerConfig.from_properties({"node.id": "2"}).quorum_voters() == []
    observer = {
        **CLUSTER,
        "node.id": "4",
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    }
    assert len(BrokerConfig.from_properties(observer).quorum_voters()) == 3


def test_a_broker_is_alone_without_a_controller_listener() -> None:
    alone = {"node.id": "2", "controller.quorum.voters": "2@a:9093"}
    assert BrokerConfig.from_properties({"node.id": "2"}).is_alone()
    assert BrokerConfig.from_properties(alone).is_alone()
    listening = BrokerConfig.from_properties({**alone, "listeners": CLUSTER["listeners"]})
    assert (listening.is_only_voter(), listening.is_alone()) == (True, False)
    other = {**alone, "node.id": "3", "process.roles": "broker"}
    assert not BrokerConfig.from_properties(other).is_only_voter()
    with pytest.raises(ConfigError, match="must be included in the set of voters"):
        BrokerConfig.from_properties({**other, "process.roles": "broker,controller"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("controller.quorum.voters", "1@a:9093,2@b"),
        ("controller.quorum.voters", "1@a:9093,x@b:1"),
        ("controller.quorum.voters", "1@a:9093,1@b:1"),
        ("controller.quorum.voters", "1@a:9093,2@b:0"),
        ("controller.quorum.voters", "1@a:9093,3@b:1"),
        ("controller.listener.names", "OTHER"),
        ("controller.listener.names", ""),
    ],
)
def test_a_quorum_that_cannot_be(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties({**CLUSTER, key: value})
    assert caught.value.key == key


def test_a_listener_has_its_own_settings_before_those_of_all() -> None:
    config = broker_config(
        listeners="SSL://:1,OTHER://:2",
        listener_security_protocol_map="SSL:SSL,OTHER:PLAINTEXT",
        inter_broker_listener_name="OTHER",
        ssl_client_auth="required",
        **{"listener.name.ssl.ssl.client.auth": "requested"},
    )
    own, others = config.listener_settings("SSL"), config.listener_settings("OTHER")
    assert (own.protocol, others.protocol) == ("SSL", "PLAINTEXT")
    assert own.value("ssl.client.auth") == "requested"
    assert others.value("ssl.client.auth") == "required"
    assert own.key("ssl.client.auth") == "listener.name.ssl.ssl.client.auth"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"listener.name.a.no.such": "1"}, "listener.name.a.no.such"),
        ({"listener.name.SSL.ssl.client.auth": "none"}, "listener.name.SSL.ssl.client.auth"),
        ({"listener.name.a.ssl.client.auth": "?"}, "listener.name.a.ssl.client.auth"),
        (
            {"listener.name.a.plain.connections.max.reauth.ms": "soon"},
            "listener.name.a.plain.connections.max.reauth.ms",
        ),
        ({"listener.name.a.max.connections": "-1"}, "listener.name.a.max.connections"),
        (
            {
                "listeners": "SASL_SSL://:1",
                "sasl_enabled_mechanisms": "PLAIN",
                "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256",
            },
            "sasl.mechanism.inter.broker.protocol",
        ),
        ({"listener_security_protocol_map": "PLAINTEXT"}, "listener.security.protocol.map"),
        ({"listener_security_protocol_map": "PLAINTEXT:TLS"}, "listener.security.protocol.map"),
        ({"listeners": "A://h:1"}, "listener.security.protocol.map"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "SSL"},
            "inter.broker.listener.name",
        ),
    ],
)
def test_listeners_that_do_not_fit_are_refused(settings: dict[str, str], key: str) -> None:
    assert refused(**settings).key == key
