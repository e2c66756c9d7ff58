"""Rules between settings, by the specification's table and in Kafka's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.vectors import load_yaml
from tidelog_storage.config import ConfigError, LogConfig
from tidelog_storage.config_rules import validate_broker, validate_topic

DEFAULTS = LogConfig()
TABLE = load_yaml(Path(__file__).parent / "vectors" / "config-validation.yaml")


def text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_the_specifications_table(case: dict[str, Any]) -> None:
    given = case["in"]
    topic = {**TABLE["given"], **given["topic"]}
    overrides = {name: text(value) for name, value in topic.items()}
    before = {name: text(value) for name, value in given.get("before", {}).items()}

    def validate() -> LogConfig:
        return validate_topic(
            overrides,
            defaults=DEFAULTS,
            existing=before,
            remote_storage_system_enabled=given["system_enabled"],
        )

    if case["out"]["accepted"]:
        assert validate().remote_storage_enable == topic["remote.storage.enable"]
    else:
        with pytest.raises(ConfigError):
            validate()


REMOTE = {"remote.storage.enable": "true"}
WORDS = [
    (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (9)",
    ),
    (
        REMOTE | {"cleanup.policy": "compact"},
        "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being"
        " an empty list.",
    ),
    (
        REMOTE | {"retention.ms": "1000", "local.retention.ms": "1001"},
        "Invalid value 1001 for configuration local.retention.ms: Value must not be more than"
        " retention.ms property value: 1000",
    ),
    (
        REMOTE | {"retention.bytes": "100", "local.retention.bytes": "-1"},
        "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as"
        " retention.bytes value is set as 100.",
    ),
    (
        REMOTE | {"retention.ms": "1000", "remote.copy.lag.ms": "1001"},
        "Invalid value 1001 for configuration remote.copy.lag.ms: Value must not exceed"
        " local.retention.ms (effective value: 1000)",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), WORDS)
def test_words(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic(overrides, defaults=DEFAULTS, remote_storage_system_enabled=True)
    assert str(caught.value) == message


def test_remote_settings_of_a_local_topic_do_not_matter() -> None:
    validate_topic({"retention.ms": "1000", "remote.copy.lag.ms": "1001"}, defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms",
        ),
        ({"log.retention.ms": "5", "log.local.retention.ms": "6"}, "local.retention.ms"),
    ],
)
def test_a_brokers_defaults(properties: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_broker(LogConfig.from_broker(properties), remote_storage_system_enabled=True)
    assert caught.value.key == key


def test_a_brokers_good_defaults() -> None:
    validate_broker(LogConfig.from_broker({}), remote_storage_system_enabled=True)
    local = LogConfig.from_broker({"log.retention.ms": "5", "log.local.retention.ms": "6"})
    validate_broker(local)  # without a remote tier nobody asks
