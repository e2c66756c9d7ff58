"""Which remote segments a leader deletes, and where that leaves the log start (KIP-405).

Pure. `tidelog.tiered.tasks.expiration` carries the plan out: it raises the log start first, so that
reads do not reach a segment that is being deleted, then deletes one by one, in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.remote.api import SegmentState
from tidelog_storage.remote.lineage import Lineage, without_empty

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from uuid import UUID

    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["ExpiryPlan", "LogExtent", "RemoteRetention", "plan"]


class RemoteRetention(NamedTuple):
    """The limits of a partition's whole log; -1 unlimited."""

    retention_ms: int = -1
    retention_bytes: int = -1

    @classmethod
    def of(cls, config: LogConfig) -> RemoteRetention:
        """Return a topic's limits. An empty `cleanup.policy` keeps the remote part for ever, as
        Kafka documents it; Kafka's code deletes all the same."""
        return cls(config.retention_ms, config.retention_bytes) if config.deletes else cls()


class LogExtent(NamedTuple):
    """The leader's log. `local_only_bytes`: size of the local segments that are not remote."""

    epochs: Sequence[tuple[int, int]]
    log_start_offset: int
    log_end_offset: int
    local_only_bytes: int

    @classmethod
    def of(cls, log: Log) -> LogExtent:
        """Return a log's extent now."""
        highest = log.highest_remote_offset
        local = sum([one.size for one in log.segments if one.base_offset > highest])
        return cls(log.epochs.entries, log.log_start_offset, log.log_end_offset, local)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one pass does. Raise the log start to `new_log_start` first.

    `size_bytes` is the size compared with `retention.bytes`, 0 if that is unlimited.
    """

    new_log_start: int
    deletions: tuple[RemoteSegment, ...]
    size_bytes: int = 0


def plan(
    segments: Iterable[RemoteSegment],
    log: LogExtent,
    retention: RemoteRetention,
    *,
    now_ms: int,
    copying: Collection[UUID] = (),
) -> ExpiryPlan:
    """Select the remote segments to delete from `PartitionMetadata.segments()`; `copying` has the
    ids of copies in progress on this broker."""
    lineage = without_empty(log.epochs)
    if not lineage:
        return ExpiryPlan(log.log_start_offset, ())
    listed = list(segments)
    walk = _Walk(log._replace(epochs=lineage), retention, now_ms)
    walk.set_excess(listed)
    size_bytes = walk.excess + retention.retention_bytes if retention.retention_bytes >= 0 else 0
    walk.run(listed, copying)
    first_epoch = lineage[0][0]
    for segment in listed:
        # Delete unreferenced segments: the log has no records of any of their epochs. Also repeat
        # failed deletions that the walk does not reach, above the first segment that is kept.
        is_going = segment.state is SegmentState.DELETE_SEGMENT_STARTED
        goes = is_going or segment.epochs[-1][0] < first_epoch
        if goes and segment.segment_id not in copying:
            walk.deletions.setdefault(segment.segment_id, segment)
    return ExpiryPlan(walk.new_log_start, tuple(walk.deletions.values()), size_bytes)


class _Walk:
    """Goes through the remote segments, oldest first, until one is kept."""

    def __init__(self, log: LogExtent, retention: RemoteRetention, now_ms: int) -> None:
        self.epochs = log.epochs
        self.lineage = Lineage(log.epochs, log.log_end_offset)
        self.local_only_bytes = log.local_only_bytes
        self.log_start_offset = self.new_log_start = log.log_start_offset
        self.excess = 0  # bytes above the limit
        self.oldest_ms: int | None = None  # segments with only older records are deleted
        if retention.retention_ms >= 0:
            self.oldest_ms = now_ms - retention.retention_ms
        self.retention_bytes = retention.retention_bytes
        self.deletions: dict[UUID, RemoteSegment] = {}

    def set_excess(self, segments: Iterable[RemoteSegment]) -> None:
        """Count the bytes above the limit, without the segments below the log start, which this
        pass deletes anyway."""
        if self.retention_bytes >= 0:
            self.excess = self.local_only_bytes - self.retention_bytes
            self.excess += sum(
                [
                    segment.size
                    for segment in segments
                    if segment.state is SegmentState.COPY_SEGMENT_FINISHED
                    and not self.is_below_log_start(segment)
                    and self.lineage.has(segment)
                ]
            )

    def run(self, segments: Iterable[RemoteSegment], copying: Collection[UUID]) -> None:
        """Fill `deletions` and `new_log_start`."""
        for segment in self.by_epoch(segments):
            if segment.segment_id in copying:
                return
            if segment.state is SegmentState.DELETE_SEGMENT_FINISHED:
                continue
            # DELETE_SEGMENT_STARTED: an attempt that failed.
            if segment.state is SegmentState.DELETE_SEGMENT_STARTED or self.is_below_log_start(
                segment
            ):
                self.deletions[segment.segment_id] = segment
            elif self.lineage.has(segment):
                if not self.breaks_a_limit(segment):
                    return
                self.excess = max(self.excess - segment.size, 0)
                self.new_log_start = max(self.new_log_start, segment.end_offset + 1)
                self.deletions[segment.segment_id] = segment

    def by_epoch(self, segments: Iterable[RemoteSegment]) -> Iterator[RemoteSegment]:
        """Yield the segments of the lineage's epochs, each once, by epoch and start offset."""
        places: dict[int, list[RemoteSegment]] = {epoch: [] for epoch, _ in self.epochs}
        for segment in sorted(segments, key=lambda segment: segment.start_offset):
            for epoch, _ in segment.epochs:
                if epoch in places:
                    places[epoch].append(segment)
                    break
        for found in places.values():
            yield from found

    def is_below_log_start(self, segment: RemoteSegment) -> bool:
        """Return whether the segment is unreadable, below the log start. False for a segment of a
        later epoch, which may be of a branch that comes back."""
        return (
            segment.epochs[-1][0] <= self.epochs[0][0]
            and segment.end_offset < self.log_start_offset
        )

    def breaks_a_limit(self, segment: RemoteSegment) -> bool:
        """Return whether a segment is too old, or no larger than the excess."""
        if self.oldest_ms is not None and segment.max_timestamp < self.oldest_ms:
            return True
        return self.excess > 0 and segment.size <= self.excess
