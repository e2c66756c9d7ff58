"""Which sealed segments a leader copies to the remote tier, and what goes with each (KIP-405).

Pure decisions: `tidelog.tiered.tasks` asks on the loop and gives the frozen answers to a worker.
KIP-1241's lag may hold segments back.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.checkpoints import EpochEntry, format_epochs
from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, SegmentState
from tidelog_storage.remote.lineage import clipped
from tidelog_storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = [
    "CopyCandidate",
    "CopyLag",
    "LocalSegment",
    "candidates",
    "eligible",
    "epochs_of",
    "local_copy",
]

_LIKE_LOCAL_RETENTION = -1


class LocalSegment(NamedTuple):
    """A local segment in figures; the last one of a log is its active one."""

    base_offset: int
    end_offset: int  # exclusive: base of the next one, or the log end
    size: int  # of the `.log`, in bytes
    max_timestamp: int  # ms; when it was made, if no record has one


class CopyLag(NamedTuple):
    """How long a segment stays local only (KIP-1241): ms, bytes; 0 not at all, -1 as local
    retention, of which the effective limits are given (-1 unlimited)."""

    copy_lag_ms: int = 0
    copy_lag_bytes: int = -1
    local_retention_ms: int = -1
    local_retention_bytes: int = -1

    @classmethod
    def of(cls, config: LogConfig) -> CopyLag:
        """A topic's."""
        return cls(
            config.remote_copy_lag_ms,
            config.remote_copy_lag_bytes,
            config.effective_local_retention_ms,
            config.effective_local_retention_bytes,
        )

    def is_over(self, segment: LocalSegment, bytes_behind: int, now_ms: int) -> bool:
        """Whether a segment, behind which the log has so many bytes, waits no longer."""
        lag_ms, lag_bytes = self.copy_lag_ms, self.copy_lag_bytes
        if lag_ms == _LIKE_LOCAL_RETENTION:
            lag_ms = self.local_retention_ms
        if lag_bytes == _LIKE_LOCAL_RETENTION:
            lag_bytes = self.local_retention_bytes
        if lag_ms == 0 or lag_bytes == 0:
            return True
        age_ms = now_ms - segment.max_timestamp
        if lag_ms > 0 and (age_ms >= lag_ms or age_ms < 0):  # a time to come is no reason to wait
            return True
        return 0 < lag_bytes <= bytes_behind


@dataclass(frozen=True, slots=True)
class CopyCandidate:
    """A sealed segment to be copied, as it was when it was asked for."""

    start_offset: int
    end_offset: int  # inclusive
    size: int
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]  # clipped to the segment
    txn_index_empty: bool
    files: SegmentFiles  # with the epoch checkpoint, which is not clipped below

    def started(
        self, partition: TopicIdPartition, segment_id: UUID, broker_id: int, now_ms: int
    ) -> RemoteSegment:
        """The event COPY_SEGMENT_STARTED for a try of this copy, of a new `segment_id`."""
        return RemoteSegment(
            topic_id_partition=partition,
            segment_id=segment_id,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            broker_id=broker_id,
            max_timestamp=self.max_timestamp,
            event_timestamp=now_ms,
            epochs=self.epochs,
            size=self.size,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=self.txn_index_empty,
        )


def candidates(log: Log, copied_offset: int, now_ms: int) -> list[CopyCandidate]:
    """The segments to copy now, in order. `copied_offset` is the last one that is remote, -1 none.

    The first may overlap what is remote. Index files and producer snapshots named by them are the
    log's own: a flush must have written them, and a deletion may take them away meanwhile.
    """
    last_stable_offset = log.last_stable_offset
    from_offset = max(copied_offset + 1, log.log_start_offset)
    if copied_offset >= last_stable_offset:
        return []
    held = log.segments.from_floor(from_offset)
    ends = [segment.base_offset for segment in held[1:]] + [log.log_end_offset]
    listed = [
        LocalSegment(segment.base_offset, end, segment.size, segment.retention_timestamp())
        for segment, end in zip(held, ends, strict=True)
    ]
    chosen = eligible(listed, from_offset, last_stable_offset, CopyLag.of(log.config), now_ms)
    return [_candidate(log, segment) for segment in chosen]


def local_copy(log: Log, remote: RemoteSegment) -> SegmentFiles | None:
    """The files of the sealed segment that a remote one was made of; None if they are not here, or
    are known to be damaged."""
    held = log.segments.floor(remote.start_offset)
    following = log.segments.after(remote.start_offset)
    if (
        held is None
        or following is None
        or (held.base_offset, held.size) != (remote.start_offset, remote.size)
        or following.base_offset != remote.end_offset + 1
        or any(damage.base_offset == held.base_offset for damage in log.damages)
    ):
        return None
    log.sealed_files(held)  # makes what a crash has left out
    local = LocalSegment(held.base_offset, following.base_offset, held.size, held.know_timestamps())
    files = _candidate(log, local).files
    return replace(files, leader_epoch_checkpoint=epochs_of(log, remote))


def epochs_of(log: Log, remote: RemoteSegment) -> bytes:
    """The leader epoch checkpoint of a remote segment that is to be copied again.

    The log start may be inside of the segment by now, or behind it: then the log knows nothing of
    the epochs below any more, and the segment's metadata tells.
    """
    entries = log.epochs.entries_in_range(-1, remote.end_offset + 1)
    first_epoch, first_start = entries[0] if entries else (remote.epochs[-1][0] + 1, 0)
    older = [EpochEntry(*entry) for entry in remote.epochs if entry[0] < first_epoch]
    own_start = dict(remote.epochs).get(first_epoch, first_start)
    if own_start < first_start:
        entries = [EpochEntry(first_epoch, own_start), *entries[1:]]
    return format_epochs([*older, *entries])


def _candidate(log: Log, segment: LocalSegment) -> CopyCandidate:
    held = log.segments.floor(segment.base_offset)
    assert held is not None
    transactions = bool(log.transactions_of(held).entries)
    next_base = segment.end_offset
    return CopyCandidate(
        start_offset=segment.base_offset,
        end_offset=next_base - 1,
        size=segment.size,
        max_timestamp=segment.max_timestamp,
        epochs=clipped(log.epochs.entries, segment.base_offset, next_base),
        txn_index_empty=not transactions,
        files=SegmentFiles(
            log=held.path(LOG_SUFFIX),
            offset_index=held.path(INDEX_SUFFIX),
            time_index=held.path(TIME_INDEX_SUFFIX),
            transaction_index=held.path(TRANSACTION_INDEX_SUFFIX) if transactions else None,
            producer_snapshot=log.producers.snapshot_path(next_base),
            leader_epoch_checkpoint=format_epochs(log.epochs.entries_in_range(-1, next_base)),
        ),
    )


def eligible(
    segments: Sequence[LocalSegment],
    from_offset: int,
    last_stable_offset: int,
    lag: CopyLag,
    now_ms: int,
) -> list[LocalSegment]:
    """Those of the local segments, oldest first, that `candidates` takes.

    From the one that holds `from_offset` on, below the last stable offset, never the active one.
    The first that still has to wait ends the walk: copies leave no hole.
    """
    found: list[LocalSegment] = []
    first = bisect_right(segments, from_offset, key=lambda segment: segment.base_offset) - 1
    held = segments[max(first, 0) :]
    bytes_behind = sum([segment.size for segment in held])
    for segment in held[:-1]:
        bytes_behind -= segment.size
        if segment.end_offset > last_stable_offset or not lag.is_over(
            segment, bytes_behind, now_ms
        ):
            break
        found.append(segment)
    return found
