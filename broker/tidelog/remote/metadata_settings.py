"""Settings of the metadata topic: Kafka's names after the prefix `rlmm.config.`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

from tidelog_protocol.messages.admin import CreateTopicsRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MetadataSettings", "number"]

_TOPIC = "remote.log.metadata.topic"
_NAMES = {
    "partition_count": (f"{_TOPIC}.num.partitions", 50, 1),
    "replication_factor": (f"{_TOPIC}.replication.factor", 3, 1),
    "min_isr": (f"{_TOPIC}.min.isr", 2, 1),
    "retention_ms": (f"{_TOPIC}.retention.ms", -1, -1),
    "consume_wait_ms": ("remote.log.metadata.consume.wait.ms", 120_000, 0),
    "retry_ms": ("remote.log.metadata.initialization.retry.interval.ms", 100, 0),
    "retry_ms_max": ("remote.log.metadata.initialization.retry.max.timeout.ms", 120_000, 0),
}
"""Field -> name, default, smallest value."""
_KEYS = frozenset(name for name, _, _ in _NAMES.values())
_INT64_MAX = 2**63 - 1


class MetadataSettings(NamedTuple):
    """How the topic is made, and how long its users wait. Times in ms, retention -1 unlimited."""

    partition_count: int
    replication_factor: int
    min_isr: int
    retention_ms: int
    consume_wait_ms: int
    retry_ms: int
    retry_ms_max: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Self:
        """ValueError names the key that is wrong; other names are somebody else's."""
        values = {}
        for field, (name, default, low) in _NAMES.items():
            values[field] = number(name, config.get(name, str(default)), low, _INT64_MAX)
            if field == "retention_ms" and not values[field]:
                raise ValueError(f"{name}: 0 would keep nothing, -1 keeps all")
        return cls(**values)

    @staticmethod
    def knows(key: str) -> bool:
        """Whether a setting means anything."""
        return key in _KEYS

    def topic(self, name: str) -> CreateTopicsRequest.CreatableTopic:
        """The topic as it is to be created."""
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
    """A setting's value; ValueError names the key."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a number") from None
    if value < low:
        raise ValueError(f"{name}: {text} is below {low}")
    if value > high:
        raise ValueError(f"{name}: {text} is above {high}")
    return value
