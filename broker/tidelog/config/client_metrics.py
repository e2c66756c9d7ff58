"""The settings of one subscription of clients' metrics (KIP-714, Kafka's ClientMetricsConfigs):
`kafka-configs --entity-type client-metrics`, `kafka-client-metrics`.

`match` selects clients: every pattern must match the whole of its attribute. Patterns are RE2's;
Kafka has Java's, which are the same but for look-around and back references.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_storage.config_key import ConfigError, collect_keys, integer, strings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ALL_METRICS",
    "CLIENT_METRICS_KEYS",
    "INTERVAL_MS_DEFAULT",
    "OutOfRangeError",
    "Subscription",
    "subscription_of",
]

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 300000
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3600000

_ATTRIBUTES = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_PLAIN = frozenset("-_ :/@")  # no pattern's own characters, outside of brackets


def _check_entries(name: str, value: list[str]) -> None:
    if "" in value:
        raise ConfigError(name, f"Configuration '{name}' values must not be empty.")


class ClientMetricsSettings:
    """What a subscription may set."""

    metrics: list[str] = strings(
        [], "Prefixes of the metrics to push; `*` for all.", unique=True, check=_check_entries
    )
    interval_ms: int = integer(INTERVAL_MS_DEFAULT, "Time between a client's pushes.")
    match: list[str] = strings(
        [],
        "Clients that push, as attribute=pattern; without any, all of them.",
        unique=True,
        check=_check_entries,
    )


CLIENT_METRICS_KEYS = collect_keys(ClientMetricsSettings)


class OutOfRangeError(ConfigError):
    """An interval that Kafka refuses as an invalid request."""


class Subscription(NamedTuple):
    """One subscription, with the tests of attributes that its clients pass."""

    metrics: frozenset[str]
    interval_ms: int
    tests: tuple[tuple[str, Callable[[str], bool]], ...]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether a client with these attributes is to push."""
        return all(name in attributes and test(attributes[name]) for name, test in self.tests)


def subscription_of(settings: Mapping[str, str]) -> Subscription:
    """Parse the settings of a subscription; ConfigError with Kafka's text for the first wrong
    one."""
    values: dict[str, Any] = {
        name: key.parse(settings[name]) if name in settings else key.default
        for name, key in CLIENT_METRICS_KEYS.items()
    }
    interval_ms = values["interval.ms"]
    if not _INTERVAL_MS_MIN <= interval_ms <= _INTERVAL_MS_MAX:
        raise OutOfRangeError(
            "interval.ms",
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{_INTERVAL_MS_MIN} and {_INTERVAL_MS_MAX} (1 hour)",
        )
    tests = dict(_test(pattern) for pattern in values["match"])
    return Subscription(frozenset(values["metrics"]), interval_ms, tuple(tests.items()))


def _test(text: str) -> tuple[str, Callable[[str], bool]]:
    parts = text.split("=")
    while parts and not parts[-1]:
        parts.pop()  # Java's split drops empty strings at the end
    name = parts[0].strip() if parts else ""
    if len(parts) != 2 or name not in _ATTRIBUTES:
        raise _illegal(text)
    pattern = parts[1].strip()
    if all(each.isalnum() or each in _PLAIN for each in pattern):
        return name, partial(str.__eq__, pattern)
    try:
        from tidelog.config.patterns import matcher  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        why = " (the broker has no google-re2, run: pip install 'tidelog[re2]')"
        raise _illegal(text, why) from None
    try:
        return name, matcher(pattern)
    except ValueError:
        raise _illegal(text) from None


def _illegal(text: str, why: str = "") -> ConfigError:
    return ConfigError("match", f"Illegal client matching pattern: {text}{why}")
