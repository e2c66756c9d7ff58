"""Gauges of the remote tier, by Kafka's names: how much waits to be copied or deleted, how much is
there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.metrics.meters import BROKER_TOPIC_METRICS, Name, Sample
from tidelog_storage.remote.api import RemoteStorageNotReady, SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidelog.metrics.meters import Meters
    from tidelog.seams import Clock
    from tidelog.tiered.metadata.topic import TopicBasedMetadata
    from tidelog.tiered.quotas import RateQuota
    from tidelog.tiered.tasks import TieredPartition
    from tidelog_storage.remote.api import RemoteLogMetadata
    from tidelog_storage.remote.index_cache import IndexCache

__all__ = ["tell_gauges", "tell_index_cache", "tell_passed_over", "tell_quota"]

# Counted by the rooms that do the work, and told as 0 before.
_COUNTED = (
    "BuildRemoteLogAuxStateErrorsPerSec",
    "BuildRemoteLogAuxStateRequestsPerSec",
    "RemoteCopyBytesPerSec",
    "RemoteCopyErrorsPerSec",
    "RemoteCopyRequestsPerSec",
    "RemoteDeleteErrorsPerSec",
    "RemoteDeleteRequestsPerSec",
    "RemoteFetchBytesPerSec",
    "RemoteFetchErrorsPerSec",
    "RemoteFetchRequestsPerSec",
)


def tell_gauges(
    meters: Meters,
    partitions: Mapping[tuple[str, int], TieredPartition],
    metadata: RemoteLogMetadata,
) -> None:
    """Register the gauges; each is computed when somebody asks."""

    def tell(name: str, value_of: Callable[[TieredPartition], int]) -> None:
        meters.gauge(
            Name(*BROKER_TOPIC_METRICS, name), lambda: _samples(partitions.values(), value_of)
        )

    meters.declare(Name(*BROKER_TOPIC_METRICS, name) for name in _COUNTED)
    tell("RemoteCopyLagBytes", lambda each: each.copier.lag()[0])
    tell("RemoteCopyLagSegments", lambda each: each.copier.lag()[1])
    tell("RemoteDeleteLagBytes", lambda each: each.expiration.lag[0])
    tell("RemoteDeleteLagSegments", lambda each: each.expiration.lag[1])
    tell("RemoteLogMetadataCount", lambda each: _remote(metadata, each)[0])
    tell("RemoteLogSizeBytes", lambda each: _remote(metadata, each)[1])
    tell("RemoteLogSizeComputationTime", lambda each: each.expiration.planning_ms)
    _tell_percents(meters, partitions)
    _tell_damages(meters, partitions)


def _tell_percents(meters: Meters, partitions: Mapping[tuple[str, int], TieredPartition]) -> None:
    """KIP-1257: how full a partition is, the whole of it and its local part."""

    def tell(name: str, which: int) -> None:
        def read() -> Iterator[Sample]:
            for (topic, number), each in partitions.items():
                percents = each.expiration.percents
                if each.leads and percents is not None:
                    yield Sample((("partition", str(number)), ("topic", topic)), percents[which])

        meters.gauge(Name("kafka.log.remote", "RemoteLogManager", name), read)

    tell("RetentionSizeInPercent", 0)
    tell("LocalRetentionSizeInPercent", 1)


def _tell_damages(meters: Meters, partitions: Mapping[tuple[str, int], TieredPartition]) -> None:
    """Offsets whose remote segments are damaged, and could not be repaired. Kafka does not look."""

    def read() -> Iterator[Sample]:
        for (topic, number), each in partitions.items():
            if each.leads:
                ranges = {(one.start_offset, one.end_offset + 1) for one in each.damaged.values()}
                damaged = sum(end - start for start, end in ranges)
                yield Sample((("partition", str(number)), ("topic", topic)), damaged)

    meters.gauge(Name("kafka.log.remote", "RemoteLogManager", "DamagedOffsets"), read)


def tell_index_cache(meters: Meters, cache: IndexCache) -> None:
    """Register how much local disk the indexes of remote segments take; Kafka does not tell."""
    place = ("tidelog.tiered", "RemoteIndexCache")
    meters.gauge(Name(*place, "SizeBytes"), lambda: [Sample((), cache.bytes)])
    meters.gauge(Name(*place, "Segments"), lambda: [Sample((), len(cache))])


def tell_passed_over(meters: Meters, topic: TopicBasedMetadata) -> None:
    """Register how many records of the metadata topic counted for nothing, as nobody could read
    them or as what they say may not be; Kafka does not tell."""
    place = ("tidelog.tiered", "RemoteLogMetadata")
    meters.gauge(Name(*place, "UnreadableRecords"), lambda: [Sample((), topic.unreadable)])
    meters.gauge(Name(*place, "IllegalRecords"), lambda: [Sample((), topic.illegal)])


def tell_quota(meters: Meters, kind: str, quota: RateQuota, clock: Clock) -> None:
    """Register what a quota of `kind` "copy" or "fetch" does (KIP-956)."""

    def tell(group: str, name: str, value_of: Callable[[float], float]) -> None:
        read = Name("kafka.server", group, name)
        meters.gauge(read, lambda: [Sample((), value_of(clock.monotonic()))])

    throttled = f"remote-{kind}-throttle-time"
    tell(f"RLM{kind.capitalize()}", "byte-rate", quota.rate)
    tell("RemoteLogManager", f"{throttled}-avg", lambda now_s: quota.throttle_times_ms(now_s)[0])
    tell("RemoteLogManager", f"{throttled}-max", lambda now_s: quota.throttle_times_ms(now_s)[1])


def _samples(
    partitions: Iterable[TieredPartition], value_of: Callable[[TieredPartition], int]
) -> list[Sample]:
    """For each topic; who does not lead a partition tells nothing of it."""
    values: dict[str, int] = {}
    for each in partitions:
        if each.leads:
            topic = each.partition.topic
            values[topic] = values.get(topic, 0) + value_of(each)
    total = Sample((), sum(values.values()))
    return [total, *(Sample((("topic", topic),), value) for topic, value in values.items())]


def _remote(metadata: RemoteLogMetadata, each: TieredPartition) -> tuple[int, int]:
    """Number of segments that are known, and bytes of those that the store should have."""
    try:
        segments = list(metadata.segments(each.partition))
    except RemoteStorageNotReady:
        return 0, 0
    there = (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED)
    return len(segments), sum(one.size for one in segments if one.state in there)
