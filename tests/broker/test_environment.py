"""Settings from `KAFKA_*` variables, named as Apache Kafka's image names them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.processes import COMMAND, READY, Start, ended
from support.wire_client import WireClient
from tidelog.config.broker import BrokerConfig
from tidelog.config.environment import environment_settings
from tidelog_bench.peers.address import free_port
from tidelog_protocol.messages.cluster import MetadataRequest
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# What org.testcontainers:kafka sets for apache/kafka, before the addresses.
OF_TESTCONTAINERS = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITIONS", "num.partitions"),
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_RSM_CONFIG_DIR", "rsm.config.dir"),
        ("KAFKA_RSM_CONFIG_A__B___C", "rsm.config.a_b-c"),
    ],
)
def test_a_variable_names_a_setting(variable: str, key: str) -> None:
    assert environment_settings({variable: "5", "PATH": "/bin"}) == ({key: "5"}, [])


def test_plug_ins_have_the_prefix_that_is_set() -> None:
    given = {
        "KAFKA_REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX": "mine.",
        "KAFKA_MINE_BUCKET": "b",
        "KAFKA_RSM_CONFIG_DIR": "d",
    }
    settings, ignored = environment_settings(given)
    assert settings["mine.bucket"] == "b"
    assert ignored == ["KAFKA_RSM_CONFIG_DIR"]


def test_variables_of_the_java_machine_are_no_settings() -> None:
    given = {"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_OPTS": "-Da=b", "KAFKA_VERSION": "4.1.0"}
    assert environment_settings(given) == ({}, [])


def test_other_variables_without_a_setting_are_listed() -> None:
    assert environment_settings({"KAFKA_PORT": "tcp://10.0.0.1:9092"}) == ({}, ["KAFKA_PORT"])


def test_values_that_need_javas_classes_are_ignored_too() -> None:
    reporters = "KAFKA_METRIC_REPORTERS"
    assert environment_settings({reporters: "com.example.Mine"}) == ({}, [reporters])
    assert environment_settings({reporters: ""}) == ({"metric.reporters": ""}, [])


def test_listeners_follow_the_advertised_ones_on_all_interfaces() -> None:
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,OUT://localhost:19092"}
    settings, _ = environment_settings(advertised)
    assert settings["listeners"] == "PLAINTEXT://:9092,OUT://:19092"
    settings, _ = environment_settings({**advertised, "KAFKA_LISTENERS": "PLAINTEXT://:1"})
    assert settings["listeners"] == "PLAINTEXT://:1"


def test_a_bad_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unable to parse nowhere"):
        environment_settings({"KAFKA_ADVERTISED_LISTENERS": "nowhere"})


def test_the_variables_of_testcontainers_are_a_configuration() -> None:
    settings, ignored = environment_settings(
        {**OF_TESTCONTAINERS, "KAFKA_LISTENERS": "CONTROLLER://:3,PLAINTEXT://:1,BROKER://:2"}
    )
    assert ignored == []
    config = BrokerConfig.from_properties(settings)
    assert [endpoint.port for endpoint in config.client_listeners()] == [1, 2]
    assert config.inter_broker_listener() == "BROKER"
    assert not config.is_alone()


def test_a_broker_takes_its_settings_from_the_environment(start: Start, tmp_path: Path) -> None:
    port, inner, controller = free_port(), free_port(), free_port()
    environment = {
        **OF_TESTCONTAINERS,
        "KAFKA_LISTENERS": f"CONTROLLER://:{controller},PLAINTEXT://:{port},BROKER://:{inner}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:1234,BROKER://127.0.0.1:{inner}",
        "KAFKA_NUM_PARTITIONS": "4",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        "KAFKA_HOME": "/opt/kafka",
    }
    command = (*COMMAND, "broker", "--kafka-env", "--log-level", "info")
    process = start(*command, "--set", "num.partitions=2", **environment)
    assert process.stdout is not None
    assert process.stdout.readline() == f"{READY}localhost:1234\n"

    async def advertised(port: int) -> list[tuple[str, int]]:
        async with await WireClient.connect(f"127.0.0.1:{port}") as client:
            answer = await client.ask(MetadataRequest(topics=None), 12)
        return [(broker.host, broker.port) for broker in answer.brokers]

    assert asyncio.run(advertised(port)) == [("localhost", 1234)]
    assert asyncio.run(advertised(inner)) == [("127.0.0.1", inner)]
    assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in (tmp_path / "data/meta.properties").read_text()
    process.terminate()
    code, _, errors = ended(process)
    assert code == 0
    assert "tidelog: KAFKA_HOME is ignored: it names no setting of tidelog's\n" in errors
    # The words for which Java's testcontainers waits.
    assert (
        "broker 1: the broker has been unfenced. Transitioning from RECOVERY to RUNNING" in errors
    )
