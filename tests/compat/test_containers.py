"""The image and `TidelogContainer`, on an engine of the test's own; skips where there is none."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from testcontainers.core.config import testcontainers_config

from compat.refusals import AUTHORIZER, topics_of, unlike
from support.docker_engine import IMAGE, build_image, docker_engine
from support.examples import UNAVAILABLE, needs_of
from support.snippets import Snippet, of, run_script
from tidelog.testing.containers import TidelogContainer
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.address import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("containers"), pytest.mark.slow]

READ_S_MAX = 60
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The engine's client, after the image is built."""
    folder = tmp_path_factory.mktemp("docker")
    with docker_engine(folder) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        patch.setattr(testcontainers_config, "ryuk_disabled", True)  # its image is in a registry
        client = docker.DockerClient(base_url=address)
        try:
            build_image(client, folder)
            client.images.get(IMAGE).tag("tidelog")
            yield client
        finally:
            client.close()
            gc.collect()  # a socket that is left fails this test, not a later one


def written_and_read(
    bootstrap: str, topic: str, config: dict[str, Any] | None = None
) -> list[bytes]:
    """What librdkafka reads of three records that it wrote."""
    config = config or {"bootstrap.servers": bootstrap}
    producer = Producer({**config, "acks": "all"})
    for value in (b"a", b"b", b"c"):
        producer.produce(topic, value, partition=0)
    assert producer.flush(READ_S_MAX) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **group})
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(3, READ_S_MAX)]
    finally:
        consumer.close()


def test_brokers_are_reached_through_mapped_ports_and_controlled(engine: Any) -> None:
    container = TidelogContainer(IMAGE).with_brokers(3).with_setting("num.partitions", 2)
    with container.with_tiered(topics=["tier*"]) as kafka:
        servers = kafka.get_bootstrap_server()
        kafka.control.topics.create("tiered")
        assert written_and_read(servers, "tiered") == [b"a", b"b", b"c"]
        (topic,) = kafka.control.state(topics=["tiered"]).topics
        assert topic.config["remote.storage.enable"] == "true"
        left = kafka.control.ask("brokers.kill", {"broker": 2}).bootstrap_servers
        assert left.split(",") == [servers.split(",")[0], servers.split(",")[2]]
        assert written_and_read(left, "survives") == [b"a", b"b", b"c"]


def test_secured_brokers_are_reached_through_mapped_ports(engine: Any) -> None:
    with TidelogContainer(IMAGE).with_brokers(2).with_security("sasl_ssl") as kafka:
        config = kafka.client_config("confluent-kafka", mechanism="SCRAM-SHA-512")
        assert written_and_read(kafka.get_bootstrap_server(), "t", config) == [b"a", b"b", b"c"]
        found = kafka.exec(["stat", "-c", "%a %U", "/tmp/tidelog-security/secrets.json"])
        assert found.output == b"600 appuser\n"
        for bad in ("expired", "wrong-host", "self-signed"):
            errors: list[Any] = []
            config = kafka.client_config("confluent-kafka", certificate=bad)
            client = AdminClient({**config, "error_cb": errors.append})
            deadline = time.monotonic() + READ_S_MAX
            while not any("certificate verify failed" in each.str() for each in errors):
                assert time.monotonic() < deadline, errors
                client.poll(0.2)


@pytest.mark.nightly
def test_all_that_may_be_wrong_at_the_door_of_a_container(engine: Any) -> None:
    """Wrong certificates, passwords, tokens, and rights, as three clients see them."""
    assert engine.images.get(IMAGE).tags
    kafka = TidelogContainer(IMAGE).with_security("sasl_ssl")
    for name, value in AUTHORIZER.items():
        kafka.with_setting(name, value)
    with kafka:
        clients = ("confluent-kafka", "aiokafka", "kafkajs")
        for topic in topics_of(clients):
            kafka.control.topics.create(topic)
        assert unlike(kafka, clients) == {}


def test_variables_of_kafkas_image_start_one_broker(engine: Any) -> None:
    """As `docker run -e KAFKA_...` does; the engine tells that it is healthy."""
    container = engine.containers.run(
        IMAGE,
        detach=True,
        ports={"9092/tcp": ("127.0.0.1", None)},
        environment={"KAFKA_NUM_PARTITIONS": "4", "KAFKA_HEAP_OPTS": "-Xmx1g"},
    )
    try:
        deadline = time.monotonic() + READ_S_MAX
        while container.health != "healthy":
            assert time.monotonic() < deadline, container.logs().decode()
            time.sleep(0.2)
            container.reload()
        said = container.logs().decode()
        assert (
            "tidelog ready bootstrap.servers=localhost:9092 control=http://127.0.0.1:9990" in said
        )
        assert "Transitioning from RECOVERY to RUNNING" in said
        assert container.exec_run("id -un").output == b"appuser\n"
        state = container.exec_run(
            [
                "python3",
                "-c",
                "import urllib.request as r;"
                "print(r.urlopen('http://127.0.0.1:9990/v1/brokers/describe').read().decode())",
            ]
        )
        assert json.loads(state.output)["brokers"][0]["is_running"]
    finally:
        container.remove(force=True)


@pytest.mark.nightly
def test_node_reaches_brokers_through_mapped_ports(engine: Any, tmp_path: Path) -> None:
    try:
        modules = needs_of("node-kafkajs")
    except UNAVAILABLE as missing:
        pytest.skip(f"kafkajs: {missing}")
    assert modules is not None
    (tmp_path / "node_modules").symlink_to(modules)
    shutil.copy(Path(__file__).parent / "clients" / "written_and_read.mjs", tmp_path)
    assert engine.images.get(IMAGE).tags
    with TidelogContainer(IMAGE).with_brokers(3) as kafka:
        ended = subprocess.run(
            ["node", "written_and_read.mjs", kafka.get_bootstrap_server()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=READ_S_MAX,
            check=False,
        )
    assert ended.stdout.splitlines() == ["a", "b", "c"], ended.stderr


@contextmanager
def voters(engine: Any) -> Iterator[dict[str, Any]]:
    """Three containers by their mapped addresses: one cluster, on a network of their own."""
    nodes = {number: f"127.0.0.1:{free_port()}" for number in (1, 2, 3)}
    network = engine.networks.create(f"tidelog-{os.getpid()}")
    started: dict[str, Any] = {}
    try:
        for number, address in nodes.items():
            name = f"kafka-{number}"
            host, _, port = address.partition(":")
            started[address] = engine.containers.run(
                IMAGE,
                detach=True,
                hostname=name,
                name=f"{network.name}-{number}",
                network=network.name,
                networking_config={network.name: engine.api.create_endpoint_config(aliases=[name])},
                ports={"19092/tcp": (host, int(port))},
                environment={
                    "KAFKA_NODE_ID": str(number),
                    "KAFKA_PROCESS_ROLES": "broker,controller",
                    "KAFKA_CONTROLLER_QUORUM_VOTERS": ",".join(
                        f"{voter}@kafka-{voter}:9093" for voter in nodes
                    ),
                    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
                    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
                    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
                        "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
                    ),
                    "KAFKA_LISTENERS": "INSIDE://:9092,OUTSIDE://:19092,CONTROLLER://:9093",
                    "KAFKA_ADVERTISED_LISTENERS": f"INSIDE://{name}:9092,OUTSIDE://{address}",
                    "KAFKA_DEFAULT_REPLICATION_FACTOR": "3",
                    "KAFKA_MIN_INSYNC_REPLICAS": "2",
                },
            )
        yield started
    finally:
        for container in started.values():
            container.remove(force=True)
        network.remove()


@pytest.mark.nightly
def test_containers_with_the_same_voters_are_one_cluster(engine: Any) -> None:
    """Clients reach each through its mapped port, and the others go on without one."""
    with voters(engine) as containers:
        addresses = list(containers)
        assert written_and_read(",".join(addresses), "before") == [b"a", b"b", b"c"]
        cluster = AdminClient({"bootstrap.servers": addresses[0]}).list_topics(timeout=READ_S_MAX)
        found = sorted(f"{each.host}:{each.port}" for each in cluster.brokers.values())
        assert found == sorted(addresses)
        (partition,) = cluster.topics["before"].partitions.values()
        assert sorted(partition.replicas) == [1, 2, 3]
        containers[addresses[2]].kill()
        assert written_and_read(",".join(addresses[:2]), "before")[:3] == [b"a", b"b", b"c"]
        assert written_and_read(",".join(addresses[:2]), "after") == [b"a", b"b", b"c"]


@pytest.mark.nightly
def test_javas_testcontainers_take_the_image_for_kafkas(engine: Any) -> None:
    """KafkaContainer and ConfluentKafkaContainer, and clients in the same JVM; a listener for other
    containers of the network."""
    assert engine.images.get(IMAGE).tags
    folder = Path(__file__).parent / "testcontainers"
    try:
        command = [kafka_jars.java(), "-cp", kafka_jars.classpath(folder / "pom.xml")]
    except kafka_jars.JarsUnavailableError as missing:
        pytest.skip(str(missing))
    ended = subprocess.run(
        [*command, *QUIET, folder / "Replaced.java", IMAGE],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TESTCONTAINERS_RYUK_DISABLED": "true"},
    )
    assert ended.stdout.splitlines() == [
        "apache key=value",
        "confluent key=value",
        "inside orders",
    ], ended.stderr


# -- docs/containers.md ----------------------------------------------------------------------------


@pytest.mark.parametrize("snippet", of("python", docker=True))
def test_python_of_the_docs(snippet: Snippet, engine: Any, tmp_path: Path) -> None:
    assert engine.images.get("tidelog").tags
    run_script(snippet, tmp_path)


@pytest.mark.parametrize("snippet", of("sh", docker=True))
def test_shell_of_the_docs(snippet: Snippet, engine: Any) -> None:
    """The image is built; the port that it is mapped to may be taken here."""
    built = 'docker() { [ "$1" = build ] || command docker "$@"; }\n'
    script = f"set -eu\n{built}{snippet.text.replace('-p 9092:9092', '-p 9092')}"
    subprocess.run(["bash", "-c", script], check=True, timeout=READ_S_MAX, env=os.environ)
