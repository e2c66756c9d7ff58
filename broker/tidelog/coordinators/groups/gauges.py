"""Gauges of the groups that this broker coordinates: number of groups, offsets and lag.

Kafka's brokers have no lag of groups; its names are those that kafka_exporter made usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metrics.meters import Name, Sample
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.metrics.meters import Labels, Meters
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["tell_groups"]

_NUMBER = Name("kafka.coordinator.group", "GroupMetadataManager", "NumGroups")
_OFFSET = Name("kafka", "consumergroup", "current_offset")
_LAG = Name("kafka", "consumergroup", "lag")


def tell_groups(meters: Meters, groups: GroupCoordinator, replicas: ReplicaManager) -> None:
    """Register the gauges. A lag is known where the broker has a replica of the partition."""

    def number() -> Iterator[Sample]:
        yield Sample((), sum(len(shard.groups) for shard in groups.led.active()))

    def offset() -> Iterator[Sample]:
        for labels, _, value in _committed(groups):
            yield Sample(labels, value)

    def lag() -> Iterator[Sample]:
        for labels, key, value in _committed(groups):
            partition = replicas.hosted(key)
            if partition is not None:
                yield Sample(labels, max(0, partition.log.high_watermark - value))

    meters.gauge(_NUMBER, number)
    meters.gauge(_OFFSET, offset)
    meters.gauge(_LAG, lag)


def _committed(groups: GroupCoordinator) -> Iterator[tuple[Labels, TopicPartition, int]]:
    """Return labels, partition and offset of each committed offset."""
    for shard in groups.led.active():
        for group_id in shard.groups:
            for topic, offsets in shard.committed.of_group(group_id).items():
                for index, one in offsets.items():
                    labels = (("consumergroup", group_id), ("partition", str(index)))
                    yield (*labels, ("topic", topic)), TopicPartition(topic, index), one.offset
