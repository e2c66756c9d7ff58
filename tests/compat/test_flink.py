"""Apache Flink's Kafka connector: a job with an exactly-once sink, killed and restored."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat.eventually import eventually
from compat.jvm import FAST_START, QUIET
from compat.moving import records_of
from support.examples import java_classes
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat.brokers import Broker

pytestmark = [pytest.mark.compat, pytest.mark.nightly, pytest.mark.timeout(600)]

SOURCES = Path(__file__).parent / "flink"
OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.time")


class Job:
    """UpperCase.java between two topics."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._checkpoints = folder / "checkpoints"
        try:
            self._jars = f"{java_classes(SOURCES)}:{kafka_jars.classpath(SOURCES / 'pom.xml')}"
        except kafka_jars.JarsUnavailableError as missing:
            pytest.skip(str(missing))
        self._arguments = [*arguments, str(self._checkpoints)]
        self._child: Child | None = None

    def start(self) -> None:
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        java = [kafka_jars.java(), "-Xmx512m", *FAST_START, *QUIET, *opened, "-cp", self._jars]
        restored = [str(path.parent) for path in self.whole_checkpoints()[-1:]]
        command = [*java, "UpperCase", *self._arguments, *restored]
        self._child = Child(command, self._folder / "job.log")

    def whole_checkpoints(self) -> list[Path]:
        """The metadata of those that are complete, the newest last."""
        return sorted(
            self._checkpoints.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns
        )

    def check(self) -> None:
        assert self._child is not None
        self._child.check()

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end(signal.SIGKILL)


@pytest.fixture
def topics(broker: Broker, fresh: Callable[[str], str]) -> tuple[str, str]:
    names = fresh("words"), fresh("upper")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(60)
    return names


@pytest.fixture
def job(broker: Broker, topics: tuple[str, str], tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path, broker.bootstrap, *topics)
    yield made
    made.kill()


def test_a_job_that_is_killed_and_restored_writes_each_record_once(
    job: Job, broker: Broker, topics: tuple[str, str]
) -> None:
    at = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**at, "transactional.id": topics[0]})
    producer.init_transactions(60)
    sent = 0

    def send(*, commit: bool = True) -> None:
        nonlocal sent
        producer.begin_transaction()
        for number in range(sent, sent + 500):
            producer.produce(topics[0], f"word {number}" if commit else "aborted")
        if commit:
            producer.commit_transaction(60)
            sent += 500
        else:
            producer.abort_transaction(60)

    def written() -> list[str]:
        job.check()
        return [value for _, _, value in records_of(at, topics[1], 0, "read_committed")]

    send()
    job.start()
    for _ in range(2):
        eventually(lambda: len(written()), sent.__eq__, 120)
        before = job.whole_checkpoints()[-1]
        eventually(lambda seen=before: job.whole_checkpoints()[-1] != seen, bool)
        send(commit=False)
        send()
        job.kill()
        job.start()
    eventually(lambda: len(written()), sent.__eq__, 120)
    assert written() == [f"WORD {number}" for number in range(sent)]
