"""Metrics of share groups, by Kafka's names: ShareGroupMetrics, SharePartitionMetrics,
ShareSessionCache.

Left out: the times and ratios of Kafka's fetch locks, which tidelog does not have, and sizes of
single batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.metrics.meters import Meters
    from tidelog.shares.led_partition import LedPartition
    from tidelog.shares.share_partitions import SharePartitions

__all__ = ["tell_shares"]


def tell_shares(meters: Meters, shares: SharePartitions) -> None:
    """Register the metrics of this broker's share partitions and share sessions."""
    counts, sessions = shares.counts, shares.sessions

    def acknowledged() -> list[Sample]:
        return [
            Sample((("ackType", kind.name.capitalize()),), count)
            for kind, count in counts.acknowledged.items()
        ]

    def each(value_of: Callable[[LedPartition], int]) -> list[Sample]:
        return [Sample(_labels(led), value_of(led)) for led in shares.led()]

    def gauge(name: str, value: Callable[[], int]) -> None:
        def read() -> Iterator[Sample]:
            yield Sample((), value())

        meters.gauge(Name("kafka.server", "ShareSessionCache", name), read)

    def of_partitions(name: str, value_of: Callable[[LedPartition], int]) -> None:
        meters.gauge(Name("kafka.server", "SharePartitionMetrics", name), lambda: each(value_of))

    of_group = "ShareGroupMetrics"
    meters.counted(Name("kafka.server", of_group, "RecordAcknowledgementsPerSec"), acknowledged)
    loads = Name("kafka.server", of_group, "PartitionLoadTimeMs")
    meters.timed(loads, lambda: [((), counts.loads)])
    of_partitions("InFlightMessageCount", _in_flight)
    of_partitions("InFlightBatchCount", _batches_in_flight)
    ended = Name("kafka.server", "SharePartitionMetrics", "AcquisitionLockTimeoutPerSec")
    meters.counted(ended, lambda: each(lambda led: led.locks_ended))
    gauge("ShareSessionsCount", lambda: len(sessions))
    gauge("SharePartitionsCount", lambda: sessions.partition_count)


def _labels(led: LedPartition) -> tuple[tuple[str, str], ...]:
    topic, partition = led.partition.topic_partition
    return (("group", led.key.group_id), ("partition", str(partition)), ("topic", topic))


def _in_flight(led: LedPartition) -> int:
    return 0 if led.state is None else led.state.in_flight.count


def _batches_in_flight(led: LedPartition) -> int:
    return 0 if led.state is None else len({span.batch for span in led.state.in_flight.spans})
