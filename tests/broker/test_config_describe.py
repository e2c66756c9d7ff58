"""DescribeConfigs; expected values are those of a Kafka 4.3.1 with the same settings."""

from __future__ import annotations

import pytest

from support.metadata import broker_config, cluster, topic
from tidelog.cluster.metadata.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
    effective_topic_configs,
    format_value,
)
from tidelog.config.broker import BrokerConfig
from tidelog_storage.config import TOPIC_KEYS

CONFIG = broker_config(log_retention_hours="100", log_dirs="/data", num_io_threads="9")
IMAGE = cluster(
    topic("e", 1),
    topic_configs={"e": {"retention.ms": "5000", "cleanup.policy": " compact , delete"}},
    broker_configs={
        "": {"log.retention.ms": "777000", "min.insync.replicas": "1"},
        "1": {"log.retention.ms": "888000", "foo.bar": "secret"},
        "2": {"log.retention.ms": "999000"},
    },
)

# As Kafka 4.3.1 lists them; a topic's own internal setting comes before the others.
TOPIC_ORDER = [
    "internal.segment.bytes",
    "compression.type",
    "remote.log.delete.on.disable",
    "leader.replication.throttled.replicas",
    "remote.storage.enable",
    "min.insync.replicas",
    "segment.jitter.ms",
    "remote.log.copy.disable",
    "local.retention.ms",
    "cleanup.policy",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "compression.lz4.level",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "local.retention.bytes",
    "preallocate",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "unclean.leader.election.enable",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "segment.ms",
    "segment.index.bytes",
]
GROUP_ORDER = [
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.renew.acknowledge.enable",
    "streams.initial.rebalance.delay.ms",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "streams.heartbeat.interval.ms",
    "share.delivery.count.limit",
    "consumer.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.assignment.interval.ms",
    "share.isolation.level",
    "streams.session.timeout.ms",
    "share.partition.max.record.locks",
    "streams.num.standby.replicas",
]
NEWER = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}


def of_topic(name: str) -> ConfigEntry:
    (entry,) = describe_topic(CONFIG, IMAGE, "e", [name])
    return entry


def of_broker(name: str) -> ConfigEntry:
    (entry,) = describe_broker(CONFIG, IMAGE, [name])
    return entry


def test_own_setting_of_a_topic() -> None:
    entry = of_topic("retention.ms")
    assert (entry.value, entry.source, entry.type_code) == ("5000", 1, 5)
    assert not entry.read_only
    assert not entry.is_sensitive
    assert entry.synonyms == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "888000", 2),
        ("log.retention.ms", "777000", 3),
        ("log.retention.hours", "100", 4),
        ("log.retention.hours", "168", 5),
    ]


@pytest.mark.parametrize(
    ("name", "value", "source", "type_code", "synonyms"),
    [
        ("compression.type", "producer", 5, 2, [("compression.type", "producer", 5)]),
        ("leader.replication.throttled.replicas", "", 5, 7, []),
        ("remote.storage.enable", "false", 5, 1, []),
        (
            "min.insync.replicas",
            "1",
            3,
            3,
            [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)],
        ),
        ("segment.jitter.ms", "0", 5, 5, []),
        ("segment.ms", "604800000", 5, 5, []),
        ("flush.ms", "9223372036854775807", 5, 5, []),
        (
            "cleanup.policy",
            "compact,delete",
            1,
            7,
            [("cleanup.policy", "compact,delete", 1), ("log.cleanup.policy", "delete", 5)],
        ),
        ("max.message.bytes", "1048588", 5, 3, [("message.max.bytes", "1048588", 5)]),
        (
            "min.cleanable.dirty.ratio",
            "0.5",
            5,
            6,
            [("log.cleaner.min.cleanable.ratio", "0.5", 5)],
        ),
    ],
)
def test_inherited_settings_of_a_topic(
    name: str, value: str, source: int, type_code: int, synonyms: list[tuple[str, str, int]]
) -> None:
    entry = of_topic(name)
    assert (entry.value, entry.source, entry.type_code) == (value, source, type_code)
    assert entry.synonyms == synonyms


def test_hours_alone_count_as_default() -> None:
    """Kafka's own quirk: the synonyms before log.retention.ms are dropped, all of them."""
    (entry,) = describe_topic(CONFIG, cluster(topic("e", 1)), "e", ["retention.ms"])
    assert (entry.value, entry.source, entry.synonyms) == ("360000000", 5, [])


def test_all_settings_of_a_topic() -> None:
    names = [entry.name for entry in describe_topic(CONFIG, IMAGE, "e")]
    assert set(names) == {name for name, key in TOPIC_KEYS.items() if not key.internal}
    assert all(entry.documentation for entry in describe_topic(CONFIG, IMAGE, "e"))
    assert describe_topic(CONFIG, IMAGE, "e", ["nope"]) == []


def test_settings_of_a_topic_are_in_kafkas_order() -> None:
    """kafkajs compares them in the order in which they come: that of a Java hash map."""
    image = cluster(topic("e", 1), topic_configs={"e": {"internal.segment.bytes": "9"}})
    names = [entry.name for entry in describe_topic(CONFIG, image, "e")]
    assert [name for name in names if name not in NEWER] == TOPIC_ORDER
    asked = describe_topic(CONFIG, IMAGE, "e", ["retention.ms", "compression.type"])
    assert [entry.name for entry in asked] == ["compression.type", "retention.ms"]


def test_settings_of_a_group_are_in_kafkas_order() -> None:
    assert [entry.name for entry in describe_group(CONFIG, IMAGE, "g")] == GROUP_ORDER


def test_settings_of_client_metrics_are_in_kafkas_order() -> None:
    entries = describe_client_metrics(IMAGE, "m")
    assert [entry.name for entry in entries] == ["interval.ms", "match", "metrics"]


@pytest.mark.parametrize(
    ("name", "value", "source", "read_only", "synonyms"),
    [
        (
            "log.retention.ms",
            "888000",
            2,
            False,
            [
                ("log.retention.ms", "888000", 2),
                ("log.retention.ms", "777000", 3),
                ("log.retention.hours", "100", 4),
                ("log.retention.hours", "168", 5),
            ],
        ),
        (
            "log.retention.hours",
            "100",
            4,
            True,
            [("log.retention.hours", "100", 4), ("log.retention.hours", "168", 5)],
        ),
        ("log.retention.minutes", None, 5, True, []),
        ("log.flush.interval.ms", None, 5, False, []),
        ("log.roll.ms", None, 5, False, []),
        ("log.dirs", "/data", 4, True, [("log.dirs", "/data", 4)]),
        ("log.dir", "/tmp/kafka-logs", 5, True, [("log.dir", "/tmp/kafka-logs", 5)]),
        ("node.id", "1", 4, True, [("node.id", "1", 4)]),
        ("broker.rack", None, 5, True, []),
        (
            "log.cleaner.io.max.bytes.per.second",
            "1.7976931348623157E308",
            5,
            False,
            [("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", 5)],
        ),
        ("num.io.threads", "9", 4, False, [("num.io.threads", "9", 4), ("num.io.threads", "8", 5)]),
        (
            "process.roles",
            "broker,controller",
            5,
            True,
            [("process.roles", "broker,controller", 5)],
        ),
    ],
)
def test_settings_of_the_broker(
    name: str,
    value: str | None,
    source: int,
    read_only: bool,
    synonyms: list[tuple[str, str, int]],
) -> None:
    entry = of_broker(name)
    assert (entry.value, entry.source, entry.read_only) == (value, source, read_only)
    assert entry.synonyms == synonyms


def test_unknown_settings_are_never_shown() -> None:
    entry = of_broker("foo.bar")
    assert (entry.value, entry.source, entry.type_code) == (None, 2, 0)
    assert entry.read_only
    assert entry.is_sensitive
    assert entry.synonyms == [("foo.bar", None, 2)]


def test_all_settings_of_the_broker() -> None:
    names = {entry.name for entry in describe_broker(CONFIG, IMAGE)}
    declared = {name for name, key in BrokerConfig.KEYS.items() if not key.internal}
    assert names == declared | {"foo.bar"}


def test_settings_that_the_broker_does_not_declare_come_first() -> None:
    """Those of the authorizer are among them, in Kafka's order, and have no value."""
    config = broker_config(super_users="User:a", allow_everyone_if_no_acl_found="true")
    entries = describe_broker(config, IMAGE)
    shown = {entry.name: (entry.value, entry.type_code, entry.source) for entry in entries[:3]}
    assert shown == {
        "foo.bar": (None, 0, 2),
        "super.users": (None, 0, 4),
        "allow.everyone.if.no.acl.found": (None, 0, 4),
    }
    assert all(entry.is_sensitive and entry.read_only for entry in entries[:3])
    assert entries[3].name == "log.cleaner.min.compaction.lag.ms"


def test_settings_of_all_brokers() -> None:
    entries = describe_broker_defaults(CONFIG, IMAGE)
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("log.retention.ms", "777000", 3),
        ("min.insync.replicas", "1", 3),
    ]
    assert entries[0].synonyms == [("log.retention.ms", "777000", 3)]
    assert describe_broker_defaults(CONFIG, IMAGE, ["min.insync.replicas"])[0].value == "1"


def test_effective_settings_of_a_topic_to_be() -> None:
    entries = {e.name: e for e in effective_topic_configs(CONFIG, IMAGE, {"flush.ms": "7"})}
    assert (entries["flush.ms"].value, entries["flush.ms"].source) == ("7", 1)
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("888000", 2)
    assert (entries["min.insync.replicas"].source, entries["segment.ms"].source) == (3, 5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (7, "7"),
        ("a", "a"),
        (["a", "b"], "a,b"),
        ([], ""),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e-4, "1.0E-4"),
        (1.5e7, "1.5E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (1.25e-7, "1.25E-7"),
        (123456789.0, "1.23456789E8"),
        (-2e9, "-2.0E9"),
        (1e16, "1.0E16"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_values_as_java_prints_them(value: object, text: str | None) -> None:
    assert format_value(value) == text


INTERVAL = "consumer.assignment.interval.ms"


@pytest.mark.parametrize(
    ("group", "name", "value", "source", "synonyms"),
    [
        (
            "g",
            INTERVAL,
            "400",
            8,
            [
                (INTERVAL, "400", 8),
                (f"group.{INTERVAL}", "350", 2),
                (f"group.{INTERVAL}", "300", 3),
            ],
        ),
        (
            "h",
            INTERVAL,
            "350",
            2,
            [(f"group.{INTERVAL}", "350", 2), (f"group.{INTERVAL}", "300", 3)],
        ),
        (
            "h",
            "consumer.session.timeout.ms",
            "46000",
            4,
            [("group.consumer.session.timeout.ms", "46000", 4)],
        ),
        (
            "g",
            "share.auto.offset.reset",
            "earliest",
            8,
            [("share.auto.offset.reset", "earliest", 8)],
        ),
        ("h", "share.auto.offset.reset", "latest", 5, []),
    ],
)
def test_settings_of_groups(
    group: str, name: str, value: str, source: int, synonyms: list[tuple[str, str, int]]
) -> None:
    """The broker's default comes last of the synonyms, or the group's own default."""
    interval = f"group.{INTERVAL}"
    image = cluster(
        broker_configs={"": {interval: "300"}, "1": {interval: "350"}},
    )._replace(group_configs={"g": {INTERVAL: "400", "share.auto.offset.reset": "earliest"}})
    config = broker_config(group_consumer_session_timeout_ms="46000")
    (entry,) = describe_group(config, image, group, [name])
    assert (entry.name, entry.value, entry.source) == (name, value, source)
    assert not entry.read_only
    *first, last = entry.synonyms
    assert first == synonyms
    assert last.source == 5
