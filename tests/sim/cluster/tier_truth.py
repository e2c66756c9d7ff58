"""What `__remote_log_metadata` says, by the simulation's own reading of it.

Whatever is below a high watermark of it anywhere has happened; an illegal event has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.cluster.metadata.image import REMOTE_LOG_METADATA_TOPIC
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.remote.api import (
    SEGMENT_TRANSITIONS,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
)
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from sim.history import Key

STARTED, FINISHED = SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
GOING, GONE = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED
READ_BYTES = 1 << 20


class Change(NamedTuple):
    """A segment has come to be in a state."""

    segment: RemoteSegment
    state: SegmentState


class Part(NamedTuple):
    """Offsets of one leader epoch in a segment."""

    epoch: int
    start: int
    end: int  # inclusive
    segment: RemoteSegment


def parts_of(segment: RemoteSegment) -> Iterator[Part]:
    """What a segment has of each epoch."""
    after = [start for _, start in segment.epochs[1:]] + [segment.end_offset + 1]
    for (epoch, start), behind in zip(segment.epochs, after, strict=True):
        if start < behind:
            yield Part(epoch, start, behind - 1, segment)


class TierTruth:
    """Segments of all partitions, by topic id and partition, and the states they are in."""

    def __init__(self) -> None:
        self.segments: dict[Key, dict[UUID, RemoteSegment]] = {}
        self.states: dict[UUID, SegmentState] = {}
        self.marked: set[Key] = set()  # of deleted topics
        self._next: dict[int, int] = {}  # offsets, by metadata partition

    def next_of(self, partition: Any) -> int:
        """Up to where a partition of the metadata topic was read."""
        return self._next.get(partition.topic_partition.partition, 0)

    def refresh(self, partition: Any) -> list[Change]:
        """Read on in the log of this replica of the metadata topic; what has changed."""
        changes: list[Change] = []
        index, log = partition.topic_partition.partition, partition.log
        while (offset := self._next.get(index, 0)) < log.high_watermark:
            read = log.read(offset, READ_BYTES, upper_bound=log.high_watermark, min_one_batch=True)
            data = b"".join(bytes(part) for part in read.parts)
            for position, header in iter_batches(data):
                for record in () if header.is_control else iter_records(data, position):
                    if record.offset >= offset:
                        changes += self._apply(record.value or b"")
            if read.next_offset <= offset:
                break
            self._next[index] = read.next_offset
        return changes

    def _apply(self, value: bytes) -> Iterator[Change]:
        event = decode(value)
        topic_id, _, index = event.topic_id_partition
        key = (topic_id.bytes, index)
        if isinstance(event, PartitionDelete):
            self.marked.add(key)
            return
        known = self.segments.setdefault(key, {})
        before = self.states.get(event.segment_id)
        if event.state not in SEGMENT_TRANSITIONS[before] or event.state is before:
            return
        if isinstance(event, RemoteSegment):
            known[event.segment_id] = event
        self.states[event.segment_id] = event.state
        yield Change(known[event.segment_id], event.state)

    def of(self, key: Key, *states: SegmentState) -> list[RemoteSegment]:
        """Segments of a partition that are in one of these states."""
        found = self.segments.get(key, {}).values()
        return [each for each in found if self.states[each.segment_id] in states]

    def hole(self, key: Key, epochs: Any, first: int, after: int) -> int | None:
        """The first offset of [first, after) that no finished segment has of the epoch that it is
        of; None if there is none. `epochs` is the log's `LeaderEpochCache`."""
        parts = [part for each in self.of(key, FINISHED) for part in parts_of(each)]
        entries = [tuple(entry) for entry in epochs.entries]
        offset = first
        while offset < after:
            epoch, end = _epoch_at(entries, offset)
            ends = [p.end for p in parts if p.epoch == epoch and p.start <= offset <= p.end]
            if not ends:
                return offset
            offset = min(max(ends) + 1, end)
        return None


def is_metadata(partition: Any) -> bool:
    """Whether it is a replica of the metadata topic."""
    return bool(partition.topic_partition.topic == REMOTE_LOG_METADATA_TOPIC)


def _epoch_at(entries: list[tuple[int, ...]], offset: int) -> tuple[int, int]:
    """The leader epoch of an offset, and where it ends."""
    epoch, end = -1, 1 << 62
    for entry_epoch, start in entries:
        if start <= offset:
            epoch = entry_epoch
        else:
            end = start
            break
    return epoch, end
