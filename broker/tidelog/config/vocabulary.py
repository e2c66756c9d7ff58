"""The functions with which `keys.py` declares the broker's settings, one typed line per key.

They extend those of `tidelog_storage.config_key` with attributes that only a broker's setting has:
whether it may change while the broker runs, and whether it has any effect.
"""

from __future__ import annotations

from typing import Any

from tidelog_storage.config_key import HIGH, LOW, MEDIUM, REQUIRED, ConfigError, ConfigKey

__all__ = [
    "CLUSTER_WIDE",
    "HIGH",
    "LOW",
    "MEDIUM",
    "PER_BROKER",
    "READ_ONLY",
    "BrokerKey",
    "ConfigError",
    "boolean",
    "class_name",
    "double",
    "integer",
    "long",
    "required_integer",
    "short",
    "string",
    "strings",
]

# How a key may change while the broker runs (KIP-226's update modes).
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

_INERT = " Accepted for Kafka's sake, without effect here."


class BrokerKey(ConfigKey):
    """One declared setting of a broker."""

    __slots__ = ("inert", "mode")

    def __init__(
        self,
        type_name: str,
        default: object,
        documentation: str,
        *,
        mode: str = READ_ONLY,
        inert: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            type_name, default, documentation + _INERT if inert else documentation, **options
        )
        self.mode = mode
        self.inert = inert


def boolean(default: bool, documentation: str, **options: Any) -> Any:
    """True or false."""
    return BrokerKey("BOOLEAN", default, documentation, **options)


def integer(default: int | None, documentation: str, **options: Any) -> Any:
    """A 32-bit int."""
    return BrokerKey("INT", default, documentation, **options)


def required_integer(documentation: str, **options: Any) -> Any:
    """A required 32-bit int."""
    return BrokerKey("INT", REQUIRED, documentation, **options)


def short(default: int, documentation: str, **options: Any) -> Any:
    """A 16-bit int."""
    return BrokerKey("SHORT", default, documentation, **options)


def long(default: int | None, documentation: str, **options: Any) -> Any:
    """A 64-bit int."""
    return BrokerKey("LONG", default, documentation, **options)


def double(default: float, documentation: str, **options: Any) -> Any:
    """A float."""
    return BrokerKey("DOUBLE", default, documentation, **options)


def string(default: str | None, documentation: str, **options: Any) -> Any:
    """A string, surrounding blanks cut."""
    return BrokerKey("STRING", default, documentation, **options)


def class_name(default: str | None, documentation: str, **options: Any) -> Any:
    """The name of one of Kafka's classes."""
    return BrokerKey("CLASS", default, documentation, **options)


def strings(default: tuple[str, ...] | None, documentation: str, **options: Any) -> Any:
    """A list, separated by commas."""
    value = None if default is None else list(default)
    return BrokerKey("LIST", value, documentation, **options)
