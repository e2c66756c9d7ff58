"""The transcripts of Apache Kafka, one text a session."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from compat.console.allowed import expected_of
from compat.console.console import Console, Entry, entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from compat.brokers import Broker
    from compat.console.sessions import Session
    from compat.jvm import Jvm

FOLDER = Path(__file__).parent / "recorded"


def played(one: Session, broker: Broker, jvm: Jvm, expected: Sequence[Entry] | None) -> list[Entry]:
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
