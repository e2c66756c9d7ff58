"""Alterations of settings; texts and codes are those of a Kafka 4.3.1 for the same requests."""

from __future__ import annotations

from typing import Any

import pytest

from support.altered import alter_configs
from support.metadata import broker_config, cluster, topic
from tidelog.cluster.controller.configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alteration,
    Change,
    Resource,
    incremental_resources,
    legacy_resources,
    parse_node_id,
    refused_by_the_asked,
)
from tidelog.cluster.metadata.image import BrokerImage
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from tidelog_protocol.messages.metadata_records import ClearElrRecord

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
IMAGE = cluster(
    topic("e", 1),
    topic("f", 2),
    topic_configs={"e": {"retention.ms": "5", "cleanup.policy": "delete,compact"}},
    broker_configs={"": {"log.retention.ms": "777"}, "1": {"log.retention.ms": "888"}},
)._replace(group_configs={"g": {"consumer.session.timeout.ms": "50000"}})


def resource(
    kind: int, name: str, *changes: tuple[str, int, str | None], replaces: bool = False
) -> Resource:
    return Resource(kind, name, [Change(*change) for change in changes], replaces)


def alter(*resources: Resource) -> tuple[list[tuple[Any, ...]], list[tuple[int, str | None]]]:
    decision = alter_configs(IMAGE, broker_config(), resources)
    records = [
        (record.resource_type, record.resource_name, record.name, record.value)
        for record in decision.records
    ]
    assert [(result.type, result.name) for result in decision.results] == [
        (resource.type, resource.name) for resource in resources
    ]
    return records, [(result.code, result.message) for result in decision.results]


@pytest.mark.parametrize(
    ("change", "record"),
    [
        (("flush.ms", SET, "7"), (TOPIC, "e", "flush.ms", "7")),
        (("retention.ms", SET, "6"), (TOPIC, "e", "retention.ms", "6")),
        (("retention.ms", SET, "5"), None),
        (("retention.ms", DELETE, None), (TOPIC, "e", "retention.ms", None)),
        (("retention.ms", DELETE, "ignored"), (TOPIC, "e", "retention.ms", None)),
        (("nobodys.key", DELETE, None), None),
        (("cleanup.policy", SUBTRACT, "delete"), (TOPIC, "e", "cleanup.policy", "compact")),
        (("cleanup.policy", SUBTRACT, "compact,delete"), (TOPIC, "e", "cleanup.policy", "")),
        (("cleanup.policy", APPEND, "compact"), None),
        (("cleanup.policy", SUBTRACT, "nothing"), None),
    ],
)
def test_topic_changes(change: tuple[str, int, str | None], record: tuple[Any, ...] | None) -> None:
    records, answers = alter(resource(TOPIC, "e", change))
    assert answers == [(ErrorCode.NONE, None)]
    assert records == ([] if record is None else [record])


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("group", "change", "record"),
    [
        ("g", (SESSION, SET, "51000"), (GROUP, "g", SESSION, "51000")),
        ("g", (SESSION, SET, "50000"), None),
        ("g", (SESSION, DELETE, None), (GROUP, "g", SESSION, None)),
        ("g", ("nobodys.key", DELETE, None), None),
        ("a /é", (HEARTBEAT, SET, "6000"), (GROUP, "a /é", HEARTBEAT, "6000")),
    ],
)
def test_group_changes(
    group: str, change: tuple[str, int, str | None], record: tuple[Any, ...] | None
) -> None:
    records, answers = alter(resource(GROUP, group, change))
    assert answers == [(ErrorCode.NONE, None)]
    assert records == ([] if record is None else [record])


def test_a_legacy_request_replaces_the_settings_of_a_group() -> None:
    records, answers = alter(resource(GROUP, "g", (HEARTBEAT, SET, "6000"), replaces=True))
    assert answers == [(ErrorCode.NONE, None)]
    assert records == [(GROUP, "g", HEARTBEAT, "6000"), (GROUP, "g", SESSION, None)]


def test_append_starts_from_kafkas_default() -> None:
    records, _ = alter(resource(TOPIC, "f", ("cleanup.policy", APPEND, "compact")))
    assert records == [(TOPIC, "f", "cleanup.policy", "delete,compact")]


INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
MAP, SECONDS = "listener.security.protocol.map", "listener.name.extra.connections.max.reauth.ms"
TWO = "PLAINTEXT://:1,EXTRA://:2"
WITH_EXTRA, SASL_EXTRA = (f"PLAINTEXT:PLAINTEXT,EXTRA:{kind}" for kind in ("PLAINTEXT", "SASL_SSL"))


NO_CONNECTIONS = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Invalid max.connections 0 for"
    " configuration Invalid dynamic configuration"
)


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (
            resource(TOPIC, "nix", ("retention.ms", SET, "1")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nix' does not exist.",
        ),
        (
            resource(TOPIC, "e", ("nix", SET, "1")),
            INVALID_CONFIG,
            "Unknown topic config name: nix",
        ),
        (
            resource(TOPIC, "nix", ("nix", SET, "1")),
            INVALID_CONFIG,
            "Unknown topic config name: nix",
        ),
        (
            resource(TOPIC, "e", ("retention.ms", SET, "x")),
            INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            resource(TOPIC, "e", ("retention.ms", APPEND, "5")),
            INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "e", ("retention.ms", SUBTRACT, "5")),
            INVALID_CONFIG,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "e", ("retention.ms", SET, None), ("flush.ms", APPEND, None)),
            INVALID_REQUEST,
            "Null value not supported for : retention.ms, flush.ms",
        ),
        (
            resource(TOPIC, "e", ("flush.ms", SET, "1"), ("flush.ms", DELETE, None)),
            INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (resource(TOPIC, "e", ("flush.ms", 9, "1")), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (
            resource(TOPIC, "", ("flush.ms", SET, "1")),
            INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            resource(TOPIC, "a b", ("flush.ms", SET, "1")),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (resource(77, "e", ("a", SET, "1")), UNSUPPORTED, "Unknown resource type 77."),
        (resource(0, "e", replaces=True), UNSUPPORTED, "Unknown resource type 0."),
        (
            resource(GROUP, "", (SESSION, SET, "50000")),
            INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        (
            resource(GROUP, "g", ("nope", SET, "1")),
            INVALID_CONFIG,
            "Unknown group config name: nope",
        ),
        (
            resource(GROUP, "g", (SESSION, APPEND, "1")),
            INVALID_CONFIG,
            f"Can't APPEND to key {SESSION} because its type is not LIST.",
        ),
        (
            resource(GROUP, "g", (SESSION, SET, "70000")),
            INVALID_CONFIG,
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (resource(GROUP, "g", (SESSION, 4, "1")), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        *(
            (
                resource(BROKER, "", ("log.cleaner.threads", SET, threads)),
                INVALID_REQUEST,
                "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner "
                f"threads {reason} for configuration Invalid dynamic configuration",
            )
            for threads, reason in (
                ("0", "should be at least 1"),
                ("3", "cannot be increased to more than double the current value 1"),
            )
        ),
        (
            resource(BROKER, "", ("group.consumer.assignment.interval.ms", SET, "20000")),
            INVALID_REQUEST,
            "group.consumer.assignment.interval.ms must be less than or equal to "
            "group.consumer.max.assignment.interval.ms",
        ),
        (
            resource(BROKER, "", ("group.consumer.session.timeout.ms", SET, "50000")),
            INVALID_REQUEST,
            "Cannot update these configs dynamically: [group.consumer.session.timeout.ms]",
        ),
        (
            resource(LOGGER, "1", ("kafka.server", SET, "INFO")),
            INVALID_CONFIG,
            "Logger kafka.server does not exist!",
        ),
        (
            resource(LOGGER, "2", ("kafka.server", SET, "INFO")),
            INVALID_REQUEST,
            "Unexpected node id. Expected 1, but received 2",
        ),
        (resource(LOGGER, "1", replaces=True), UNSUPPORTED, "Unknown resource type 8."),
        (
            resource(BROKER, "2", ("log.retention.ms", SET, "3")),
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "No node with id 2 found.",
        ),
        (
            resource(BROKER, "x", ("log.retention.ms", SET, "3")),
            INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            resource(BROKER, "1", ("num.partitions", SET, "3"), ("node.id", SET, "7")),
            INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id, num.partitions]",
        ),
        (
            resource(BROKER, "1", ("log.retention.hours", SET, "3")),
            INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        (
            resource(BROKER, "1", ("log.retention.ms", SET, "y")),
            INVALID_REQUEST,
            "Invalid value y for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            resource(BROKER, "1", ("log.segment.bytes", SET, "3")),
            INVALID_REQUEST,
            "Invalid value 3 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            resource(BROKER, "1", ("log.retention.ms", APPEND, "3")),
            INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        (
            resource(BROKER, "1", ("unknown", SUBTRACT, "3")),
            INVALID_CONFIG,
            "Unknown config name: unknown",
        ),
        (
            resource(BROKER, "x", ("log.retention.ms", APPEND, "3")),
            INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (resource(BROKER, "", ("max.connections", SET, "0")), INVALID_REQUEST, NO_CONNECTIONS),
        (
            resource(BROKER, "1", ("listener.name.plaintext.max.connections", SET, "0")),
            INVALID_REQUEST,
            NO_CONNECTIONS,
        ),
        (
            resource(BROKER, "1", ("log.retention.ms", 9, "3")),
            INVALID_REQUEST,
            "Unknown operations type 9",
        ),
    ],
)
def test_refusals(asked: Resource, code: ErrorCode, text: str | None) -> None:
    assert alter(asked) == ([], [(code, text)])


def test_rules_between_keys_count_what_is_set_already() -> None:
    asked = resource(BROKER, "1", ("log.retention.ms", SET, "0"))
    records, ((code, text),) = alter(asked)
    assert (records, code) == ([], INVALID_REQUEST)
    assert text is not None
    assert "log.retention.ms must be unlimited (-1)" in text
    lag = resource(
        TOPIC, "e", ("max.compaction.lag.ms", SET, "5"), ("min.compaction.lag.ms", SET, "10")
    )
    assert alter(lag)[1][0][0] == INVALID_CONFIG


MIN_ISR = "min.insync.replicas"


def decide(asked: Resource, level: int = 1) -> Any:
    image = IMAGE._replace(features={"eligible.leader.replicas.version": level})
    return alter_configs(image, broker_config(), [asked])


@pytest.mark.parametrize(
    ("name", "operation", "value", "text"),
    [
        ("1", SET, "2", "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        (
            "1",
            DELETE,
            None,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            "",
            DELETE,
            None,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ],
)
def test_eligible_replicas_keep_one_minimum_for_all_brokers(
    name: str, operation: int, value: str | None, text: str
) -> None:
    decision = decide(resource(BROKER, name, (MIN_ISR, operation, value)))
    assert [(each.code, each.message) for each in decision.results] == [(INVALID_CONFIG, text)]
    assert decision.records == []
    assert len(decide(resource(BROKER, name, (MIN_ISR, operation, value)), level=0).records) == 1


@pytest.mark.parametrize(("kind", "name", "cleared"), [(TOPIC, "e", "e"), (BROKER, "", "")])
def test_another_minimum_clears_eligible_replicas(kind: int, name: str, cleared: str) -> None:
    asked = resource(kind, name, (MIN_ISR, SET, "2"))
    changed, clear = decide(asked).records
    assert (changed.resource_name, changed.name, changed.value) == (name, MIN_ISR, "2")
    assert clear == ClearElrRecord(topic_name=cleared)
    assert len(decide(asked, level=0).records) == 1
    assert len(decide(resource(TOPIC, "e", ("flush.ms", SET, "7"))).records) == 1


def test_each_resource_once() -> None:
    twice = resource(TOPIC, "e", ("flush.ms", SET, "1"))
    other = resource(TOPIC, "f", ("flush.ms", SET, "2"))
    decision = alter_configs(IMAGE, broker_config(), [twice, other, twice])
    assert decision.results == [
        (TOPIC, "e", INVALID_REQUEST, "Duplicate resource."),
        (TOPIC, "f", ErrorCode.NONE, None),
    ]
    assert [record.resource_name for record in decision.records] == ["f"]


def test_a_resource_changes_as_a_whole() -> None:
    records, answers = alter(
        resource(TOPIC, "e", ("flush.ms", SET, "1"), ("retention.ms", SET, "x")),
        resource(TOPIC, "f", ("flush.ms", SET, "2")),
    )
    assert [code for code, _ in answers] == [INVALID_CONFIG, ErrorCode.NONE]
    assert records == [(TOPIC, "f", "flush.ms", "2")]


@pytest.mark.parametrize(
    ("name", "now", "least", "most"),
    [
        ("num.io.threads", 8, 4, 16),
        ("num.replica.fetchers", 1, 1, 2),
        ("remote.log.reader.threads", 10, 5, 20),
        ("remote.log.manager.follower.thread.pool.size", 2, 1, 4),
    ],
)
@pytest.mark.parametrize("broker", ["", "1"])
def test_pools_change_by_a_factor_of_two(
    broker: str, name: str, now: int, least: int, most: int
) -> None:
    for count in (least, now, most):
        records, results = alter(resource(BROKER, broker, (name, SET, str(count))))
        assert results == [(0, None)]
        assert records == [(BROKER, broker, name, str(count))]
    for count, limit in (
        (least - 1, f"be at least half the current value {now}"),
        (most + 1, f"not be greater than double the current value {now}"),
    ):
        text = (
            "Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count"
            f" update validation failed for {name}={count}, value should {limit}"
            " for configuration Invalid dynamic configuration"
        )
        if count == 0:
            text = f"Invalid value 0 for configuration {name}: Value must be at least 1"
        records, results = alter(resource(BROKER, broker, (name, SET, str(count))))
        assert results == [(ErrorCode.INVALID_REQUEST, text)]
        assert not records


@pytest.mark.parametrize(
    ("defaults", "own", "asked", "limit"),
    [
        # What the broker's own setting hides changes nothing.
        (None, "11", ("", SET, "1000"), None),
        ("1000", "11", ("", DELETE, None), None),
        ("1000", "11", ("1", DELETE, None), "not be greater than double the current value 11"),
        ("20", None, ("1", SET, "40"), None),
        ("20", "40", ("1", DELETE, None), None),
        (None, "40", ("1", DELETE, None), "be at least half the current value 40"),
        ("40", None, ("", DELETE, None), "be at least half the current value 40"),
    ],
)
def test_pools_change_from_what_is_in_force(
    defaults: str | None, own: str | None, asked: tuple[str, int, str | None], limit: str | None
) -> None:
    key = "background.threads"
    configs = {"": defaults, "1": own}
    image = cluster(
        broker_configs={name: {key: each} for name, each in configs.items() if each is not None}
    )
    name, operation, value = asked
    change = resource(BROKER, name, (key, operation, value))
    decision = alter_configs(image, broker_config(), [change])
    (result,) = decision.results
    assert bool(decision.records) is (limit is None)
    assert limit is None or f"value should {limit} for" in str(result.message)


@pytest.mark.parametrize(
    ("changes", "is_allowed"),
    [
        ({"log.cleaner.threads": "2"}, True),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, False),
        ({"log.cleaner.dedupe.buffer.size": "1048577"}, True),
        ({"log.cleaner.dedupe.buffer.size": "2097153", "log.cleaner.threads": "2"}, False),
        ({"log.cleaner.dedupe.buffer.size": "2097154", "log.cleaner.threads": "2"}, True),
    ],
)
@pytest.mark.parametrize("broker", ["", "1"])
def test_threads_of_compaction_have_a_megabyte_each(
    broker: str, changes: dict[str, str], is_allowed: bool
) -> None:
    records, results = alter(
        resource(BROKER, broker, *((name, SET, value) for name, value in changes.items()))
    )
    text = (
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner"
        " thread."
    )
    assert results == [(0, None) if is_allowed else (INVALID_REQUEST, text)]
    assert len(records) == (len(changes) if is_allowed else 0)


CORDONED = "cordoned.log.dirs"


@pytest.mark.parametrize(
    ("operation", "value", "is_allowed"),
    [
        (SET, "/a, /b", True),
        (SET, "/b", True),
        (SET, "", True),
        (DELETE, None, True),
        (SUBTRACT, "/a", True),
        (SET, "/c", False),
        (SET, "*", False),
        (APPEND, "/c", False),
    ],
)
def test_a_client_of_the_controller_only_uncordons_directories(
    operation: int, value: str | None, is_allowed: bool
) -> None:
    image = IMAGE._replace(broker_configs={"1": {CORDONED: "/a,/b"}})
    asked = resource(BROKER, "1", (CORDONED, operation, value))
    decision = Alteration(broker_config(), [asked], is_forwarded=False).step(image, 1)
    text = (
        "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the"
        " current configuration value."
    )
    (result,) = decision.results
    expected = (0, None) if is_allowed else (INVALID_CONFIG, text)
    assert (result.code, result.message) == expected
    assert len(decision.records) == is_allowed
    assert alter_configs(image, broker_config(), [asked]).results[0].code == 0  # of a broker


def test_directories_are_cordoned_since_4_3() -> None:
    image = IMAGE._replace(features={"metadata.version": 29})
    asked = resource(BROKER, "1", (CORDONED, SET, "/a"))
    (result,) = alter_configs(image, broker_config(), [asked]).results
    assert (result.code, result.message) == (
        INVALID_CONFIG,
        "The cordoned.log.dirs configuration value cannot be set because it requires"
        " metadata.version >= 4.3-IV0",
    )


def test_broker_settings() -> None:
    records, answers = alter(
        resource(BROKER, "", ("log.retention.ms", SET, "777")),
        resource(BROKER, "1", ("log.retention.ms", DELETE, None)),
    )
    assert answers == [(ErrorCode.NONE, None)] * 2
    assert records == [
        (BROKER, "", "log.retention.ms", "777"),  # unchanged, yet told again
        (BROKER, "1", "log.retention.ms", None),
    ]


def test_another_broker_of_the_cluster() -> None:
    image = cluster(brokers=[BrokerImage(1, "h", 1), BrokerImage(2, "h", 2)])
    asked = resource(BROKER, "2", ("log.retention.ms", SET, "9"))
    decision = alter_configs(image, broker_config(), [asked])
    assert decision.results[0].code == ErrorCode.NONE
    (record,) = decision.records
    assert (record.resource_name, record.value) == ("2", "9")


def test_what_only_the_asked_broker_can_do() -> None:
    """The rest is forwarded; the controller has the last word on that."""
    change = ("log.retention.ms", SET, "9")
    resources = [
        resource(BROKER, "2", change),
        resource(BROKER, "1", change),
        resource(BROKER, "", change),
        resource(BROKER, "x", change),
        resource(LOGGER, "1", ("root", SET, "INFO")),
        resource(LOGGER, "2", ("root", SET, "INFO")),
        resource(TOPIC, "t", change),
        resource(BROKER, "3", change),
        resource(BROKER, "3", change),
        resource(BROKER, "4", change, change),
        resource(77, "e", change),
        resource(LOGGER, "3", change, replaces=True),
    ]
    once = "Each resource must appear at most once."
    refused = refused_by_the_asked(broker_config(), {}, resources)
    assert {index: refusal.message for index, refusal in refused.items()} == {
        0: "Unexpected broker id, expected 1, but received 2",
        3: "Node id must be an integer, but it is: x",
        4: "Logger root does not exist!",
        5: "Unexpected node id. Expected 1, but received 2",
        7: once,
        8: once,
        9: "Error due to duplicate config keys",
        10: "Unknown resource type 77",
        11: "Unknown resource type 8",
    }


@pytest.mark.parametrize(
    ("dynamic", "changes", "reason"),
    [
        ({}, {"listeners": "PLAINTEXT://:1,EXTRA://:2"}, "No security protocol defined for"),
        ({"listeners": TWO, MAP: WITH_EXTRA}, {"listeners": TWO.replace("2", "3")}, None),
        ({"listeners": TWO, MAP: WITH_EXTRA}, {"listeners": "EXTRA://:2"}, "Advertised listeners"),
        ({"listeners": TWO, MAP: WITH_EXTRA}, {MAP: SASL_EXTRA}, "Security protocol cannot be"),
        ({"listeners": TWO, MAP: WITH_EXTRA}, {"listeners": TWO, SECONDS: "9"}, "for existing"),
        ({"listeners": TWO, MAP: WITH_EXTRA, SECONDS: "9"}, {"listeners": TWO}, None),
        ({}, {"listeners": TWO, MAP: WITH_EXTRA, SECONDS: "9"}, None),
        ({}, {"listeners": "PLAINTEXT://:1,EXTRA://:1", MAP: WITH_EXTRA}, "a different port"),
    ],
)
def test_listeners_of_a_running_broker(
    dynamic: dict[str, str], changes: dict[str, str], reason: str | None
) -> None:
    asked = resource(BROKER, "1", *((key, SET, value) for key, value in changes.items()))
    refused = refused_by_the_asked(broker_config(listeners="PLAINTEXT://:1"), dynamic, [asked])
    if reason is None:
        assert refused == {}
    else:
        assert reason in (refused[0].message or "")


@pytest.mark.parametrize(
    ("dynamic", "change", "reason"),
    [
        ({}, ("listeners", APPEND, "EXTRA://:2"), None),  # to Kafka's default, PLAINTEXT://:9092
        ({"listeners": TWO}, ("listeners", APPEND, "THIRD://:3"), "No security protocol defined"),
        ({"listeners": TWO}, ("listeners", SUBTRACT, "EXTRA://:2"), None),
        (
            {"listeners": TWO},
            ("listeners", SUBTRACT, "PLAINTEXT://:1"),
            "Found PLAINTEXT. The valid",
        ),
        ({"listeners": TWO}, ("listeners", SUBTRACT, "PLAINTEXT://:7"), None),
        ({}, (MAP, APPEND, "THIRD:SSL"), f"append is not allowed for config key: {MAP}"),
    ],
)
def test_listeners_are_appended_and_subtracted(
    dynamic: dict[str, str], change: tuple[str, int, str], reason: str | None
) -> None:
    config = broker_config(listeners="PLAINTEXT://:1", advertised_listeners="PLAINTEXT://h:1")
    asked = [resource(BROKER, "1", change)]
    refused = refused_by_the_asked(config, {MAP: WITH_EXTRA, **dynamic}, asked)
    if reason is None:
        assert refused == {}
    else:
        assert reason in (refused[0].message or "")


def test_lists_of_a_broker() -> None:
    records, _ = alter(resource(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")))
    assert records == [(BROKER, "1", "log.cleanup.policy", "delete,compact")]


def test_settings_of_plugins_pass() -> None:
    records, answers = alter(resource(BROKER, "1", ("foo.bar", SET, "3")))
    assert answers == [(ErrorCode.NONE, None)]
    assert records == [(BROKER, "1", "foo.bar", "3")]


def test_legacy_alteration_replaces_everything() -> None:
    records, answers = alter(resource(TOPIC, "e", ("flush.ms", SET, "9"), replaces=True))
    assert answers == [(ErrorCode.NONE, None)]
    assert records == [
        (TOPIC, "e", "flush.ms", "9"),
        (TOPIC, "e", "retention.ms", None),
        (TOPIC, "e", "cleanup.policy", None),
    ]
    assert alter(resource(BROKER, "", replaces=True))[0] == [(BROKER, "", "log.retention.ms", None)]


def test_resources_of_requests() -> None:
    legacy = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=2,
                resource_name="e",
                configs=[AlterConfigsRequest.AlterableConfig(name="a", value=None)],
            )
        ]
    )
    assert legacy_resources(legacy) == [resource(2, "e", ("a", SET, None), replaces=True)]
    incremental = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=4,
                resource_name="1",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name="a", config_operation=DELETE, value=None
                    )
                ],
            )
        ]
    )
    assert incremental_resources(incremental) == [resource(4, "1", ("a", DELETE, None))]


@pytest.mark.parametrize(
    ("name", "node_id"),
    [("1", 1), ("+7", 7), ("-1", -1), ("", None), ("x", None), ("1 ", None), ("9" * 11, None)],
)
def test_node_ids(name: str, node_id: int | None) -> None:
    assert parse_node_id(name) == node_id


def test_many_resources_of_one_name_are_compared_once_each() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    # Names of their own, so that equality is not identity.
    many = [resource(TOPIC, Name("e"), ("flush.ms", SET, "7")) for _ in range(1000)]
    decision = alter_configs(IMAGE, broker_config(), many)
    assert {each.code for each in decision.results} == {ErrorCode.INVALID_REQUEST}
    assert len(refused_by_the_asked(broker_config(), {}, many)) == len(many)
    assert compared < 10_000
