"""Which sealed segments a leader copies to the remote tier, and what goes with each (KIP-405).

Pure decisions: `tidelog.remote.tasks` asks on the loop and gives the frozen answers to a worker.
KIP-1241's lag may hold segments back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition

__all__ = ["CopyCandidate", "CopyLag", "LocalSegment", "candidates", "eligible"]


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
        self, partition: TopicIdPartition, segment_id: bytes, broker_id: int, now_ms: int
    ) -> RemoteSegment:
        """The event COPY_SEGMENT_STARTED for a try of this copy, of a new `segment_id`."""
        raise NotImplementedError


def candidates(log: Log, copied_offset: int, now_ms: int) -> list[CopyCandidate]:
    """The segments to copy now, in order. `copied_offset` is the last one that is remote, -1 none.

    The first may overlap what is remote. Index files and producer snapshots named by them are the
    log's own: a flush must have written them, and a deletion may take them away meanwhile.
    """
    raise NotImplementedError


def eligible(
    segments: Sequence[LocalSegment],
    from_offset: int,
    last_stable_offset: int,
    lag: CopyLag,
    now_ms: int,
) -> list[LocalSegment]:
    """Those of all local segments, oldest first, that `candidates` takes."""
    raise NotImplementedError
