"""The image and `TidelogContainer`, on an engine of the test's own; skips where there is none."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.core.config import testcontainers_config

from support.docker_engine import IMAGE, build_image, docker_engine
from support.snippets import Snippet, of, run_script
from tidelog.testing.containers import TidelogContainer
from tidelog_bench.peers import kafka_jars

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


def written_and_read(bootstrap: str, topic: str) -> list[bytes]:
    """What librdkafka reads of three records that it wrote."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in (b"a", b"b", b"c"):
        producer.produce(topic, value, partition=0)
    assert producer.flush(READ_S_MAX) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group})
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
def test_javas_testcontainers_take_the_image_for_kafkas(engine: Any) -> None:
    """KafkaContainer and ConfluentKafkaContainer, and clients in the same JVM."""
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
    assert ended.stdout.splitlines() == ["apache key=value", "confluent key=value"], ended.stderr


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
