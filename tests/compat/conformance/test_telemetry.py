"""tidelog takes clients' metrics as Apache Kafka does: against the recording, and it against
Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat.conformance import recording
from compat.conformance.compare import differences
from compat.conformance.telemetry import RECORDED, KafkaReceiver, collect, tidelog_receiver
from compat.jvm import require_jars

if TYPE_CHECKING:
    from pathlib import Path

    from compat.conformance.telemetry import Receiver


def unlike(broker: Receiver) -> list[str]:
    """All differences from the recording."""
    recorded = recording.load(RECORDED)
    broker.start()
    try:
        heard = collect(broker)
    finally:
        broker.stop()
    assert heard.keys() == recorded.keys()
    return [str(one) for key in heard for one in differences(key, recorded[key], heard[key])]


@pytest.mark.compat
@pytest.mark.timeout(120)
def test_it_takes_metrics_as_kafka_did(tmp_path: Path) -> None:
    assert unlike(tidelog_receiver(tmp_path)) == []


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
@pytest.mark.timeout(300)
def test_the_recording_is_what_kafka_answers(tmp_path: Path) -> None:
    require_jars()
    assert unlike(KafkaReceiver(tmp_path)) == []
