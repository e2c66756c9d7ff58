"""What is known of one partition's remote segments: states, and look-ups by (epoch, offset).

Fed in order with the events of `__remote_log_metadata`, by the topic's reader alone (on the
broker's loop); look-ups never block. KIP-405; Kafka: RemoteLogMetadataCache. Unlike Kafka's, it
keeps *all* finished segments of an epoch, so that a dead branch hides no live segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import (
    PARTITION_TRANSITIONS,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    is_legal,
)
from tidelog_storage.remote.lineage import epoch_parts

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog_storage.remote.api import PartitionDeleteState, SegmentUpdate, TopicIdPartition

__all__ = ["PartitionMetadata", "PartitionSnapshot"]

_by_start = attrgetter("start_offset")


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """All of a `PartitionMetadata`, to be written to a file and restored."""

    partition: TopicIdPartition
    segments: tuple[RemoteSegment, ...]  # in the order they were begun
    finished: tuple[int, ...]  # slots in `segments` of the finished ones, as they were finished
    highest_offsets: tuple[tuple[int, int], ...]  # (epoch, highest offset ever finished)
    delete_state: PartitionDeleteState | None


class _Part(NamedTuple):
    """What a finished segment has of one epoch."""

    end_offset: int  # inclusive; first, because the part that reaches furthest is the greatest
    number: int  # rises with every segment finished
    start_offset: int
    segment_id: UUID


class _EpochParts:
    """The finished parts of one epoch, by start offset.

    `furthest[i]` is the greatest of `parts[: i + 1]`: of those that begin at or below an offset the
    one that reaches furthest. If that does not hold the offset, none does.
    """

    __slots__ = ("furthest", "parts", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.parts: list[_Part] = []
        self.furthest: list[_Part] = []

    def add(self, part: _Part) -> None:
        slot = bisect_right(self.starts, part.start_offset)
        self.starts.insert(slot, part.start_offset)
        self.parts.insert(slot, part)
        self.furthest.insert(slot, max(part, self.furthest[slot - 1]) if slot else part)
        for later in range(slot + 1, len(self.parts)):
            if self.furthest[later] > part:
                break
            self.furthest[later] = part

    def remove(self, start_offset: int, segment_id: UUID) -> None:
        slot = bisect_left(self.starts, start_offset)
        while self.parts[slot].segment_id != segment_id:
            slot += 1
        del self.starts[slot], self.parts[slot], self.furthest[slot]
        for later in range(slot, len(self.parts)):
            part = self.parts[later]
            greatest = max(part, self.furthest[later - 1]) if later else part
            if self.furthest[later] is greatest:
                break
            self.furthest[later] = greatest

    def at(self, offset: int) -> _Part | None:
        slot = bisect_right(self.starts, offset)
        if slot and self.furthest[slot - 1].end_offset >= offset:
            return self.furthest[slot - 1]
        return None

    def after(self, offset: int) -> _Part | None:
        """As `at`, for the first offset above the given one that some part holds."""
        slot = bisect_right(self.starts, offset)
        return self.at(self.starts[slot]) if slot < len(self.starts) else None


class PartitionMetadata:
    """The remote segments of one partition that are not forgotten.

    Invariant: `_parts` has a part for every epoch with records of every finished segment, and no
    other; `_listed` has every segment under each of its epochs.
    """

    __slots__ = (
        "_finished",
        "_highest_offsets",
        "_listed",
        "_number",
        "_parts",
        "_segments",
        "delete_state",
        "partition",
    )

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.delete_state: PartitionDeleteState | None = None
        self._segments: dict[UUID, RemoteSegment] = {}  # by id, in the order they were begun
        self._listed: dict[int, dict[UUID, None]] = {}  # by epoch
        self._parts: dict[int, _EpochParts] = {}  # by epoch
        self._finished: dict[UUID, None] = {}  # ids in the order they were finished
        self._highest_offsets: dict[int, int] = {}  # by epoch; never goes back
        self._number = 0

    # -- events ------------------------------------------------------------------------------------

    def apply(self, event: RemoteSegment | SegmentUpdate | PartitionDelete) -> bool:
        """Take an event of this partition; False if it is illegal and was dropped.

        An update of a segment that is not known (any more) is illegal. A repeat is legal.
        """
        assert event.topic_id_partition.topic_id == self.partition.topic_id
        if isinstance(event, RemoteSegment):
            return self._begin(event)
        if isinstance(event, PartitionDelete):
            if event.state not in PARTITION_TRANSITIONS[self.delete_state]:
                return False
            self.delete_state = event.state
            return True
        return self._update(event)

    def _begin(self, segment: RemoteSegment) -> bool:
        state = SegmentState.COPY_SEGMENT_STARTED
        known = self._segments.get(segment.segment_id)
        if segment.state is not state or not is_legal(known.state if known else None, state):
            return False
        if known is None:
            self._list(segment)
        elif segment.epochs == known.epochs:
            self._segments[segment.segment_id] = segment
        else:
            self._forget(known)
            self._list(segment)
        return True

    def _update(self, update: SegmentUpdate) -> bool:
        known = self._segments.get(update.segment_id)
        state = update.state
        if known is None or state is SegmentState.COPY_SEGMENT_STARTED:
            return False
        if not is_legal(known.state, state):
            return False
        self._segments[update.segment_id] = segment = known.updated(update)
        if state is SegmentState.COPY_SEGMENT_FINISHED:
            if known.state is not state:
                self._finish(segment)
        elif known.state is SegmentState.COPY_SEGMENT_FINISHED:
            self._hide(segment)
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            self._forget(segment)
        return True

    def _list(self, segment: RemoteSegment) -> None:
        self._segments[segment.segment_id] = segment
        for epoch, _ in segment.epochs:
            self._listed.setdefault(epoch, {})[segment.segment_id] = None

    def _forget(self, segment: RemoteSegment) -> None:
        del self._segments[segment.segment_id]
        for epoch, _ in segment.epochs:
            listed = self._listed[epoch]
            del listed[segment.segment_id]
            if not listed:
                del self._listed[epoch]

    def _finish(self, segment: RemoteSegment) -> None:
        """Readers may have it."""
        segment_id = segment.segment_id
        self._finished[segment_id] = None
        self._number += 1
        for epoch, start, end in epoch_parts(segment):
            if start <= end:
                parts = self._parts.setdefault(epoch, _EpochParts())
                parts.add(_Part(end, self._number, start, segment_id))
                self._highest_offsets[epoch] = max(end, self._highest_offsets.get(epoch, end))

    def _hide(self, segment: RemoteSegment) -> None:
        """No reader is to have it any more."""
        del self._finished[segment.segment_id]
        for epoch, start, end in epoch_parts(segment):
            if start <= end:
                parts = self._parts[epoch]
                parts.remove(start, segment.segment_id)
                if not parts.parts:
                    del self._parts[epoch]

    # -- look-ups ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many segments there are, in whatever state."""
        return len(self._segments)

    def segment(self, segment_id: UUID) -> RemoteSegment | None:
        """One segment in whatever state; None if it never was or is forgotten."""
        return self._segments.get(segment_id)

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The finished segment whose part of `epoch` holds the offset: of several the one whose
        part reaches furthest, of those the one finished last.

        The rest of the segment may be of a dead branch: see `lineage.part_end`.
        """
        parts = self._parts.get(epoch)
        part = None if parts is None else parts.at(offset)
        return None if part is None else self._segments[part.segment_id]

    def highest_offset(self, epoch: int) -> int | None:
        """The largest offset of the epoch that was ever finished, even if deleted since."""
        return self._highest_offsets.get(epoch)

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """All that have this epoch (None: all), in whatever state, by start offset.

        Those of one start offset in the order they were begun.
        """
        segments = self._segments
        if epoch is None:
            return sorted(segments.values(), key=_by_start)
        listed = self._listed.get(epoch, ())
        return sorted([segments[segment_id] for segment_id in listed], key=_by_start)

    def size(self, epoch: int) -> int:
        """Bytes of `segments(epoch)` (KIP-852)."""
        return sum([self._segments[key].size for key in self._listed.get(epoch, ())])

    def next_segment_with_txn_index(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The first segment whose transaction index is not empty, of those that `segment_for`
        answers for this offset of the epoch and the ones after it (KIP-1058).

        Its transaction index may name transactions of a dead branch too.
        """
        parts = self._parts.get(epoch)
        if parts is None:
            return None
        while (part := parts.at(offset) or parts.after(offset)) is not None:
            segment = self._segments[part.segment_id]
            if not segment.txn_index_empty:
                return segment
            offset = part.end_offset + 1
        return None

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> PartitionSnapshot:
        """All of it, frozen."""
        slots = {segment_id: slot for slot, segment_id in enumerate(self._segments)}
        return PartitionSnapshot(
            self.partition,
            tuple(self._segments.values()),
            tuple([slots[segment_id] for segment_id in self._finished]),
            tuple(sorted(self._highest_offsets.items())),
            self.delete_state,
        )

    @classmethod
    def restore(cls, snapshot: PartitionSnapshot) -> PartitionMetadata:
        """The opposite of `snapshot`."""
        metadata = cls(snapshot.partition)
        for segment in snapshot.segments:
            metadata._list(segment)
        for slot in snapshot.finished:
            metadata._finish(snapshot.segments[slot])
        metadata._highest_offsets = dict(snapshot.highest_offsets)
        metadata.delete_state = snapshot.delete_state
        return metadata
