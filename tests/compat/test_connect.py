"""Kafka Connect of the jars: files into topics and back, alone and as a cluster."""

from __future__ import annotations

import itertools
import json
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient

from compat.eventually import eventually
from compat.jvm import FAST_START, QUIET, require_jars
from compat.moving import offsets_of, records_of
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.address import free_port, wait_until_listening
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from compat.brokers import Broker
    from compat.jvm import Jvm

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "plugin.discovery": "service_load",  # no search through all jars
    "listeners": "http://127.0.0.1:0",
}


def append(file: Path, numbers: Iterable[int]) -> None:
    with file.open("a") as lines:
        lines.writelines(f"line {number}\n" for number in numbers)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def lines(numbers: range) -> list[str]:
    return [f"line {number}" for number in numbers]


def test_each_line_of_a_file_passes_once_though_the_worker_is_started_again(
    java: Jvm, broker: Broker, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, given, taken = fresh("lines"), tmp_path / "given", tmp_path / "taken"
    worker = {
        **WORKER,
        "bootstrap.servers": broker.bootstrap,
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }
    source = {"name": "in", "connector.class": "FileStreamSource", "topic": topic}
    sink = {"name": fresh("out"), "connector.class": "FileStreamSink", "topics": topic}
    connectors = [source | {"file": str(given)}, sink | {"file": str(taken)}]
    append(given, range(500))
    java.call("connect_start", worker=worker, connectors=connectors)
    eventually(lambda: len(lines_of(taken)), lambda count: count >= 500)
    java.call("connect_stop")
    append(given, range(500, 800))
    java.call("connect_start", worker=worker, connectors=connectors)
    eventually(lambda: len(lines_of(taken)), lambda count: count >= 800)
    java.call("connect_stop")
    assert lines_of(taken) == lines(range(800))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert offsets_of(admin, f"connect-{sink['name']}") == [[topic, 0, 800]]


class Worker:
    """A worker of `connect-distributed`, to be killed."""

    def __init__(self, folder: Path, settings: dict[str, str], jars: str = "") -> None:
        """`jars` are those of connectors that Kafka does not have."""
        self._folder, self._jars = folder, jars
        self._port = free_port()
        self._properties = folder / "worker.properties"
        settings = {**WORKER, **settings, "listeners": f"http://127.0.0.1:{self._port}"}
        self._properties.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        self.child: Child | None = None

    def start(self) -> None:
        jars = ":".join(filter(None, (require_jars(), self._jars)))
        java = [kafka_jars.java(), "-Xmx256m", *FAST_START, *QUIET, "-cp", jars]
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self.child = Child([*java, main, str(self._properties)], self._folder / "worker.log")
        wait_until_listening(self._port, self.child.check)

    def end(self) -> None:
        if self.child is not None:
            self.child.end(signal.SIGKILL)

    def ask(self, path: str, config: dict[str, str] | None = None) -> Any:
        """One request of its REST interface; None while it does not serve it yet."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            data=None if config is None else json.dumps(config).encode(),
            method="GET" if config is None else "PUT",
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409, 500, 503):  # it has not joined its group yet
                return None
            raise


def exactly_once(broker: Broker, fresh: Callable[[str], str]) -> dict[str, str]:
    """The settings of a worker that is soon missed."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": fresh("workers"),
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "200",
        "session.timeout.ms": "3000",  # a killed worker's place in the group
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = fresh(kind)
        settings[f"{kind}.storage.replication.factor"] = "-1"
    return settings


@pytest.fixture
def worker(broker: Broker, fresh: Callable[[str], str], tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path, exactly_once(broker, fresh))
    yield made
    made.end()


@pytest.mark.nightly
def test_an_exactly_once_source_that_is_killed_writes_each_line_once(
    worker: Worker, broker: Broker, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    topic, given = fresh("lines"), tmp_path / "given"
    config = {
        "connector.class": "FileStreamSource",
        "topic": topic,
        "file": str(given),
        "batch.size": "10",
        "exactly.once.support": "required",
    }

    def values() -> list[str]:
        found = records_of({"bootstrap.servers": broker.bootstrap}, topic, 0, "read_committed")
        return [value for _, _, value in found]

    written = itertools.count()

    def write(count: int) -> None:
        append(given, itertools.islice(written, count))

    def written_and_read() -> int:
        write(1)  # the connector keeps the last lines of a full batch until there are more
        return len(values())

    write(1000)
    worker.start()
    eventually(lambda: worker.ask("connectors/in/config", config), bool, 120)
    for end in (6000, 11000):
        eventually(values, bool, 120)
        write(5000)
        worker.end()
        worker.start()
        eventually(written_and_read, end.__le__, 120)
    found = values()
    assert found == lines(range(len(found)))
