"""Gauges of the cluster by the names of Kafka's KafkaController, on nodes that may become it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metrics.meters import Name, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.metrics.meters import Meters

__all__ = ["tell_controller"]


def tell_controller(meters: Meters, metadata: MetadataLog) -> None:
    """Register the gauges; all but the first one tell what the node's image has."""

    def tell(name: str, value: Callable[[], int]) -> None:
        def read() -> Iterator[Sample]:
            yield Sample((), value())

        meters.gauge(Name("kafka.controller", "KafkaController", name), read)

    def partitions(counts: Callable[[PartitionImage], bool]) -> int:
        topics = metadata.image.topics.values()
        return sum(counts(one) for topic in topics for one in topic.partitions)

    def fenced() -> int:
        return sum(broker.fenced for broker in metadata.image.brokers.values())

    tell("ActiveControllerCount", lambda: int(metadata.is_leader))
    tell("ActiveBrokerCount", lambda: len(metadata.image.brokers) - fenced())
    tell("FencedBrokerCount", fenced)
    tell("GlobalTopicCount", lambda: len(metadata.image.topics))
    tell("GlobalPartitionCount", lambda: partitions(lambda _: True))
    tell("OfflinePartitionsCount", lambda: partitions(lambda one: one.leader < 0))
    tell(
        "PreferredReplicaImbalanceCount",
        lambda: partitions(lambda one: one.leader != one.replicas[0]),
    )
