"""Where each partition's read begins and ends, from the options and the brokers' answers
(KafkaOffsetReaderAdmin)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog_pipeline.history.client import EARLIEST, LATEST, HistoryClient, UnknownTopicError
from tidelog_pipeline.history.options import LimitKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog_pipeline.history.options import HistoryOptions, Limit, Subscription

    TopicPartition = tuple[str, int]

__all__ = ["partitions_of", "ranges_of", "starts_of"]


def partitions_of(client: HistoryClient, subscription: Subscription) -> list[TopicPartition]:
    """The partitions that are read, in order. UnknownTopicError for a topic given by name."""
    if subscription.partitions:
        for topic in {topic for topic, _ in subscription.partitions}:
            there = client.partitions_of(topic)[1]
            for name, partition in subscription.partitions:
                if name == topic and partition not in there:
                    raise UnknownTopicError(f"{topic} has no partition {partition}")
        return list(subscription.partitions)
    topics: Iterable[str] = subscription.topics
    if subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        topics = sorted(
            topic.name
            for topic in client.topics(None)
            if not topic.is_internal and pattern.fullmatch(topic.name)
        )
    return [(topic, each) for topic in topics for each in client.partitions_of(topic)[1]]


def ranges_of(
    client: HistoryClient, options: HistoryOptions
) -> dict[TopicPartition, tuple[int, int]]:
    """[start, end) of each partition, without empty ones; ValueError as by the Kafka source."""
    partitions = partitions_of(client, options.subscription)
    starts = starts_of(client, options, partitions)
    ends = _resolved(client, options.ending, partitions, "ending")
    ends = _named(client, ends)
    return {each: (starts[each], ends[each]) for each in partitions if starts[each] < ends[each]}


def starts_of(
    client: HistoryClient, options: HistoryOptions, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The first offset of each partition."""
    found = _resolved(client, options.starting, partitions, "starting")
    is_by_time = options.starting.kind in (LimitKind.TIMESTAMP, LimitKind.TIMESTAMPS)
    if is_by_time and not options.is_latest_unmatched:
        times = _timestamps(options.starting, partitions)
        for (topic, partition), offset in found.items():
            if offset == -1:
                raise ValueError(
                    "No offset matched from request of topic-partition "
                    f"{topic}-{partition} and timestamp {times[topic, partition]}."
                )
    return _named(client, found)


def _resolved(
    client: HistoryClient, limit: Limit, partitions: list[TopicPartition], side: str
) -> dict[TopicPartition, int]:
    """Offsets, -1 for the latest, -2 for the earliest."""
    if limit.kind is LimitKind.EARLIEST:
        return dict.fromkeys(partitions, EARLIEST)
    if limit.kind is LimitKind.LATEST:
        return dict.fromkeys(partitions, LATEST)
    if limit.kind is not LimitKind.TIMESTAMP:
        _check_all_named(dict(limit.by_partition), partitions, limit.kind)
    if limit.kind is LimitKind.OFFSETS:
        for (topic, partition), offset in limit.by_partition:
            if offset < EARLIEST:
                raise ValueError(f"{side}Offsets: {topic}-{partition} has the offset {offset}")
        return dict(limit.by_partition)
    # A negative number would name a special offset.
    times = _timestamps(limit, partitions)
    return client.offsets({each: max(0, time) for each, time in times.items()})


def _timestamps(limit: Limit, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    if limit.kind is LimitKind.TIMESTAMP:
        return dict.fromkeys(partitions, limit.timestamp)
    return dict(limit.by_partition)


def _check_all_named(
    given: Mapping[TopicPartition, int], partitions: list[TopicPartition], kind: LimitKind
) -> None:
    if given.keys() == set(partitions):
        return
    listed = f"Specified: {_names(given)} Assigned: {_names(partitions)}"
    if kind is LimitKind.OFFSETS:
        raise ValueError(
            "If startingOffsets contains specific offsets, you must specify all TopicPartitions.\n"
            f"Use -1 for latest, -2 for earliest, if you don't care.\n{listed}"
        )
    raise ValueError(
        "If starting/endingOffsetsByTimestamp contains specific offsets, you must specify all "
        f"topics. {listed}"
    )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return f"Set({', '.join(f'{topic}-{each}' for topic, each in sorted(partitions))})"


def _named(
    client: HistoryClient, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets, with those of the brokers for the latest and the earliest."""
    return dict(offsets) | client.offsets(
        {each: offset for each, offset in offsets.items() if offset < 0}
    )
