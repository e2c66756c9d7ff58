"""Fetches the state with which a follower begins at the leader's local log start (KIP-405): leader
epochs and producers at the end of the remote segment before it.

`replication/aux_state.py` finds the offset and applies the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.aux_state import AuxState
from tidelog.tiered.segments import name_of
from tidelog_storage.checkpoints import CheckpointError, parse_epochs
from tidelog_storage.producer_snapshot import CorruptSnapshotError, parse_snapshot
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.lineage import aux_segment

if TYPE_CHECKING:
    from tidelog.tiered.pools import Pool
    from tidelog.tiered.segments import RemoteSegments
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage, TopicIdPartition

__all__ = ["DamagedSegmentError", "fetch_aux_state"]

_DAMAGES = (
    CheckpointError,
    CorruptRemoteDataError,
    CorruptSnapshotError,
    RemoteResourceNotFound,
)


class DamagedSegmentError(RemoteStorageError):
    """The state at the end of `segment` is damaged, or not there."""

    def __init__(self, segment: RemoteSegment, why: Exception) -> None:
        super().__init__(f"remote segment {segment.start_offset}..{segment.end_offset}: {why}")
        self.segment = segment


async def fetch_aux_state(
    segments: RemoteSegments, pool: Pool, partition: TopicIdPartition, epoch: int, offset: int
) -> AuxState:
    """Fetch the state at the end of the segment with this offset of this epoch. RemoteStorageError.

    RemoteResourceNotFound also while the metadata is late: a later attempt may find the segment.
    DamagedSegmentError if the store has something else than was copied.
    """
    meters = segments.meters
    meters.mark_topic("BuildRemoteLogAuxStateRequestsPerSec", partition.topic)
    try:
        # `segment_for` returns the segment that reaches furthest, which may end on another branch.
        # The follower would have to truncate, and have no producer state at that offset.
        segment = aux_segment(segments.metadata.segments(partition, epoch), epoch, offset)
        if segment is None:
            raise RemoteResourceNotFound(
                f"no remote segment of {name_of(partition)} is known to hold {offset}"
                f" of leader epoch {epoch}"
            )
        try:
            state: AuxState = await pool.run(_state_at_end, segments.storage, segment)
        except _DAMAGES as error:
            if segment not in segments.metadata.segments(partition, epoch):
                raise  # it was deleted meanwhile
            raise DamagedSegmentError(segment, error) from error
        return state
    except Exception:
        meters.mark_topic("BuildRemoteLogAuxStateErrorsPerSec", partition.topic)
        raise


def _state_at_end(storage: RemoteStorage, segment: RemoteSegment) -> AuxState:
    """Runs on a worker thread."""
    with storage.fetch_index(segment, IndexKind.LEADER_EPOCH) as stream:
        checkpoint = stream.read()
    with storage.fetch_index(segment, IndexKind.PRODUCER_SNAPSHOT) as stream:
        snapshot = stream.read()
    if not checkpoint.endswith(b"\n"):  # a truncated 101 could read as 10
        raise CheckpointError("the last line of the leader epochs is not whole")
    next_offset = segment.end_offset + 1
    epochs = [entry for entry in parse_epochs(checkpoint) if entry.start_offset < next_offset]
    if segment.epochs[-1][0] not in [entry.epoch for entry in epochs]:
        raise CheckpointError("the leader epochs lack the segment's own")
    parse_snapshot(snapshot)
    return AuxState(next_offset, epochs, snapshot)
