"""Topic settings: Kafka 4.4's keys and defaults, parsing, errors, broker synonyms."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.vectors import load_yaml
from tidelog_protocol.compression import Codec
from tidelog_storage.config import BROKER_KEYS, TOPIC_KEYS, ConfigError, LogConfig

DEFAULTS = LogConfig()
VECTORS = Path(__file__).parent / "vectors"
# name, type, default and synonyms, as Kafka 4.4.0's own LogConfig lists them, in its order.
KAFKA_KEYS = load_yaml(VECTORS / "topic-config-keys.yaml")


def test_keys_types_defaults_and_synonyms_are_kafkas() -> None:
    ours = [
        {
            "name": key.name,
            "type": key.type_name,
            "default": key.default,
            "low": key.low,
            "high": key.high,
            "synonyms": {synonym.name: synonym.factor for synonym in key.synonyms},
        }
        for key in TOPIC_KEYS.values()
        if not key.internal
    ]
    assert ours == KAFKA_KEYS


def test_every_key_is_described() -> None:
    for key in [*TOPIC_KEYS.values(), *BROKER_KEYS.values()]:
        assert key.documentation.endswith("."), key.name
        assert key.importance in {"LOW", "MEDIUM", "HIGH"}


def test_overrides_are_laid_over_the_defaults() -> None:
    config = LogConfig.from_overrides(
        DEFAULTS, {"segment.bytes": "2097152", "cleanup.policy": "compact,delete"}
    )
    assert config.segment_bytes == config.segment_size == 2097152
    assert config.cleanup_policy == ["compact", "delete"]
    assert config.is_compacted
    assert config.deletes
    assert config.retention_ms == 604800000
    assert config.overridden == {"segment.bytes", "cleanup.policy"}
    again = LogConfig.from_overrides(config, {"retention.ms": "5"})
    assert (again.segment_bytes, again.retention_ms) == (2097152, 5)
    assert again.overridden == {"retention.ms"}
    assert "segment.bytes" not in repr(again)


def test_settings_without_an_override_are_not_computed_again() -> None:
    """A controller asks for thousands of topics in one request."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    defaults = LogConfig()
    sys.setprofile(count)
    try:
        config = LogConfig.from_overrides(defaults, {"flush.ms": "7"})
    finally:
        sys.setprofile(None)
    assert calls < 10 < len(TOPIC_KEYS)
    assert config.flush_ms == 7
    assert config == LogConfig({"flush.ms": 7}, frozenset({"flush.ms"}))


def test_an_instance_does_not_change() -> None:
    with pytest.raises(AttributeError, match="does not change"):
        DEFAULTS.segment_bytes = 5
    assert LogConfig() == DEFAULTS
    assert LogConfig.from_overrides(DEFAULTS, {"preallocate": "true"}) != DEFAULTS


def test_values_by_kafka_name() -> None:
    assert DEFAULTS.value("segment.bytes") == 1 << 30
    assert all(DEFAULTS.value(name) == key.default for name, key in TOPIC_KEYS.items())


REFUSED = [
    ("segment.bytes", "-1", "-1", "Value must be at least 1048576"),
    ("segment.bytes", "1048575", "1048575", "Value must be at least 1048576"),
    ("segment.bytes", "abc", "abc", "Not a number of type INT"),
    ("segment.bytes", "99999999999", "99999999999", "Not a number of type INT"),
    ("retention.ms", "1.5", "1.5", "Not a number of type LONG"),
    ("retention.ms", "0x10", "0x10", "Not a number of type LONG"),
    ("retention.ms", "1_000", "1_000", "Not a number of type LONG"),
    ("retention.ms", "9223372036854775808", "9223372036854775808", "Not a number of type LONG"),
    ("retention.ms", "-2", "-2", "Value must be at least -1"),
    ("retention.bytes", "", "", "Not a number of type LONG"),
    ("cleanup.policy", "none", "none", "String must be one of: compact, delete"),
    ("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1"),
    ("compression.lz4.level", "18", "18", "Value must be no more than 17"),
    ("compression.zstd.level", "-999999999", "-999999999", "Value must be at least -131072"),
    ("min.cleanable.dirty.ratio", "2", "2.0", "Value must be no more than 1"),
    ("min.cleanable.dirty.ratio", "-0.5", "-0.5", "Value must be at least 0"),
    ("min.cleanable.dirty.ratio", "abc", "abc", "Not a number of type DOUBLE"),
    ("preallocate", "yes", "yes", "Expected value to be either true or false"),
    (
        "compression.type",
        "foo",
        "foo",
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "message.timestamp.type",
        "CREATETIME",
        "CREATETIME",
        "String must be one of: CreateTime, LogAppendTime",
    ),
    (
        "leader.replication.throttled.replicas",
        "1:2,3",
        "[1:2, 3]",
        "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in"
        " the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
]


@pytest.mark.parametrize(("name", "text", "shown", "reason"), REFUSED)
def test_bad_values_are_refused_in_kafkas_words(
    name: str, text: str, shown: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_overrides(DEFAULTS, {name: text})
    assert caught.value.key == name
    assert str(caught.value) == f"Invalid value {shown} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " +2097152 ", 2097152),
        ("cleanup.policy", "", []),
        ("cleanup.policy", " compact , delete,compact", ["compact", "delete"]),
        ("preallocate", " TRUE ", True),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("min.cleanable.dirty.ratio", "0.5f", 0.5),
        ("compression.gzip.level", "-1", -1),
        ("follower.replication.throttled.replicas", "*", ["*"]),
        ("follower.replication.throttled.replicas", "1:2,1:2", ["1:2", "1:2"]),
        ("follower.replication.throttled.replicas", "", []),
        ("retention.bytes", "-2", -2),
        ("flush.ms", "9223372036854775807", 2**63 - 1),
    ],
)
def test_values_that_kafka_takes(name: str, text: str, value: object) -> None:
    assert LogConfig.from_overrides(DEFAULTS, {name: text}).value(name) == value


def test_unknown_names_come_first() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown topic config name: foo$") as caught:
        LogConfig.from_overrides(DEFAULTS, {"segment.bytes": "9", "foo": "1"})
    assert caught.value.key == "foo"


def test_small_segments_for_tests() -> None:
    config = LogConfig.from_overrides(DEFAULTS, {"internal.segment.bytes": "14"})
    assert (config.segment_size, config.segment_bytes) == (14, 1 << 30)


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("producer", None, None),
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, -1),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 9),
        ("zstd", Codec.ZSTD, 3),
    ],
)
def test_target_codec_and_level(name: str, codec: Codec | None, level: int | None) -> None:
    config = LogConfig.from_overrides(DEFAULTS, {"compression.type": name})
    assert (config.target_codec, config.compression_level) == (codec, level)


def test_derived_times_and_sizes() -> None:
    config = LogConfig.from_overrides(
        DEFAULTS, {"retention.ms": "100", "retention.bytes": "200", "segment.ms": "50"}
    )
    assert config.effective_local_retention_ms == 100
    assert config.effective_local_retention_bytes == 200
    assert config.segment_ms_max == 50
    local = LogConfig.from_overrides(
        config, {"local.retention.ms": "1", "local.retention.bytes": "2"}
    )
    assert (local.effective_local_retention_ms, local.effective_local_retention_bytes) == (1, 2)
    compacted = {"cleanup.policy": "compact", "max.compaction.lag.ms": "20"}
    assert LogConfig.from_overrides(config, compacted).segment_ms_max == 20
    assert DEFAULTS.uses_log_append_time is False


class TestBroker:
    def test_synonyms_give_topics_their_defaults(self) -> None:
        config = LogConfig.from_broker(
            {
                "log.segment.bytes": "1048576",
                "message.max.bytes": "77",
                "log.cleanup.policy": "compact",
                "compression.type": "lz4",
                "num.partitions": "3",
            }
        )
        assert (config.segment_bytes, config.max_message_bytes) == (1048576, 77)
        assert config.is_compacted
        assert config.target_codec == Codec.LZ4
        assert config.overridden == frozenset()

    @pytest.mark.parametrize(
        ("properties", "retention_ms"),
        [
            ({}, 168 * 3600_000),
            ({"log.retention.hours": "2"}, 2 * 3600_000),
            ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
            ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
            ({"log.retention.hours": "-1"}, -1),
            ({"log.retention.minutes": "-5"}, -1),
        ],
    )
    def test_the_finest_unit_counts(self, properties: dict[str, str], retention_ms: int) -> None:
        assert LogConfig.from_broker(properties).retention_ms == retention_ms

    def test_a_switch_is_no_number(self) -> None:
        config = LogConfig.from_broker({"unclean.leader.election.enable": "true"})
        assert config.value("unclean.leader.election.enable") is True

    def test_flush_and_roll(self) -> None:
        config = LogConfig.from_broker(
            {"log.flush.scheduler.interval.ms": "9", "log.roll.hours": "1"}
        )
        assert (config.flush_ms, config.segment_ms) == (9, 3600_000)

    def test_errors_name_the_brokers_key(self) -> None:
        with pytest.raises(ConfigError) as caught:
            LogConfig.from_broker({"log.segment.bytes": "5"})
        assert str(caught.value) == (
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576"
        )

    def test_defaults_of_the_synonyms_agree_with_the_topics(self) -> None:
        for key in TOPIC_KEYS.values():
            units = [(BROKER_KEYS[s.name].default, s.factor) for s in key.synonyms]
            given = [default for default, _ in units if default is not None]
            if given:
                last, factor = units[-1]
                assert (last if factor == 1 else last * factor) == key.default, key.name
