"""What is known of one partition's remote segments: states, and look-ups by (epoch, offset).

Fed in order with the events of `__remote_log_metadata`, by the topic's reader alone (on the
broker's loop); look-ups never block. KIP-405; Kafka: RemoteLogMetadataCache. Unlike Kafka's, it
keeps *all* finished segments of an epoch, so that a dead branch hides no live segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog_storage.remote.api import (
        PartitionDelete,
        PartitionDeleteState,
        RemoteSegment,
        SegmentUpdate,
        TopicIdPartition,
    )

__all__ = ["PartitionMetadata", "PartitionSnapshot"]


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """All of a `PartitionMetadata`, to be written to a file and restored."""

    partition: TopicIdPartition
    segments: tuple[RemoteSegment, ...]  # in the order they were finished, then the others
    highest_offsets: tuple[tuple[int, int], ...]  # (epoch, highest offset ever finished)
    delete_state: PartitionDeleteState | None


class PartitionMetadata:
    """The remote segments of one partition that are not forgotten."""

    partition: TopicIdPartition
    delete_state: PartitionDeleteState | None

    def __init__(self, partition: TopicIdPartition) -> None:
        raise NotImplementedError

    # -- events ------------------------------------------------------------------------------------

    def apply(self, event: RemoteSegment | SegmentUpdate | PartitionDelete) -> bool:
        """Take an event of this partition; False if it is illegal and was dropped.

        An update of a segment that is not known (any more) is illegal. A repeat is legal.
        """
        raise NotImplementedError

    # -- look-ups ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many segments there are, in whatever state."""
        raise NotImplementedError

    def segment(self, segment_id: bytes) -> RemoteSegment | None:
        """One segment in whatever state; None if it never was or is forgotten."""
        raise NotImplementedError

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The finished segment whose part of `epoch` holds the offset: of several the one whose
        part reaches furthest, of those the one finished last."""
        raise NotImplementedError

    def highest_offset(self, epoch: int) -> int | None:
        """The largest offset of the epoch that was ever finished, even if deleted since."""
        raise NotImplementedError

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """All that have this epoch (None: all), in whatever state, by start offset."""
        raise NotImplementedError

    def size(self, epoch: int) -> int:
        """Bytes of `segments(epoch)` (KIP-852)."""
        raise NotImplementedError

    def next_segment_with_txn_index(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The first of the segments that `segment_for` answers for this offset of the epoch and the
        later ones, whose transaction index is not empty (KIP-1058)."""
        raise NotImplementedError

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> PartitionSnapshot:
        """All of it, frozen."""
        raise NotImplementedError

    @classmethod
    def restore(cls, snapshot: PartitionSnapshot) -> PartitionMetadata:
        """The opposite of `snapshot`."""
        raise NotImplementedError
