"""A stream's offsets and splits: each micro-batch is a range of offsets, as of the Kafka source.

What a batch's range has in the tier is read from there, whether that is history or what was copied
meanwhile; the rest comes from the brokers. So a stream crosses from the tier to the brokers without
a border of its own, and its checkpoint alone decides what was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_pipeline.history.client import EARLIEST, LATEST
from tidelog_pipeline.history.history import connected, plan_ranges
from tidelog_pipeline.history.loss import lost
from tidelog_pipeline.history.offsets import partitions_of, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog_pipeline.history.history import Plan
    from tidelog_pipeline.history.options import HistoryOptions

    TopicPartition = tuple[str, int]

__all__ = ["StreamOffsets", "StreamPlanner"]

StreamOffsets = dict[str, dict[str, int]]
"""Next offset by topic and partition, as in a checkpoint of the Kafka source."""


class StreamPlanner:
    """Offsets and splits of one stream. ClusterError, OSError, ValueError, DataLossError."""

    def __init__(self, options: HistoryOptions) -> None:
        self._options = options

    def initial(self) -> StreamOffsets:
        """Where a stream without a checkpoint begins."""
        with connected(self._options) as client:
            partitions = partitions_of(client, self._options.subscription)
            return _as_json(starts_of(client, self._options, partitions))

    def latest(self) -> StreamOffsets:
        """The end of every partition now."""
        with connected(self._options) as client:
            partitions = partitions_of(client, self._options.subscription)
            return _as_json(client.offsets(dict.fromkeys(partitions, LATEST)))

    def plan(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> Plan:
        """The splits of one micro-batch; partitions that are new begin at their earliest offset
        (KafkaOffsetReader.getOffsetRangesFromResolvedOffsets)."""
        starts, ends = _by_partition(start), _by_partition(end)
        fails = self._options.fails_on_data_loss
        _report_gone(starts.keys() - ends.keys(), fails=fails)
        with connected(self._options) as client:
            ranges = {}
            for each, until in ends.items():
                first = starts.get(each)
                if first is None:
                    first = client.offset(*each, EARLIEST)
                    if first:
                        name = _name(each)
                        lost(
                            f"Added partition {name} starts from {first} instead of 0", fails=fails
                        )
                if until < first:
                    name = _name(each)
                    lost(
                        f"Partition {name}'s offset was changed from {first} to {until}",
                        fails=fails,
                    )
                elif until > first:
                    ranges[each] = (first, until)
            return plan_ranges(client, self._options, ranges)


def _report_gone(gone: Iterable[TopicPartition], *, fails: bool) -> None:
    listed = sorted(gone)
    if listed:
        lost(f"{', '.join(map(_name, listed))} are gone", fails=fails)


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _as_json(offsets: Mapping[TopicPartition, int]) -> StreamOffsets:
    found: StreamOffsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): offset
        for topic, listed in offsets.items()
        for partition, offset in listed.items()
    }
