"""tidelog authenticates as Apache Kafka does: against the recording, and it against Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance import recording
from compat.conformance.compare import differences
from compat.conformance.sasl.doors import KafkaSasl, TidelogSasl
from compat.conformance.sasl.runner import RECORDED, collect
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.sasl.doors import SaslDoor


def unlike(door: SaslDoor) -> list[str]:
    """All differences from the recording."""
    recorded = recording.load(RECORDED)
    door.start()
    try:
        heard = collect(door)
    finally:
        door.stop()
    assert heard.keys() == recorded.keys()
    return [str(one) for key in heard for one in differences(key, recorded[key], heard[key])]


def test_no_case_failed_when_it_was_recorded() -> None:
    lines = [line for each in recording.load(RECORDED).values() for line in each]
    assert [line for line in lines if "failed" in line["answer"]] == []


@pytest.mark.compat
@pytest.mark.timeout(120)
def test_it_authenticates_as_kafka_did(tmp_path: Path) -> None:
    assert unlike(TidelogSasl(tmp_path)) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
@pytest.mark.timeout(300)
def test_the_recording_is_what_kafka_answers(tmp_path: Path) -> None:
    require_jars()
    assert unlike(KafkaSasl(tmp_path)) == []
