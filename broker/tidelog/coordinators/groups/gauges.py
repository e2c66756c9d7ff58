"""Gauges of the groups that this broker coordinates: their number, their offsets and lag.

Kafka's brokers have no lag of groups; its names are those that kafka_exporter made usual.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.states import STATES_OF
from tidelog.metrics.meters import Name, Sample
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.kinds import AnyGroup
    from tidelog.metrics.meters import Labels, Meters
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["tell_groups"]

_CLASSIC = "classic"
_CLASSIC_NUMBER = Name("kafka.coordinator.group", "GroupMetadataManager", "NumGroups")
_COORDINATOR = ("kafka.server", "group-coordinator-metrics")
_NUMBER = Name(*_COORDINATOR, "group-count")
_OFFSET = Name("kafka", "consumergroup", "current_offset")
_LAG = Name("kafka", "consumergroup", "lag")


def tell_groups(meters: Meters, groups: GroupCoordinator, replicas: ReplicaManager) -> None:
    """Register the gauges. A lag is known where the broker has a replica of the partition."""

    def offset() -> Iterator[Sample]:
        for labels, _, value in _committed(groups):
            yield Sample(labels, value)

    def lag() -> Iterator[Sample]:
        for labels, key, value in _committed(groups):
            partition = replicas.hosted(key)
            if partition is not None:
                yield Sample(labels, max(0, partition.log.high_watermark - value))

    _tell_numbers(meters, groups)
    meters.gauge(_OFFSET, offset)
    meters.gauge(_LAG, lag)


def _tell_numbers(meters: Meters, groups: GroupCoordinator) -> None:
    def classic() -> Iterator[Sample]:
        yield Sample((), sum(group.type == _CLASSIC for group in _all(groups)))

    def number() -> Iterator[Sample]:
        counts = Counter[str](group.type for group in _all(groups))
        for protocol in (_CLASSIC, *STATES_OF):
            yield Sample((("protocol", protocol),), counts[protocol])

    def in_states(protocol: str) -> Iterator[Sample]:
        counts = Counter(group.state for group in _all(groups) if group.type == protocol)
        for state in STATES_OF[protocol]:
            yield Sample((("state", state.value),), counts[state])

    meters.gauge(_CLASSIC_NUMBER, classic)
    meters.gauge(_NUMBER, number)
    for protocol in STATES_OF:
        meters.gauge(Name(*_COORDINATOR, f"{protocol}-group-count"), partial(in_states, protocol))


def _all(groups: GroupCoordinator) -> Iterator[AnyGroup]:
    for shard in groups.led.active():
        yield from shard.groups.values()


def _committed(groups: GroupCoordinator) -> Iterator[tuple[Labels, TopicPartition, int]]:
    """Return labels, partition and offset of each committed offset."""
    for shard in groups.led.active():
        for group_id in shard.groups:
            for topic, offsets in shard.committed.of_group(group_id).items():
                for index, one in offsets.items():
                    labels = (("consumergroup", group_id), ("partition", str(index)))
                    yield (*labels, ("topic", topic)), TopicPartition(topic, index), one.offset
