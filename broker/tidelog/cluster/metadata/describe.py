"""Describe settings for DescribeConfigs and CreateTopics: value, source and synonyms.

Pure: a configuration and an image in, entries out. Sources, types and the quirks of the synonym
lists are Apache Kafka's (KIP-226, KIP-569), because tools compare them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.image import (
    DEFAULT_BROKER_RESOURCE,
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from tidelog.config.authorizer_keys import OF_AUTHORIZER
from tidelog.config.broker import ALTERABLE_KEYS, BrokerConfig, update_mode
from tidelog.config.client_metrics import CLIENT_METRICS_KEYS
from tidelog.config.group_settings import GROUP_KEYS
from tidelog.config.vocabulary import READ_ONLY
from tidelog.java_order import hash_order
from tidelog_storage.config import TOPIC_KEYS, LogConfig
from tidelog_storage.config_key import ConfigKey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tidelog.cluster.metadata.image import ClusterImage

# The source of a value (DescribeConfigsResponse.ConfigSource).
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5
DYNAMIC_CLIENT_METRICS, DYNAMIC_GROUP = 7, 8

_TYPE_CODES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}

# Broker settings that stand in for each other, most specific first.
_BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    name: group
    for group in (
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    for name in group
} | {"log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")}


_KEYS: Mapping[int, Mapping[str, ConfigKey]] = {
    RESOURCE_BROKER: BrokerConfig.KEYS,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_KEYS,
    RESOURCE_GROUP: GROUP_KEYS,
    RESOURCE_TOPIC: TOPIC_KEYS,
}


class ConfigSynonym(NamedTuple):
    """One setting that gives or could give the value."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One described setting."""

    name: str
    value: str | None
    source: int
    type_code: int = 0
    read_only: bool = False
    is_sensitive: bool = False
    synonyms: Sequence[ConfigSynonym] = ()
    documentation: str | None = None


def format_value(value: object) -> str | None:
    """Format a value as Kafka does: floats as in Java, commas in lists."""
    if isinstance(value, float) and value and not 1e-3 <= abs(value) < 1e7:
        mantissa, _, exponent = repr(abs(value)).partition("e")
        whole, _, fraction = mantissa.partition(".")
        digits = (whole + fraction).lstrip("0")
        power = len(digits) - len(fraction) - 1 + int(exponent or 0)
        digits = digits.rstrip("0")
        return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"
    return ConfigKey.format(value)


@cache
def _public(resource_type: int) -> Mapping[str, None]:
    """Return the names of all settings that are not internal, in the order of Kafka's hash map."""
    keys = _KEYS[resource_type]
    return dict.fromkeys(hash_order(name for name in keys if not keys[name].internal))


def _listed(resource_type: int, given: Collection[str], names: Collection[str] | None) -> list[str]:
    """Return the names to describe: those `given` that are not public, then the public ones."""
    public = _public(resource_type)
    copied = len(given) * 4 // 3 + 1  # what Java makes a map for that it copies at once
    every = [name for name in hash_order(given, copied) if name not in public]
    return [name for name in (*every, *public) if not names or name in names]


def describe_topic(
    config: BrokerConfig, image: ClusterImage, topic: str, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe settings of an existing topic: all, or those of `names` that exist."""
    effective = config.with_dynamic(image.broker_config(config.node_id))
    overrides = image.topic_config(topic)
    log_config = LogConfig.from_overrides(effective.log_defaults, overrides)
    entries = []
    for name in _listed(RESOURCE_TOPIC, overrides.keys() & TOPIC_KEYS.keys(), names):
        key = TOPIC_KEYS[name]
        value = format_value(log_config.value(name))
        synonyms: list[ConfigSynonym] = []
        if name in overrides:
            synonyms.append(ConfigSynonym(name, value, DYNAMIC_TOPIC))
        if key.synonyms:
            synonyms += broker_synonyms(config, image, key.synonyms[0].name)
        entries.append(
            ConfigEntry(
                name,
                value,
                synonyms[0].source if synonyms else DEFAULT,
                _TYPE_CODES[key.type_name],
                synonyms=synonyms,
                documentation=key.documentation,
            )
        )
    return entries


def describe_group(
    config: BrokerConfig, image: ClusterImage, group_id: str, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe settings of a group, which need not exist: all, or those of `names`."""
    overrides = image.group_config(group_id)
    entries = []
    for name in _listed(RESOURCE_GROUP, (), names):
        key = GROUP_KEYS[name]
        synonyms: list[ConfigSynonym] = []
        if name in overrides:
            value = format_value(key.parse(overrides[name]))
            synonyms.append(ConfigSynonym(name, value, DYNAMIC_GROUP))
        if key.synonyms:
            synonyms += broker_synonyms(config, image, key.synonyms[0].name)
        else:
            synonyms.append(ConfigSynonym(name, format_value(key.default), DEFAULT))
        entries.append(
            ConfigEntry(
                name,
                synonyms[0].value,
                synonyms[0].source,
                _TYPE_CODES[key.type_name],
                synonyms=synonyms,
                documentation=key.documentation,
            )
        )
    return entries


def describe_client_metrics(
    image: ClusterImage, subscription: str, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe a subscription of clients' metrics, which need not exist: all, or `names`."""
    settings = image.client_metrics.get(subscription, {})
    entries = []
    for name in _listed(RESOURCE_CLIENT_METRICS, (), names):
        key = CLIENT_METRICS_KEYS[name]
        is_set = name in settings
        value = format_value(key.parse(settings[name]) if is_set else key.default)
        source = DYNAMIC_CLIENT_METRICS if is_set else DEFAULT
        entries.append(
            ConfigEntry(
                name,
                value,
                source,
                _TYPE_CODES[key.type_name],
                synonyms=[ConfigSynonym(name, value, source)] if is_set else [],
                documentation=key.documentation,
            )
        )
    return entries


def describe_broker(
    config: BrokerConfig, image: ClusterImage, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe settings of this broker, including dynamic ones."""
    dynamic = image.broker_config(config.node_id)
    effective = config.with_dynamic(dynamic)
    return [
        _broker_entry(name, effective, broker_synonyms(config, image, name))
        for name in _listed(RESOURCE_BROKER, {**config.given, **dynamic}, names)
    ]


def describe_broker_defaults(
    config: BrokerConfig, image: ClusterImage, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe only the cluster-wide dynamic settings."""
    defaults = image.broker_configs.get(DEFAULT_BROKER_RESOURCE, {})
    effective = config.with_dynamic(defaults)
    return [
        _broker_entry(
            name,
            effective,
            [
                synonym
                for synonym in broker_synonyms(config, image, name)
                if synonym.source == DYNAMIC_DEFAULT_BROKER
            ],
        )
        for name in hash_order(defaults)
        if not names or name in names
    ]


def _broker_entry(
    name: str, effective: BrokerConfig, synonyms: Sequence[ConfigSynonym]
) -> ConfigEntry:
    key = None if name in OF_AUTHORIZER else ALTERABLE_KEYS.get(name)
    sensitive = not effective.shows(name)
    if name in BrokerConfig.KEYS:
        value = effective.value(name)
    else:  # set dynamically
        value = synonyms[0].value if synonyms else effective.given.get(name)
    return ConfigEntry(
        name,
        None if sensitive else format_value(value),
        synonyms[0].source if synonyms else DEFAULT,
        0 if key is None else _TYPE_CODES[key.type_name],
        read_only=key is None or update_mode(name) == READ_ONLY,
        is_sensitive=sensitive,
        synonyms=synonyms,
        documentation=None if key is None else key.documentation,
    )


def broker_synonyms(config: BrokerConfig, image: ClusterImage, name: str) -> list[ConfigSynonym]:
    """Return the sources of a broker setting's value, the effective one first.

    As in Kafka, the list starts with the first entry of the setting's own name: with only
    log.retention.hours set, log.retention.ms has no synonyms and counts as default.
    """
    group = _BROKER_SYNONYMS.get(name, (name,))
    sensitive = not config.shows(name)
    defaults = {
        member: text
        for member in group
        if member in BrokerConfig.KEYS
        and not BrokerConfig.KEYS[member].required
        and (text := format_value(BrokerConfig.KEYS[member].default)) is not None
    }
    found = [
        ConfigSynonym(member, None if sensitive else values[member], source)
        for values, source in (
            (image.broker_configs.get(str(config.node_id), {}), DYNAMIC_BROKER),
            (image.broker_configs.get(DEFAULT_BROKER_RESOURCE, {}), DYNAMIC_DEFAULT_BROKER),
            (config.given, STATIC_BROKER),
            (defaults, DEFAULT),
        )
        for member in group
        if member in values
    ]
    while found and found[0].name != name:
        del found[0]
    return found


def effective_topic_configs(
    config: BrokerConfig, image: ClusterImage, overrides: Mapping[str, str]
) -> list[ConfigEntry]:
    """Return the settings of a topic created with `overrides`, by name (KIP-525)."""
    sources = (
        (image.broker_configs.get(str(config.node_id), {}), DYNAMIC_BROKER),
        (image.broker_configs.get(DEFAULT_BROKER_RESOURCE, {}), DYNAMIC_DEFAULT_BROKER),
        (config.given, STATIC_BROKER),
    )
    entries = []
    for name in sorted(TOPIC_KEYS):
        key = TOPIC_KEYS[name]
        if name in overrides:
            entries.append(ConfigEntry(name, overrides[name], DYNAMIC_TOPIC))
        elif not key.internal:
            entries.append(_inherited(key, sources))
    return entries


def _inherited(key: ConfigKey, sources: Sequence[tuple[Mapping[str, str], int]]) -> ConfigEntry:
    for values, source in sources:
        for synonym in key.synonyms:
            text = values.get(synonym.name)
            if text is not None:
                value = text if synonym.factor == 1 else str(int(text) * synonym.factor)
                return ConfigEntry(key.name, value, source)
    return ConfigEntry(key.name, format_value(key.default), DEFAULT)
