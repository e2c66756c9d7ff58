"""An authorizer as Kafka's: its refusals of every API, and kafka-acls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from compat.authorized import ROWS_LEFT_OUT, SETTINGS, Play, played, recorded, unlike
from compat.brokers import Tidelog
from compat.jvm import require_jars
from compat.reference import ApacheKafka
from support import rights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat.brokers import Broker
    from compat.jvm import Jvm


NOT_RECORDED = {
    "ApiVersions": "version 5 is not served by Kafka 4.3",
    "DeleteGroups": "version 3, too",
    "DescribeUserScramCredentials": "a controller of Kafka never answers",
    "GetTelemetrySubscriptions": "only with a reporter of Kafka's",
    "PushTelemetry": "as well",
}


def test_kafka_asks_for_the_rights_of_the_table() -> None:
    """Its recorded answers: to nobody, to who has the rights of a row, and to who lacks one."""
    kept, wrong, missing = recorded(), [], set()
    rows = {row.key: row for row in rights.rows()}
    assert rows.keys() >= ROWS_LEFT_OUT.keys()
    for row, version in ((each, one) for each in rows.values() for one in each.versions):
        key = f"{row.key}-v{version}"
        if key not in kept:
            missing.add(row.api.name)
            continue
        for caller, codes in kept[key][0]["answer"].items():
            names = [code.removesuffix("_AUTHORIZATION_FAILED") for code in codes]
            refused = row.refusal if row.refusal not in (rights.FREE, rights.LESS) else ""
            if caller.startswith("without"):
                is_right = bool(names)
            else:
                is_right = names == ([refused] if refused and caller == "nobody" else [])
            if not is_right:
                wrong.append((key, caller, codes))
    assert wrong == []
    assert missing == NOT_RECORDED.keys()


@pytest.mark.compat
@pytest.mark.timeout(120)
def test_refusals_are_those_of_kafka() -> None:
    assert unlike(recorded(), played("tidelog")) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its requests alone
@pytest.mark.timeout(300)
def test_the_recording_is_what_kafka_answers() -> None:
    require_jars()
    assert unlike(recorded(), played("kafka")) == []


def prepare(broker: Broker) -> None:
    play = Play(broker.bootstrap)
    play.prepare()
    play.close()


@pytest.fixture
def authorizing(tmp_path: Path) -> Iterator[Broker]:
    broker = Tidelog(tmp_path / "b", SETTINGS)
    broker.start()
    prepare(broker)
    yield broker
    broker.stop()


TOOL_STEPS = (
    ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
    ("--add", "--allow-principal", "User:p", "--producer", "--topic", "t", "--idempotent"),
    ("--add", "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g"),
    (
        *("--add", "--deny-principal", "User:d", "--deny-host", "192.0.2.9", "--topic", "pre"),
        *("--resource-pattern-type", "prefixed"),
    ),
    ("--list", "--topic", "t"),
    ("--list", "--principal", "User:p"),
    ("--list", "--topic", "prefix", "--resource-pattern-type", "match"),
    ("--remove", "--force", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
    ("--remove", "--force", "--topic", "t", "--topic", "pre", "--resource-pattern-type", "any"),
    ("--list", "--group", "g"),
)


def printed(java: Jvm, bootstrap: str) -> list[list[str]]:
    """What the tool prints for each step, whose ACLs come in the order of hash maps."""
    shown = []
    for step in TOOL_STEPS:
        result = java.tool("AclCommand", "--bootstrap-server", bootstrap, *step)
        assert result.exit == 0, result
        shown.append(sorted(line.strip() for line in re.split(r"\n+", result.out) if line.strip()))
    return shown


@pytest.mark.reference
@pytest.mark.nightly  # a Kafka of its own
@pytest.mark.timeout(300)
def test_kafka_acls_prints_the_same(java: Jvm, authorizing: Broker, tmp_path: Path) -> None:
    reference = ApacheKafka(tmp_path / "kafka", SETTINGS)
    reference.start()
    try:
        prepare(reference)
        assert printed(java, authorizing.bootstrap) == printed(java, reference.bootstrap)
    finally:
        reference.stop()
