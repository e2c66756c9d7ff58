"""The door of a load program: JSON lines to it, acknowledgements and records in files from it.

| op | fields | answer |
|---|---|---|
| start | bootstrap, topic, partitions, producer (a word), rate (records a second) | |
| count | | each [acknowledged, by partition], failed [text] |
| finish | timeout_ms, file | acknowledged, left, failed [text] |
| read | bootstrap, topic, partitions, timeout_ms, file | records |
| follow (librdkafka's alone) | bootstrap, topic, partitions | |
| followed (librdkafka's alone) | records (to wait for), timeout_ms, file | records, failed [text] |
| create_topic (librdkafka's alone) | bootstrap, topic, partitions, configs | |
| replicas (librdkafka's alone) | | leaders [id], in_sync [[id]] by partition; or none known |

A record's value is `PRODUCER PARTITION NUMBER` and dots up to 200 bytes; numbers count from 0 in
each partition. A line of `finish`'s file is `partition number offset nanoseconds` (the monotonic
clock; offset -1 when the client was not told it), of the other files `partition offset value`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compat.jvm import FAST_START, QUIET, driver_classes
from compat.line_process import LineProcess
from tidelog_bench.peers import kafka_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).parents[2]
FINISH_S_MAX = 90
READ_S_MAX = 60


class Acknowledgement(NamedTuple):
    partition: int
    number: int
    offset: int
    seconds: float


class Found(NamedTuple):
    """A record as it was read."""

    offset: int
    producer: str
    number: int


def librdkafka_command() -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "compat.chaos.librdkafka_load"]


def java_command() -> list[str]:
    classpath = f"{driver_classes()}:{kafka_jars.classpath()}"
    return [kafka_jars.java(), "-Xmx256m", *FAST_START, *QUIET, "-cp", classpath, "ChaosLoad"]


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
                partition, number, offset, nanoseconds = map(int, line.split())
                acknowledged.append(Acknowledgement(partition, number, offset, nanoseconds / 1e9))
        return acknowledged

    def read(self) -> list[list[Found]]:
        """All records there are now, by partition."""
        file = self._folder / f"{self.name}.read"
        self._process.call(
            "read",
            file=str(file),
            timeout_ms=1000 * READ_S_MAX,
            answer_timeout_s=READ_S_MAX + 10,
            **self._topic,
        )
        return self._found(file)

    def follow(self) -> None:
        """Consume from now on as well, from the beginning."""
        self._process.call("follow", **self._topic)

    def followed(self, records: int) -> list[list[Found]]:
        """What that consumer saw, in its order, so many records if they come. AssertionError if it
        met an error."""
        file = self._folder / f"{self.name}.followed"
        answer = self._process.call(
            "followed",
            records=records,
            file=str(file),
            timeout_ms=1000 * READ_S_MAX,
            answer_timeout_s=READ_S_MAX + 10,
        )
        assert not answer["failed"], f"{self.name}'s consumer: {answer['failed'][:5]}"
        return self._found(file)

    def _found(self, file: Path) -> list[list[Found]]:
        found: list[list[Found]] = [[] for _ in range(self._topic["partitions"])]
        with file.open() as lines:
            for line in lines:
                partition, offset, producer, meant, number = line.split()[:5]
                assert meant == partition, f"a record for {meant} is in {partition}: {line}"
                found[int(partition)].append(Found(int(offset), producer, int(number)))
        return found

    def close(self) -> None:
        self._process.kill()
