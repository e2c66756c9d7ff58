"""Settings of the metadata topic: Kafka's names after the prefix `rlmm.config.`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["INT32_MAX", "INT64_MAX", "MetadataSettings", "number", "pause_s"]

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1

_TOPIC = "remote.log.metadata.topic"
_NAMES = {
    "partition_count": (f"{_TOPIC}.num.partitions", 50, 1, INT32_MAX),
    "replication_factor": (f"{_TOPIC}.replication.factor", 3, 1, INT16_MAX),
    "min_isr": (f"{_TOPIC}.min.isr", 2, 1, INT32_MAX),
    "retention_ms": (f"{_TOPIC}.retention.ms", -1, -1, INT64_MAX),
    "consume_wait_ms": ("remote.log.metadata.consume.wait.ms", 120_000, 0, INT64_MAX),
    "retry_ms": ("remote.log.metadata.initialization.retry.interval.ms", 100, 0, INT64_MAX),
    "retry_ms_max": (
        "remote.log.metadata.initialization.retry.max.timeout.ms",
        120_000,
        0,
        INT64_MAX,
    ),
}
"""Field -> name, default, smallest and largest value."""
_KEYS = frozenset(name for name, *_ in _NAMES.values())


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
            values[field] = number(name, config.get(name, str(default)), low, high)
            if field == "retention_ms" and not values[field]:
                raise ValueError(f"{name}: 0 would keep nothing, -1 keeps all")
        return cls(**values)

    @property
    def retry_s(self) -> float:
        """The pause between attempts to create the topic."""
        return pause_s(self.retry_ms)

    @staticmethod
    def knows(key: str) -> bool:
        """Return whether a setting has an effect."""
        return key in _KEYS

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


def number(name: str, text: str, low: int, high: int) -> int:
    """Parse a number; ValueError names the key."""
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
