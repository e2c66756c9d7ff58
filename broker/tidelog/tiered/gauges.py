"""Gauges of the remote tier with Kafka's names: sizes of the tier and of what waits to be copied or
deleted."""

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
    from tidelog.tiered.tasks.partition import TieredPartition
    from tidelog_storage.remote.api import RemoteLogMetadata
    from tidelog_storage.remote.index_cache import IndexCache

__all__ = ["register_index_cache", "register_partitions", "register_passed_over", "register_quota"]

_MANAGER = ("kafka.log.remote", "RemoteLogManager")
# Meters that the tasks and reads count; they show as 0 before.
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


def register_partitions(
    meters: Meters,
    partitions: Mapping[tuple[str, int], TieredPartition],
    metadata: RemoteLogMetadata,
) -> None:
    """Register the gauges of partitions; each is computed when it is read."""

    def register(name: str, value_of: Callable[[TieredPartition], int]) -> None:
        meters.gauge(
            Name(*BROKER_TOPIC_METRICS, name), lambda: _samples(partitions.values(), value_of)
        )

    meters.declare(Name(*BROKER_TOPIC_METRICS, name) for name in _COUNTED)
    register("RemoteCopyLagBytes", lambda each: each.copier.lag()[0])
    register("RemoteCopyLagSegments", lambda each: each.copier.lag()[1])
    register("RemoteDeleteLagBytes", lambda each: each.expiration.lag[0])
    register("RemoteDeleteLagSegments", lambda each: each.expiration.lag[1])
    register("RemoteLogMetadataCount", lambda each: _remote(metadata, each)[0])
    register("RemoteLogSizeBytes", lambda each: _remote(metadata, each)[1])
    register("RemoteLogSizeComputationTime", lambda each: each.expiration.planning_ms)

    def register_each(name: str, value_of: Callable[[TieredPartition], int | None]) -> None:
        def read() -> Iterator[Sample]:
            for (topic, number), each in partitions.items():
                value = value_of(each) if each.leads else None
                if value is not None:
                    yield Sample((("partition", str(number)), ("topic", topic)), value)

        meters.gauge(Name(*_MANAGER, name), read)

    # KIP-1257: how full a partition and its local part are.
    register_each("RetentionSizeInPercent", lambda each: _percent(each, 0))
    register_each("LocalRetentionSizeInPercent", lambda each: _percent(each, 1))

    def read_damages() -> Iterator[Sample]:
        for (topic, number), each in partitions.items():
            if each.leads or each.unusable is not None:
                labels = (("partition", str(number)), ("topic", topic))
                yield Sample(labels, _damaged_offsets(each))

    meters.gauge(Name(*_MANAGER, "DamagedOffsets"), read_damages)


def _percent(each: TieredPartition, which: int) -> int | None:
    percents = each.expiration.percents
    return None if percents is None else percents[which]


def _damaged_offsets(each: TieredPartition) -> int:
    """Count the offsets of damaged remote segments; of a follower, of the one that it waits for.
    Kafka has no such gauge."""
    damaged = [*each.damaged.values()] if each.unusable is None else [each.unusable]
    ranges = {(one.start_offset, one.end_offset + 1) for one in damaged}
    return sum(end - start for start, end in ranges)


def register_index_cache(meters: Meters, cache: IndexCache) -> None:
    """Register the local size of the index cache. Kafka has no such gauge."""
    place = ("tidelog.remote", "RemoteIndexCache")
    meters.gauge(Name(*place, "SizeBytes"), lambda: [Sample((), cache.bytes)])
    meters.gauge(Name(*place, "Segments"), lambda: [Sample((), len(cache))])


def register_passed_over(meters: Meters, topic: TopicBasedMetadata) -> None:
    """Register how many records of the metadata topic were ignored, because they are unreadable or
    make an illegal transition. Kafka has no such gauges."""
    place = ("tidelog.remote", "RemoteLogMetadata")
    meters.gauge(Name(*place, "UnreadableRecords"), lambda: [Sample((), topic.unreadable)])
    meters.gauge(Name(*place, "IllegalRecords"), lambda: [Sample((), topic.illegal)])


def register_quota(meters: Meters, kind: str, quota: RateQuota, clock: Clock) -> None:
    """Register the rate and the waits of a quota; `kind` is "copy" or "fetch" (KIP-956)."""

    def register(group: str, name: str, value_of: Callable[[float], float]) -> None:
        read = Name("kafka.server", group, name)
        meters.gauge(read, lambda: [Sample((), value_of(clock.monotonic()))])

    times_ms, throttled = quota.throttle_times_ms, f"remote-{kind}-throttle-time"
    register(f"RLM{kind.capitalize()}", "byte-rate", quota.rate)
    register("RemoteLogManager", f"{throttled}-avg", lambda now_s: times_ms(now_s)[0])
    register("RemoteLogManager", f"{throttled}-max", lambda now_s: times_ms(now_s)[1])


def _samples(
    partitions: Iterable[TieredPartition], value_of: Callable[[TieredPartition], int]
) -> list[Sample]:
    """Sum up by topic; only leaders count."""
    values: dict[str, int] = {}
    for each in partitions:
        if each.leads:
            topic = each.partition.topic
            values[topic] = values.get(topic, 0) + value_of(each)
    total = Sample((), sum(values.values()))
    return [total, *(Sample((("topic", topic),), value) for topic, value in values.items())]


def _remote(metadata: RemoteLogMetadata, each: TieredPartition) -> tuple[int, int]:
    """Return the number of known segments, and the bytes of those that the store should have."""
    try:
        segments = list(metadata.segments(each.partition))
    except RemoteStorageNotReady:
        return 0, 0
    there = (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED)
    return len(segments), sum(one.size for one in segments if one.state in there)
