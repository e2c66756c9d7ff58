"""Settings of the clients of the metadata topic: Kafka's names after the prefix `rlmm.config.`.

As in Kafka's TopicBasedRemoteLogMetadataManagerConfig, settings after `common.client.` are for all
clients, and a client's own settings win. The consumer looks up offsets, as in Kafka's ConsumerTask.
The controller creates the topic, so there are no settings after `admin.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from tidelog.tiered.metadata.settings import INT32_MAX, INT64_MAX, number, pause_s

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClientSettings", "ConsumerSettings", "ProducerSettings"]

_PREFIX = "remote.log.metadata."
_COMMON = "common.client"
_PROTOCOLS = frozenset(
    f"{_PREFIX}{client}.security.protocol" for client in (_COMMON, "producer", "consumer", "admin")
)


class ProducerSettings(NamedTuple):
    """Settings for publishing events. No attempt begins after `delivery_timeout_ms`; each waits
    `request_timeout_ms` for its answer, or for the replicas if this broker leads."""

    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int = 100

    @property
    def retry_s(self) -> float:
        """The pause between attempts."""
        return pause_s(self.retry_backoff_ms)


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

    @property
    def retry_s(self) -> float:
        """The pause between attempts."""
        return pause_s(self.retry_backoff_ms)


_FIELDS = {"producer": ProducerSettings._fields, "consumer": ConsumerSettings._fields}
_KEYS = frozenset(
    f"{_PREFIX}{prefix}.{field.replace('_', '.')}"
    for client, fields in _FIELDS.items()
    for field in fields
    for prefix in (_COMMON, client)
)


class ClientSettings(NamedTuple):
    """The settings of both clients."""

    producer: ProducerSettings
    consumer: ConsumerSettings

    @classmethod
    def of(cls, config: Mapping[str, str], *, request_timeout_ms: int) -> Self:
        """Parse the settings; ValueError names the key that is wrong. `request_timeout_ms` is the
        broker's, used as the default."""
        for key in sorted(_PROTOCOLS & config.keys()):
            if config[key].upper() != "PLAINTEXT":
                raise ValueError(f"{key}: it is {config[key]}, and only PLAINTEXT is supported")
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
        return key in _KEYS or key in _PROTOCOLS


def _given(config: Mapping[str, str], client: str) -> dict[str, int]:
    """Return the given settings of a client, by field."""
    values = {}
    for field in _FIELDS[client]:
        key = _key(config, client, field)
        if key in config:
            high = INT64_MAX if field == "retry_backoff_ms" else INT32_MAX
            values[field] = number(key, config[key], 0, high)
    return values


def _key(config: Mapping[str, str], client: str, field: str) -> str:
    """Return the client's own key if it is set, otherwise the common one."""
    name = field.replace("_", ".")
    own = f"{_PREFIX}{client}.{name}"
    return own if own in config else f"{_PREFIX}{_COMMON}.{name}"
