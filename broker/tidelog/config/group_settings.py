"""The settings of one group (Kafka's GroupConfig): `kafka-configs --entity-type groups`.

A setting `consumer.…` has the broker's `group.consumer.…` as its default; where the broker has a
minimum and a maximum, a group's own value lies between them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidelog.config.group_limits import LIMITS, number
from tidelog_storage.config_key import (
    ConfigError,
    Synonym,
    boolean,
    collect_keys,
    integer,
    refuse,
    string,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker import BrokerConfig

__all__ = ["GROUP_KEYS", "GroupSettings", "effective", "validate_group"]

_SHARE = "Of share groups: "
_STREAMS = "Of streams groups: "
# ISO 8601 as java.time.Duration.parse reads it; one part at least, and one after a T.
_DURATION = re.compile(
    r"\+?P(?=.)([-+]?\d+D)?(T(?=[-+.\d])([-+]?\d+H)?([-+]?\d+M)?([-+]?\d+([.,]\d{0,9})?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def _of_broker(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def _check_offset_reset(name: str, value: str) -> None:
    kind, colon, duration = value.partition(":")
    if value in ("earliest", "latest"):
        return
    if kind == "by_duration" and colon and _DURATION.fullmatch(duration):
        return
    reason = (
        f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', "
        "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )
    raise refuse(name, value, reason)


class GroupSettings:
    """What a group may set for itself."""

    consumer_session_timeout_ms: int = integer(
        45000,
        "A member without heartbeats for this long leaves the group.",
        low=1,
        synonyms=_of_broker("group.consumer.session.timeout.ms"),
    )
    consumer_heartbeat_interval_ms: int = integer(
        5000,
        "Time between a member's heartbeats.",
        low=1,
        synonyms=_of_broker("group.consumer.heartbeat.interval.ms"),
    )
    consumer_assignment_interval_ms: int = integer(
        1000,
        "Shortest time between two assignments of the group's partitions.",
        low=0,
        synonyms=_of_broker("group.consumer.assignment.interval.ms"),
    )
    share_session_timeout_ms: int = integer(
        45000,
        f"{_SHARE}session timeout.",
        low=1,
        synonyms=_of_broker("group.share.session.timeout.ms"),
    )
    share_heartbeat_interval_ms: int = integer(
        5000,
        f"{_SHARE}time between heartbeats.",
        low=1,
        synonyms=_of_broker("group.share.heartbeat.interval.ms"),
    )
    share_record_lock_duration_ms: int = integer(
        30000,
        f"{_SHARE}how long a member may hold a record.",
        low=1000,
        synonyms=_of_broker("group.share.record.lock.duration.ms"),
    )
    share_delivery_count_limit: int = integer(
        5,
        f"{_SHARE}deliveries of one record.",
        low=2,
        synonyms=_of_broker("group.share.delivery.count.limit"),
    )
    share_partition_max_record_locks: int = integer(
        2000,
        f"{_SHARE}records of a partition held at a time.",
        low=100,
        synonyms=_of_broker("group.share.partition.max.record.locks"),
    )
    share_auto_offset_reset: str = string(
        "latest", f"{_SHARE}where they begin to read.", check=_check_offset_reset
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        f"{_SHARE}which transactional records they read.",
        choices=("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable: bool = boolean(
        True, f"{_SHARE}whether a member may hold a record for longer."
    )
    share_assignment_interval_ms: int = integer(
        1000,
        f"{_SHARE}shortest time between two assignments.",
        low=0,
        synonyms=_of_broker("group.share.assignment.interval.ms"),
    )
    streams_session_timeout_ms: int = integer(
        45000,
        f"{_STREAMS}session timeout.",
        low=1,
        synonyms=_of_broker("group.streams.session.timeout.ms"),
    )
    streams_heartbeat_interval_ms: int = integer(
        5000,
        f"{_STREAMS}time between heartbeats.",
        low=1,
        synonyms=_of_broker("group.streams.heartbeat.interval.ms"),
    )
    streams_num_standby_replicas: int = integer(
        0,
        f"{_STREAMS}standby replicas of each task.",
        low=0,
        synonyms=_of_broker("group.streams.num.standby.replicas"),
    )
    streams_initial_rebalance_delay_ms: int = integer(
        3000,
        f"{_STREAMS}wait for more members before the first assignment.",
        low=0,
        synonyms=_of_broker("group.streams.initial.rebalance.delay.ms"),
    )
    streams_assignment_interval_ms: int = integer(
        1000,
        f"{_STREAMS}shortest time between two assignments.",
        low=0,
        synonyms=_of_broker("group.streams.assignment.interval.ms"),
    )


GROUP_KEYS = collect_keys(GroupSettings)


def validate_group(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Check all settings of a group; ConfigError with Kafka's text for the first wrong one."""
    for name in settings:
        if name not in GROUP_KEYS:
            raise ConfigError(name, f"Unknown group config name: {name}")
    values = {name: _value(config, settings, name) for name in GROUP_KEYS}
    for name, (low, high) in LIMITS.items():
        if low is not None and values[name] < number(config.value, low):
            raise ConfigError(name, f"{name} must be greater than or equal to {low}")
        if values[name] > number(config.value, high):
            raise ConfigError(name, f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if values[session] <= values[heartbeat]:
            raise ConfigError(session, f"{session} must be greater than {heartbeat}")


def effective(config: BrokerConfig, settings: Mapping[str, str], name: str) -> int:
    """Return the value that counts for a group: its own within the broker's minimum and maximum,
    which may have changed since, or the broker's."""
    low, high = LIMITS[name]
    value: int = min(_value(config, settings, name), number(config.value, high))
    return value if low is None else max(value, number(config.value, low))


def _value(config: BrokerConfig, settings: Mapping[str, str], name: str) -> Any:
    key = GROUP_KEYS[name]
    if name in settings:
        return key.parse(settings[name])
    return config.value(key.synonyms[0].name) if key.synonyms else key.default
