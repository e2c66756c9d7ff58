"""The door of a load program: JSON lines to it, what it saw in files from it.

| op | fields | answer |
|---|---|---|
| start | bootstrap, topic, partitions, producer (a word), rate (records a second) | |
| count | | each [acknowledged, by partition], failed [text] |
| finish | timeout_ms, file | acknowledged, left, failed [text] |
| follow | reader (a word), bootstrap, topic, partitions | |
| followed | reader, records (to wait for), timeout_ms, file | records, failed [text] |
| create_topic (librdkafka alone) | bootstrap, topic, partitions, configs | |
| replicas (librdkafka alone) | | leaders [id], in_sync [[id]] by partition; or none known |
| transact (aiokafka alone) | bootstrap, topic, partitions, producer, writers, seed | |
| transacted (aiokafka alone) | file (JSON, `aiokafka_load.Writer`) | transactions |

A record's value is `PRODUCER PARTITION NUMBER` and dots up to 200 bytes; numbers count from 0 in
each partition. A line of `finish`'s file is `partition number offset asked answered` (offset -1 if
the client was not given it), of `followed`'s file `partition offset asked answered producer
partition number`. Times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compat.go_client import SOURCES
from compat.jvm import FAST_START, QUIET, driver_classes
from compat.line_process import LineProcess
from histories.calls import Span
from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.go_programs import go_program

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).parents[2]
FINISH_S_MAX = 90
READ_S_MAX = 60


class Acknowledgement(NamedTuple):
    """A record as its producer knows it; offset None if it was not given."""

    partition: int
    number: int
    offset: int | None
    span: Span


class Found(NamedTuple):
    """A record as it was read."""

    partition: int
    offset: int
    span: Span
    value: bytes


def value_of(producer: str, partition: int, number: int) -> bytes:
    """What identifies a record."""
    return f"{producer} {partition} {number}".encode()


def librdkafka_command() -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "compat.chaos.librdkafka_load"]


def aiokafka_command() -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "compat.chaos.aiokafka_load"]


def java_command() -> list[str]:
    classpath = f"{driver_classes()}:{kafka_jars.classpath()}"
    return [kafka_jars.java(), "-Xmx256m", *FAST_START, *QUIET, "-cp", classpath, "ChaosLoad"]


def go_command() -> list[str]:
    return [str(go_program("chaos", SOURCES))]


class Load:
    """One client's program."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._topic: dict[str, Any] = {}
        path = f"{TESTS}:{Path(kafka_jars.__file__).parents[2]}"
        self._process = LineProcess(command, folder / f"{name}.log", {"PYTHONPATH": path})

    def start(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        """Produce from now on."""
        self._topic = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions}
        self._process.call("start", producer=self.name, rate=rate, **self._topic)

    @property
    def log(self) -> Path:
        """What the program writes to standard error."""
        return self._process.log

    def counts(self) -> list[int]:
        """How many records of each partition were acknowledged by now. AssertionError if one
        failed."""
        answer = self._process.call("count")
        assert not answer["failed"], f"{self.name}: refused: {answer['failed'][:5]}"
        return list(answer["each"])

    def create_topic(self, bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
        """Three replicas of each partition; configs with underscores for dots."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        fields = {"bootstrap": bootstrap, "topic": topic, "partitions": partitions}
        self._process.call("create_topic", configs=named, **fields)

    def replicas(self) -> tuple[list[int], list[list[int]]]:
        """Leader and replicas in sync of each partition, as some broker knows them now."""
        answer = self._process.call("replicas")
        return answer["leaders"], answer["in_sync"]

    def finish(self) -> list[Acknowledgement]:
        """Produce no more; all acknowledgements in their order. AssertionError if one failed."""
        file = self._folder / f"{self.name}.acknowledged"
        answer = self._process.call(
            "finish",
            file=str(file),
            timeout_ms=1000 * FINISH_S_MAX,
            answer_timeout_s=FINISH_S_MAX + 10,
        )
        assert not answer["failed"], f"{self.name}: refused: {answer['failed'][:5]}"
        assert answer["left"] == 0, f"{self.name}: {answer['left']} records were never answered"
        acknowledged = []
        with file.open() as lines:
            for line in lines:
                partition, number, offset, asked, answered = map(int, line.split())
                at = None if offset < 0 else offset
                span = Span(asked / 1e9, answered / 1e9)
                acknowledged.append(Acknowledgement(partition, number, at, span))
        return acknowledged

    def follow(self, reader: str) -> None:
        """Consume from now on as well, from the beginning."""
        self._process.call("follow", reader=reader, **self._topic)

    def followed(self, reader: str, records: int) -> list[Found]:
        """What that consumer saw, in its order, so many records if they come. AssertionError if it
        met an error."""
        file = self._folder / f"{self.name}.{reader}"
        answer = self._process.call(
            "followed",
            reader=reader,
            records=records,
            file=str(file),
            timeout_ms=1000 * READ_S_MAX,
            answer_timeout_s=READ_S_MAX + 10,
        )
        assert not answer["failed"], f"{self.name}'s consumer: {answer['failed'][:5]}"
        found = []
        with file.open() as lines:
            for line in lines:
                partition, offset, asked, answered, producer, meant, number = line.split()
                assert meant == partition, f"a record for {meant} is in {partition}: {line}"
                span = Span(int(asked) / 1e9, int(answered) / 1e9)
                value = value_of(producer, int(partition), int(number))
                found.append(Found(int(partition), int(offset), span, value))
        return found

    def transact(self, topic: str, seed: int, writers: int) -> None:
        """Write transactions from now on."""
        topic_fields = {**self._topic, "topic": topic}
        self._process.call(
            "transact", producer=self.name, seed=seed, writers=writers, **topic_fields
        )

    def transacted(self) -> list[dict[str, Any]]:
        """No more transactions; all of them, as `aiokafka_load.Writer` describes."""
        file = self._folder / f"{self.name}.transactions"
        self._process.call("transacted", file=str(file))
        transactions: list[dict[str, Any]] = json.loads(file.read_text())
        return transactions

    def close(self) -> None:
        self._process.kill()
