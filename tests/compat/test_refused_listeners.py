"""Listeners and voters that no node can have are refused at the start in Apache Kafka's words.

`refused_listeners.json` has settings, over those of `NODE`, and what Kafka 4.3.1 says of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.line_process import WorkerError
from tidelog.config.broker import BrokerConfig
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compat.jvm import Jvm

RECORDED = Path(__file__).parent / "refused_listeners.json"
NODE: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "/nowhere",
}
CASES: list[tuple[dict[str, str], str | None]] = json.loads(RECORDED.read_text())
KEYS = (
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
)


@pytest.mark.parametrize(("settings", "text"), CASES)
def test_a_refusal_has_kafkas_words(settings: dict[str, str], text: str | None) -> None:
    if text is None:
        BrokerConfig.from_properties({**NODE, **settings})
        return
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties({**NODE, **settings})
    assert refused.value.message == text
    assert refused.value.key in KEYS
    assert "\n" not in text


@pytest.mark.reference
@pytest.mark.nightly  # the recording changes with its cases alone
def test_the_recording_is_what_kafka_says(java: Jvm) -> None:
    said = []
    for settings, _ in CASES:
        try:
            java.call("config", settings={**NODE, **settings})
            said.append(None)
        except WorkerError as error:
            said.append(str(error).partition(": ")[2].removeprefix("requirement failed: "))
    assert said == [text for _, text in CASES]
