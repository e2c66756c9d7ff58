"""Settings of the metadata topic and its clients: Kafka's names after the prefix `rlmm.config.`.

As in Kafka's TopicBasedRemoteLogMetadataManagerConfig, settings after `common.client.` are for all
clients, and a client's own settings win. The consumer looks up offsets, as in Kafka's ConsumerTask.
The controller creates the topic, so there are no settings after `admin.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ClientSettings",
    "ConsumerSettings",
    "MetadataSettings",
    "ProducerSettings",
    "pause_s",
]

_INT16_MAX, _INT32_MAX, _INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1

_PREFIX = "remote.log.metadata."
_NAMES = {
    "partition_count": ("topic.num.partitions", 50, 1, _INT32_MAX),
    "replication_factor": ("topic.replication.factor", 3, 1, _INT16_MAX),
    "min_isr": ("topic.min.isr", 2, 1, _INT32_MAX),
    "retention_ms": ("topic.retention.ms", -1, -1, _INT64_MAX),
    "consume_wait_ms": ("consume.wait.ms", 120_000, 0, _INT64_MAX),
    "retry_ms": ("initialization.retry.interval.ms", 100, 0, _INT64_MAX),
    "retry_ms_max": ("initialization.retry.max.timeout.ms", 120_000, 0, _INT64_MAX),
}
"""Field -> name after the prefix, default, smallest and largest value."""


class MetadataSettings(NamedTuple):
    """How the topic is created, and time-outs. Times are in ms; retention -1 is unlimited."""

    partition_count: int
    replication_factor: int
    min_isr: int
    retention_ms: int
    consume_wait_ms: int
    retry_ms: int
    retry_ms_max: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self:
        """Parse the settings; ValueError names the key that is wrong. Other keys are ignored."""
        values = {}
        for field, (name, default, low, high) in _NAMES.items():
            values[field] = _number(config, _PREFIX + name, default, low, high)
        if not values["retention_ms"]:
            raise ValueError(f"{_PREFIX}topic.retention.ms: 0 would keep nothing, -1 keeps all")
        return cls(**values)

    @staticmethod
    def knows(key: str) -> bool:
        """Return whether a setting has an effect."""
        return any(key == _PREFIX + name for name, *_ in _NAMES.values())

    def topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        """Return the request to create the topic."""
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "min.insync.replicas": str(self.min_isr),
            "remote.storage.enable": "false",
        }
        return CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor,
            configs=[
                CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                for key, value in settings.items()
            ],
        )


# -- clients --------------------------------------------------------------------------------------


class ProducerSettings(NamedTuple):
    """Settings for publishing events. No attempt begins after `delivery_timeout_ms`; each waits
    `request_timeout_ms` for its answer, or for the replicas if this broker leads."""

    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int = 100


class ConsumerSettings(NamedTuple):
    """Settings for reading partitions and looking up offsets. `max_partition_fetch_bytes` also
    limits local reads: decoding blocks the loop, some ten milliseconds for the default. A look-up
    that times out closes the channel, on which events are published to that broker too."""

    request_timeout_ms: int
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 1 << 20
    max_partition_fetch_bytes: int = 1 << 16
    retry_backoff_ms: int = 100


_COMMON = "common.client"
_FIELDS = {"producer": ProducerSettings._fields, "consumer": ConsumerSettings._fields}


class ClientSettings(NamedTuple):
    """The settings of both clients."""

    producer: ProducerSettings
    consumer: ConsumerSettings

    @classmethod
    def of(
        cls, config: Mapping[str, str], *, request_timeout_ms: int, protocol: str = "PLAINTEXT"
    ) -> Self:
        """Parse the settings; ValueError names the key that is wrong. `request_timeout_ms` is the
        broker's, used as the default; `protocol` is that of the listener."""
        for key in filter(_is_protocol, sorted(config)):
            if config[key].upper() != protocol:
                raise ValueError(f"{key}: it is {config[key]}, and the listener has {protocol}")
        consumer = {"request_timeout_ms": request_timeout_ms, **_given(config, "consumer")}
        producer = {"request_timeout_ms": request_timeout_ms, **_given(config, "producer")}
        least = producer["request_timeout_ms"]
        delivery = producer.setdefault("delivery_timeout_ms", max(request_timeout_ms, least))
        if delivery < least:
            key = _key(config, "producer", "delivery_timeout_ms")
            raise ValueError(f"{key}: {delivery} is below request.timeout.ms, {least}")
        return cls(ProducerSettings(**producer), ConsumerSettings(**consumer))

    @staticmethod
    def knows(key: str) -> bool:
        """Return whether a setting has an effect."""
        given = {key: ""}
        return _is_protocol(key) or any(
            _key(given, client, field) == key for client in _FIELDS for field in _FIELDS[client]
        )


def _is_protocol(key: str) -> bool:
    return any(
        key == f"{_PREFIX}{client}.security.protocol" for client in (_COMMON, *_FIELDS, "admin")
    )


def _given(config: Mapping[str, str], client: str) -> dict[str, int]:
    """Return the given settings of a client, by field."""
    values = {}
    for field in _FIELDS[client]:
        key = _key(config, client, field)
        if key in config:
            high = _INT64_MAX if field == "retry_backoff_ms" else _INT32_MAX
            values[field] = _number(config, key, 0, 0, high)
    return values


def _key(config: Mapping[str, str], client: str, field: str) -> str:
    """Return the client's own key if it is set, otherwise the common one."""
    name = field.replace("_", ".")
    own = f"{_PREFIX}{client}.{name}"
    return own if own in config else f"{_PREFIX}{_COMMON}.{name}"


def _number(config: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """Parse a setting; ValueError names it."""
    text = config.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a number") from None
    if value < low:
        raise ValueError(f"{name}: {text} is below {low}")
    if value > high:
        raise ValueError(f"{name}: {text} is above {high}")
    return value


def pause_s(pause_ms: int) -> float:
    """Return a pause in seconds, never 0: a retry without a pause would block the loop."""
    return max(1, pause_ms) / 1000
