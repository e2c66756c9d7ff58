"""The transcripts of Apache Kafka, one text a session."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import tidelog
from compat.brokers import Tidelog
from compat.console.allowed import expected_of
from compat.console.console import Console, Entry, entries_of
from compat.reference import ApacheKafka, ApacheKafkaCluster
from support.clusters import STEADY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compat.console.sessions import Session
    from compat.jvm import Jvm

FOLDER = Path(__file__).parent / "recorded"


# What the reference's brokers have.
ALIKE = {**STEADY, "log.retention.ms": "-1", "log.segment.delete.delay.ms": "1000"}


class TidelogCluster:
    """Several brokers; the door of `compat.brokers.Tidelog`."""

    def __init__(self, folder: Path, settings: Mapping[str, str], brokers: int) -> None:
        self.folder, self.bootstrap = folder, ""
        self._settings, self._brokers = {**ALIKE, **settings}, brokers
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Start all."""
        run = tidelog.run(self._settings, brokers=self._brokers, isolated=True)
        self.bootstrap = self._running.enter_context(run).bootstrap_servers

    def kill(self) -> None:
        """End all."""
        self._running.close()


AnyBroker = Tidelog | TidelogCluster | ApacheKafka | ApacheKafkaCluster


def new_tidelog(one: Session, folder: Path) -> AnyBroker:
    """What a session is played on."""
    if one.brokers > 1:
        return TidelogCluster(folder / "broker", one.settings, one.brokers)
    return Tidelog(folder / "broker", one.settings, has_controller_listener=True)


def new_kafka(one: Session, folder: Path) -> AnyBroker:
    """What it is recorded from."""
    if one.brokers > 1:
        return ApacheKafkaCluster(folder / "broker", one.settings, brokers=one.brokers)
    return ApacheKafka(folder / "broker", one.settings)


def played(
    one: Session, broker: AnyBroker, jvm: Jvm, expected: Sequence[Entry] | None
) -> list[Entry]:
    """A session on a new broker, in the folder above the broker's."""
    broker.start()
    try:
        console = Console(jvm, broker.bootstrap, broker.folder.parent, expected)
        one.play(console)
    finally:
        broker.kill()
    return console.entries


def differences(expected: Iterable[Entry], found: Iterable[Entry]) -> list[str]:
    """What `found` has otherwise, line by line."""
    texts = ("".join(map(str, each)).splitlines(keepends=True) for each in (expected, found))
    return list(difflib.unified_diff(*texts, "kafka", "tidelog", n=4))


def load(name: str) -> list[Entry]:
    """What Apache Kafka's tools printed, and tidelog's have to."""
    return list(entries_of(expected_of(name, recorded(name))))


def recorded(name: str) -> str:
    """What Apache Kafka's tools printed."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def save(name: str, entries: Iterable[Entry]) -> None:
    """Keep it."""
    FOLDER.mkdir(exist_ok=True)
    text = "\n".join(map(str, entries))
    (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
