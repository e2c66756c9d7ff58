"""Each client library with the configuration that `client_config` has: it writes a record and reads
it, or says why not."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from compat.go_client import build_go_program
from support.examples import UNAVAILABLE, needs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat.jvm import Jvm
    from tidelog.control.credentials.wishes import Wishes
    from tidelog.embedded.running import RunningCluster

WAIT_S = 60.0
TESTS = Path(__file__).parents[1]
KAFKAJS = TESTS / "compat" / "clients" / "secured.mjs"

JAVA = "java"


def through_confluent_kafka(cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
    from confluent_kafka import Consumer, Producer

    config = cluster.client_config("confluent-kafka", **wishes)
    refused: list[str] = []
    producer = Producer({**config, "error_cb": lambda error: refused.append(error.str())})
    undelivered: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            undelivered.append(error.str())

    producer.produce(topic, b"confluent-kafka", on_delivery=delivered)
    end = time.monotonic() + WAIT_S
    while producer.flush(0.1):
        reasons = [text for text in refused if "brokers are down" not in text]
        if reasons or time.monotonic() > end:
            producer.purge()
            return f"error: {reasons or refused}"
    if undelivered:
        return f"error: {undelivered}"
    read = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, **read})
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return str(message.value().decode())


def through_aiokafka(cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError

    config = cluster.client_config("aiokafka", **wishes)
    if "token" in wishes:  # refused, it asks for metadata for all of this time
        config["request_timeout_ms"] = 5000

    async def written() -> str:
        producer = AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"aiokafka")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest")
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), WAIT_S)
            return str(record.value.decode())

    with Logged("aiokafka") as said:
        try:
            return asyncio.run(written())
        except KafkaError as error:
            return f"error: {error} {said}"


def through_kafka_python(cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
    state = dataclasses.asdict(cluster.ask("cluster.security", {}))
    command = [sys.executable, "-W", "ignore", "-m", "compat.clients.secured_kafka_python"]
    return _program(command, {"state": state, "wishes": wishes, "topic": topic})


class Logged(logging.Handler):
    """What a library logs meanwhile: clients tell reasons there alone."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self._logger = logging.getLogger(name)
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())

    def __str__(self) -> str:
        return "\n".join(self._lines)


def through_franz_go(cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
    config = cluster.client_config("franz-go", **wishes)
    return _program([str(build_go_program("secured"))], {"config": config, "topic": topic})


def through_kafkajs(cluster: RunningCluster, wishes: Wishes, topic: str) -> str:
    try:
        packages = needs_of("node-kafkajs")
    except UNAVAILABLE as missing:
        pytest.skip(str(missing))
    assert packages is not None
    script = packages.parent / KAFKAJS.name  # modules are searched beside the script
    if not script.exists() or script.read_bytes() != KAFKAJS.read_bytes():
        script.write_bytes(KAFKAJS.read_bytes())
    config = cluster.client_config("kafkajs", **wishes)
    command = ["node", "--no-warnings", str(script)]
    return _program(command, {"config": config, "topic": topic})


def _program(command: list[str], given: dict[str, Any]) -> str:
    done = subprocess.run(
        command,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def through_java(
    java: Jvm, folder: Path, cluster: RunningCluster, wishes: Wishes, topic: str
) -> str:
    """Kafka's console tools, which take the text as a file."""
    config = cluster.client_config("java", **wishes)
    file = folder / f"{topic}.properties"
    (servers,) = re.findall("bootstrap.servers=(.*)", config)
    file.write_text(config)
    place = ("--bootstrap-server", servers, "--topic", topic)
    command = ("--command-config", str(file))
    limits = ("--command-property", "delivery.timeout.ms=31000")
    done = java.tool("ConsoleProducer", *place, *command, *limits, stdin="java\n")
    if done.exit or "Exception" in done.out + done.err:
        return f"error: {done.out} {done.err}"
    bound = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
    read = java.tool("consumer.ConsoleConsumer", *place, *command, *bound)
    return read.out.strip() or f"error: {read.err}"


THROUGH: dict[str, Callable[[RunningCluster, Wishes, str], str]] = {
    "aiokafka": through_aiokafka,
    "confluent-kafka": through_confluent_kafka,
    "franz-go": through_franz_go,
    "kafka-python": through_kafka_python,
    "kafkajs": through_kafkajs,
}
