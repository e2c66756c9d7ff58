"""Settings of groups and the broker's limits of them; texts are those of a Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from support.metadata import broker_config, cluster
from tidelog.config.broker import BrokerConfig, update_mode
from tidelog.config.group_settings import GROUP_KEYS, effective, validate_group
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.limits import assignor_names, limits_of
from tidelog.coordinators.groups.streams.views import StreamsLimits
from tidelog_storage.config_key import ConfigError

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
RESET = "share.auto.offset.reset"


def test_names_and_defaults_are_kafkas() -> None:
    assert {name: key.default for name, key in GROUP_KEYS.items()} == {
        SESSION: 45000,
        HEARTBEAT: 5000,
        INTERVAL: 1000,
        "share.session.timeout.ms": 45000,
        "share.heartbeat.interval.ms": 5000,
        "share.record.lock.duration.ms": 30000,
        "share.delivery.count.limit": 5,
        "share.partition.max.record.locks": 2000,
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_uncommitted",
        "share.renew.acknowledge.enable": True,
        "share.assignment.interval.ms": 1000,
        "streams.session.timeout.ms": 45000,
        "streams.heartbeat.interval.ms": 5000,
        "streams.num.standby.replicas": 0,
        "streams.initial.rebalance.delay.ms": 3000,
        "streams.assignment.interval.ms": 1000,
    }


def test_a_group_and_its_broker_have_the_same_defaults() -> None:
    for name, key in GROUP_KEYS.items():
        for synonym in key.synonyms:
            assert BrokerConfig.KEYS[synonym.name].default == key.default, name
            dynamic = name.endswith(".assignment.interval.ms")
            assert update_mode(synonym.name) == ("cluster-wide" if dynamic else "read-only")


def test_settings_of_consumer_groups() -> None:
    config = BrokerConfig.from_properties(
        {"node.id": "1", "group.coordinator.rebalance.protocols": "classic,consumer"}
    )
    assert config.group_coordinator_rebalance_protocols == ["classic", "consumer"]
    assert config.group_consumer_min_session_timeout_ms == 45000
    assert config.group_consumer_max_session_timeout_ms == 60000
    assert config.group_consumer_min_heartbeat_interval_ms == 5000
    assert config.group_consumer_max_heartbeat_interval_ms == 15000
    assert config.group_consumer_max_size == 2147483647
    assert config.group_consumer_assignors == ["uniform", "range"]
    assert config.group_consumer_migration_policy == "bidirectional"
    assert config.group_consumer_regex_refresh_interval_ms == 600000


def test_settings_of_share_groups() -> None:
    config = broker_config()
    assert config.group_share_max_size == 200
    assert config.group_share_max_share_sessions == 2000
    assert config.group_share_assignors == ["simple"]
    assert config.group_share_initialize_retry_interval_ms == 30000
    assert config.share_fetch_purgatory_purge_interval_requests == 1000


GROUP = "group.consumer"
NAMES = ("Range", "Uniform")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {f"{GROUP}.max.heartbeat.interval.ms": "4000"},
            f"{GROUP}.max.heartbeat.interval.ms must be greater than or equal to "
            f"{GROUP}.min.heartbeat.interval.ms",
        ),
        (
            {f"{GROUP}.heartbeat.interval.ms": "4000"},
            f"{GROUP}.heartbeat.interval.ms must be greater than or equal to "
            f"{GROUP}.min.heartbeat.interval.ms",
        ),
        (
            {f"{GROUP}.session.timeout.ms": "70000"},
            f"{GROUP}.session.timeout.ms must be less than or equal to "
            f"{GROUP}.max.session.timeout.ms",
        ),
        (
            {f"{GROUP}.min.session.timeout.ms": "1", f"{GROUP}.session.timeout.ms": "5000"},
            f"{GROUP}.heartbeat.interval.ms must be less than {GROUP}.session.timeout.ms",
        ),
        (
            {f"{GROUP}.assignment.interval.ms": "15001"},
            f"{GROUP}.assignment.interval.ms must be less than or equal to "
            f"{GROUP}.max.assignment.interval.ms",
        ),
        (
            {"group.streams.num.standby.replicas": "3"},
            "group.streams.num.standby.replicas must be less than or equal to "
            "group.streams.max.standby.replicas",
        ),
        (
            {"group.share.max.share.sessions": "199"},
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
        (
            {"group.share.max.size": "1001"},
            "Invalid value 1001 for configuration group.share.max.size: Value must be no more than "
            "1000",
        ),
        (
            {"group.share.assignors": ""},
            "Configuration 'group.share.assignors' must not be empty. Valid values include: any "
            "non-empty value",
        ),
        (
            {f"{GROUP}.assignors": ""},
            f"Configuration '{GROUP}.assignors' must not be empty. Valid values include: any "
            "non-empty value",
        ),
        (
            {f"{GROUP}.assignors": "range,mine"},
            f"Invalid value mine for configuration {GROUP}.assignors: String must be one of: "
            "uniform, range",
        ),
        (
            {"group.coordinator.rebalance.protocols": "classic,eager"},
            "Invalid value eager for configuration group.coordinator.rebalance.protocols: String "
            "must be one of: consumer, classic, share, streams",
        ),
        (
            {f"{GROUP}.migration.policy": "x"},
            f"Invalid value x for configuration {GROUP}.migration.policy: String must be one of "
            "(case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
        (
            {f"{GROUP}.regex.refresh.interval.ms": "9999"},
            f"Invalid value 9999 for configuration {GROUP}.regex.refresh.interval.ms: Value must "
            "be at least 10000",
        ),
    ],
)
def test_a_broker_refuses_to_start(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig.from_properties({"node.id": "1", **settings})
    assert refusal.value.message == text
    assert refusal.value.key in text


def test_migration_policy_in_any_case_and_assignors_once() -> None:
    config = broker_config(
        group_consumer_migration_policy="Upgrade", group_consumer_assignors="range,range"
    )
    assert config.group_consumer_migration_policy == "Upgrade"
    assert config.group_consumer_assignors == ["range"]


REASON = (
    "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"nope": "1", SESSION: "1"}, "Unknown group config name: nope"),
        (
            {SESSION: "100"},
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION: "70000"},
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (
            {SESSION: "abc"},
            f"Invalid value abc for configuration {SESSION}: Not a number of type INT",
        ),
        ({SESSION: ""}, f"Invalid value  for configuration {SESSION}: Not a number of type INT"),
        (
            {SESSION: "-1"},
            f"Invalid value -1 for configuration {SESSION}: Value must be at least 1",
        ),
        (
            {HEARTBEAT: "16000"},
            f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {INTERVAL: "20000"},
            f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms",
        ),
        (
            {RESET: "EARLIEST"},
            f"Invalid value EARLIEST for configuration {RESET}: Invalid value `EARLIEST` for "
            f"configuration {RESET}. {REASON}",
        ),
        (
            {"share.isolation.level": "x"},
            "Invalid value x for configuration share.isolation.level: String must be one of: "
            "read_committed, read_uncommitted",
        ),
        (
            {"share.delivery.count.limit": "100"},
            "share.delivery.count.limit must be less than or equal to "
            "group.share.max.delivery.count.limit",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to "
            "group.streams.max.standby.replicas",
        ),
    ],
)
def test_a_group_refuses(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        validate_group(broker_config(), settings)
    assert refusal.value.message == text


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    config = broker_config(group_consumer_min_session_timeout_ms="1")
    with pytest.raises(ConfigError) as refusal:
        validate_group(config, {SESSION: "5000"})
    assert refusal.value.message == f"{SESSION} must be greater than {HEARTBEAT}"


@pytest.mark.parametrize(
    "value",
    ["earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S", "by_duration:p2d"],
)
def test_where_a_share_group_begins(value: str) -> None:
    validate_group(broker_config(), {RESET: value})


@pytest.mark.parametrize(
    "value", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1S"]
)
def test_wrong_durations(value: str) -> None:
    with pytest.raises(ConfigError):
        validate_group(broker_config(), {RESET: value})


def limits(config: BrokerConfig, **own: Any) -> ConsumerLimits:
    settings = {name.replace("_", "."): value for name, value in own.items()}
    image = cluster()._replace(group_configs={"g": settings})
    found: ConsumerLimits = limits_of(config, image, "consumer", "g")
    return found


def test_the_limits_of_a_group_are_the_brokers_or_its_own() -> None:
    assert limits(broker_config()) == ConsumerLimits()
    config = broker_config(group_consumer_max_size="3", group_consumer_assignors="range")
    assert limits(config, consumer_session_timeout_ms="50000") == ConsumerLimits(
        session_timeout_ms=50000, size_max=3, assignors=("range",)
    )


def test_limits_that_changed_later_cut_a_groups_own_value() -> None:
    config = broker_config(
        group_consumer_max_session_timeout_ms="48000",
        group_consumer_min_heartbeat_interval_ms="4500",
    )
    assert limits(config, consumer_session_timeout_ms="50000").session_timeout_ms == 48000
    assert effective(config, {HEARTBEAT: "4000"}, HEARTBEAT) == 4500
    assert (
        effective(config, {"streams.num.standby.replicas": "9"}, "streams.num.standby.replicas")
        == 2
    )


def test_the_limits_of_a_streams_group_are_the_brokers_or_its_own() -> None:
    image = cluster()
    at_once = StreamsLimits(initial_rebalance_delay_ms=0)  # on a developer's machine
    assert limits_of(broker_config(), image, "streams", "g") == at_once
    delay = broker_config(group_streams_initial_rebalance_delay_ms="3000")
    assert limits_of(delay, image, "streams", "g") == StreamsLimits()
    own = {
        "streams.session.timeout.ms": "70000",
        "streams.num.standby.replicas": "1",
        "streams.initial.rebalance.delay.ms": "0",
    }
    image = image._replace(group_configs={"g": own})
    config = broker_config(group_streams_max_size="3")
    assert limits_of(config, image, "streams", "g") == StreamsLimits(
        session_timeout_ms=60_000, size_max=3, initial_rebalance_delay_ms=0, standby_replicas=1
    )


def test_assignors_may_be_named_by_kafkas_classes() -> None:
    classes = [f"org.apache.kafka.coordinator.group.assignor.{each}Assignor" for each in NAMES]
    config = broker_config(group_consumer_assignors=",".join(classes))
    assert config.group_consumer_assignors == classes, "it is shown as it was set"
    assert assignor_names(config) == ("range", "uniform")
    assert assignor_names(broker_config(group_consumer_assignors=f"uniform,{classes[1]}")) == (
        "uniform",
    )
    with pytest.raises(ConfigError, match=r"one of: uniform, range"):
        broker_config(group_consumer_assignors="org.example.MyAssignor")


def test_the_classic_protocol_is_always_on() -> None:
    with pytest.raises(ConfigError, match="disabling the 'classic' protocol is not supported"):
        broker_config(group_coordinator_rebalance_protocols="consumer")
