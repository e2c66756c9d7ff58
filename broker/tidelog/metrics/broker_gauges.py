"""Gauges of every broker, by Kafka's names: parked operations, and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tidelog.metrics.meters import Meters
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

__all__ = ["Waiting", "tell_logs", "tell_purgatories"]


class Waiting(Protocol):
    """A purgatory: the number of parked operations, and of their watches."""

    def __len__(self) -> int: ...

    @property
    def watches(self) -> int:
        """The number of watches: each operation counts once per key."""
        ...


def tell_purgatories(meters: Meters, purgatories: Mapping[str, Waiting]) -> None:
    """Register the sizes of these purgatories, by Kafka's names: operations and watches."""

    def tell(name: str, value_of: Callable[[Waiting], int]) -> None:
        def read() -> Iterator[Sample]:
            for operation, purgatory in purgatories.items():
                yield Sample((("delayedOperation", operation),), value_of(purgatory))

        meters.gauge(Name("kafka.server", "DelayedOperationPurgatory", name), read)

    tell("NumDelayedOperations", len)
    tell("PurgatorySize", lambda purgatory: purgatory.watches)


def tell_logs(meters: Meters, logs: LogManager) -> None:
    """Register the offsets and sizes of the logs in use, and the offline log directories."""

    def tell(name: str, value_of: Callable[[Log], int]) -> None:
        def read() -> Iterator[Sample]:
            for held in logs.loaded():
                topic, partition = held.topic_partition
                yield Sample((("partition", str(partition)), ("topic", topic)), value_of(held))

        meters.gauge(Name("kafka.log", "Log", name), read)

    tell("DamagedOffsets", _damaged_offsets)
    tell("LogEndOffset", lambda held: held.log_end_offset)
    tell("LogStartOffset", lambda held: held.log_start_offset)
    tell("NumLogSegments", lambda held: len(held.segments))
    tell("RetentionSizeInPercent", _retention_percent)
    tell("Size", lambda held: held.size_in_bytes)
    _tell_directories(meters, logs)


def _tell_directories(meters: Meters, logs: LogManager) -> None:
    """Register which log directories are offline (KIP-112)."""

    def each() -> Iterator[Sample]:
        for directory in logs.directories:
            is_offline = int(directory.failure is not None)
            yield Sample((("logDirectory", directory.path),), is_offline)

    def total() -> Iterator[Sample]:
        yield Sample((), sum(sample.value for sample in each()))

    meters.gauge(Name("kafka.log", "LogManager", "LogDirectoryOffline"), each)
    meters.gauge(Name("kafka.log", "LogManager", "OfflineLogDirectoryCount"), total)


def _damaged_offsets(held: Log) -> int:
    """Offsets that are known to be unreadable here. tidelog's own: see `healing`."""
    return sum([damage.end_offset - damage.first_offset for damage in held.damages])


def _retention_percent(held: Log) -> int:
    """KIP-1257: 0 for a tiered log, for which the remote tier reports both parts."""
    limit = held.config.retention_bytes
    if limit <= 0 or (held.is_tiered and not held.config.remote_log_copy_disable):
        return 0
    return 100 * held.size_in_bytes // limit
