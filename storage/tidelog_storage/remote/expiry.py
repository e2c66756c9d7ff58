"""Which remote segments a leader deletes, and where that leaves the log start (KIP-405).

Pure: `tidelog.tiered.tasks` gives frozen values and carries the plan out: it raises the log start
first, so that no reader is sent to what is going, then deletes one by one, in order.
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
    from tidelog_storage.remote.api import RemoteSegment

__all__ = ["ExpiryPlan", "RemoteRetention", "local_only_bytes", "plan"]


class RemoteRetention(NamedTuple):
    """The limits of a partition's whole log; -1 unlimited."""

    retention_ms: int = -1
    retention_bytes: int = -1

    @classmethod
    def of(cls, config: LogConfig) -> RemoteRetention:
        """A topic's limits. An empty `cleanup.policy` keeps the remote part for ever, as Kafka
        documents it (its code deletes all the same)."""
        return cls(config.retention_ms, config.retention_bytes) if config.deletes else cls()


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What one pass does. `new_log_start`: at least the one given; raise the log's to it first.

    `size_bytes` is what counted against `retention.bytes`, 0 if that is unlimited.
    """

    new_log_start: int
    deletions: tuple[RemoteSegment, ...]
    size_bytes: int = 0


def plan(
    segments: Iterable[RemoteSegment],
    epochs: Sequence[tuple[int, int]],
    *,
    log_start_offset: int,
    log_end_offset: int,
    local_only_bytes: int,
    retention: RemoteRetention,
    now_ms: int,
    copying: Collection[UUID] = (),
) -> ExpiryPlan:
    """The remote segments to delete. `segments`: all of `PartitionMetadata.segments()`; `epochs`:
    the leader's; `copying`: ids of copies that run right now on this broker."""
    lineage = without_empty(epochs)
    if not lineage:
        return ExpiryPlan(log_start_offset, ())
    listed = list(segments)
    walk = _Walk(lineage, log_start_offset, log_end_offset, retention, now_ms)
    walk.set_excess(listed, local_only_bytes)
    size_bytes = walk.excess + retention.retention_bytes if retention.retention_bytes >= 0 else 0
    walk.run(listed, copying)
    first_epoch = lineage[0][0]
    for segment in listed:
        # Unreferenced: only of epochs that the log has no records of any more, of whatever branch.
        # Or a deletion that failed, which no walk may reach: of a copy above all that is kept.
        is_going = segment.state is SegmentState.DELETE_SEGMENT_STARTED
        goes = is_going or segment.epochs[-1][0] < first_epoch
        if goes and segment.segment_id not in copying:
            walk.deletions.setdefault(segment.segment_id, segment)
    return ExpiryPlan(walk.new_log_start, tuple(walk.deletions.values()), size_bytes)


def local_only_bytes(segments: Iterable[tuple[int, int]], highest_remote_offset: int) -> int:
    """Bytes of the local segments, given as (base offset, size), of which nothing is remote."""
    return sum([size for base, size in segments if base > highest_remote_offset])


class _Walk:
    """Goes through the remote segments, oldest first, until one is to be kept."""

    def __init__(
        self,
        lineage: Sequence[tuple[int, int]],
        log_start_offset: int,
        log_end_offset: int,
        retention: RemoteRetention,
        now_ms: int,
    ) -> None:
        self.epochs = lineage
        self.lineage = Lineage(lineage, log_end_offset)
        self.log_start_offset = log_start_offset
        self.new_log_start = log_start_offset
        self.excess = 0  # bytes above the limit
        self.oldest_ms: int | None = None  # segments with nothing as new as this go
        if retention.retention_ms >= 0:
            self.oldest_ms = now_ms - retention.retention_ms
        self.retention_bytes = retention.retention_bytes
        self.deletions: dict[UUID, RemoteSegment] = {}

    def set_excess(self, segments: Iterable[RemoteSegment], local_only_bytes: int) -> None:
        """Count what is not below the log start, of which this pass frees itself anyway."""
        if self.retention_bytes >= 0:
            self.excess = local_only_bytes - self.retention_bytes
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
            # DELETE_SEGMENT_STARTED: a try that failed.
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
        """The segments of the lineage's epochs, each once, epoch by epoch, by start offset."""
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
        """Whether it is too old, or what is too much is as large as it."""
        if self.oldest_ms is not None and segment.max_timestamp < self.oldest_ms:
            return True
        return self.excess > 0 and segment.size <= self.excess
