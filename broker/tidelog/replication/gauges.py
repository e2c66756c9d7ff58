"""Metrics of this broker's partitions, by Kafka's names: leaders, replicas, in-sync replicas."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.metrics.meters import Meters
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["tell_partitions"]


def tell_partitions(meters: Meters, replicas: ReplicaManager) -> None:
    """Register the gauges of Kafka's Partition, their sums and the changes of in-sync replicas,
    those of its ReplicaManager."""

    def tell(kind: str, name: str, value_of: Callable[[Partition], int], *, led: bool) -> None:
        def chosen() -> Iterator[Partition]:
            return (each for each in replicas.partitions() if each.is_leader or not led)

        def each() -> Iterator[Sample]:
            for partition in chosen():
                topic, index = partition.topic_partition
                labels = (("partition", str(index)), ("topic", topic))
                yield Sample(labels, value_of(partition))

        def total() -> Iterator[Sample]:
            yield Sample((), sum(map(value_of, chosen())))

        if kind == "Partition":
            meters.gauge(Name("kafka.cluster", kind, name), each)
        else:
            meters.gauge(Name("kafka.server", kind, name), total)

    tell("Partition", "InSyncReplicasCount", lambda one: len(one.isr), led=True)
    tell("Partition", "ReplicasCount", lambda one: len(one.replicas), led=True)
    tell("Partition", "UnderReplicated", _is_under_replicated, led=True)
    tell("Partition", "UnderMinIsr", _is_under_min_isr, led=True)
    tell("Partition", "AtMinIsr", _is_at_min_isr, led=True)
    tell("Partition", "LastStableOffsetLag", _last_stable_offset_lag, led=True)
    tell("ReplicaManager", "PartitionCount", lambda _: 1, led=False)
    tell("ReplicaManager", "LeaderCount", lambda _: 1, led=True)
    tell("ReplicaManager", "UnderReplicatedPartitions", _is_under_replicated, led=True)
    tell("ReplicaManager", "UnderMinIsrPartitionCount", _is_under_min_isr, led=True)
    tell("ReplicaManager", "AtMinIsrPartitionCount", _is_at_min_isr, led=True)
    offline = Name("kafka.server", "ReplicaManager", "OfflineReplicaCount")
    meters.gauge(offline, lambda: iter([Sample((), replicas.offline_count)]))
    for name, attribute in (
        ("IsrShrinksPerSec", "shrinks"),
        ("IsrExpandsPerSec", "expands"),
        ("FailedIsrUpdatesPerSec", "failed"),
    ):
        counted = Name("kafka.server", "ReplicaManager", name)
        meters.counted(counted, partial(_isr_changes, replicas, attribute))


def _isr_changes(replicas: ReplicaManager, attribute: str) -> list[Sample]:
    """A lone broker has none, and counts 0."""
    return [Sample((), getattr(replicas.isr_changes, attribute, 0))]


def _is_under_replicated(partition: Partition) -> int:
    return int(len(partition.isr) < len(partition.replicas))


def _is_under_min_isr(partition: Partition) -> int:
    return int(len(partition.isr) < partition.min_isr)


def _is_at_min_isr(partition: Partition) -> int:
    return int(len(partition.isr) == partition.min_isr)


def _last_stable_offset_lag(partition: Partition) -> int:
    return partition.log.high_watermark - partition.log.last_stable_offset
