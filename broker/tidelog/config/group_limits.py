"""The rules between the broker's settings of groups, and the limits of a group's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.vocabulary import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    ValueOf = Callable[[str], object]
    """`BrokerConfig.value`."""

__all__ = ["LIMITS", "check_group_keys", "number"]

LIMITS: Mapping[str, tuple[str | None, str]] = {
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "share.heartbeat.interval.ms": (
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.session.timeout.ms": (
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": (
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.session.timeout.ms": (
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}
"""The broker's minimum and maximum of a group's setting, which are those of the broker's own
setting `group.<name>` too. In the order in which Kafka checks them."""


def check_group_keys(value_of: ValueOf) -> None:
    """Check the rules between the settings of groups; ConfigError for the first broken one."""
    for name, (low, high) in LIMITS.items():
        key = f"group.{name}"
        if low is not None:
            _check_order(value_of, high, low)
            _check_order(value_of, key, low)
        if number(value_of, key) > number(value_of, high):
            raise ConfigError(key, f"{key} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat = f"group.{kind}.heartbeat.interval.ms"
        session = f"group.{kind}.session.timeout.ms"
        if number(value_of, heartbeat) >= number(value_of, session):
            raise ConfigError(heartbeat, f"{heartbeat} must be less than {session}")
    _check_order(value_of, "group.share.max.share.sessions", "group.share.max.size")


def _check_order(value_of: ValueOf, name: str, low: str) -> None:
    if number(value_of, name) < number(value_of, low):
        raise ConfigError(name, f"{name} must be greater than or equal to {low}")


def number(value_of: ValueOf, name: str) -> int:
    """Return the value of a setting that is a number."""
    value = value_of(name)
    assert isinstance(value, int), name
    return value
