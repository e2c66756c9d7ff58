"""What a follower needs of the remote tier to begin at the leader's local log start (KIP-405): the
leader epochs and producers behind the remote segment that ends there.

The other part, in `replication/aux_state.py`, knows which segment that is and what becomes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.aux_state import AuxState
from tidelog.tiered.shared import name_of
from tidelog_storage.checkpoints import CheckpointError, parse_epochs
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.lineage import aux_segment

if TYPE_CHECKING:
    from tidelog.tiered.shared import Shared
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage, TopicIdPartition

__all__ = ["fetch_aux_state"]


async def fetch_aux_state(
    shared: Shared, partition: TopicIdPartition, epoch: int, offset: int
) -> AuxState:
    """Behind the segment that holds this offset of this epoch; RemoteStorageError.

    RemoteResourceNotFound also while the metadata is late: the segment may be there a moment later.
    """
    shared.meters.mark_topic("BuildRemoteLogAuxStateRequestsPerSec", partition.topic)
    try:
        # Not `segment_for`, whose answer reaches furthest: it may end on another branch, and what
        # the follower begins with would have to be cut again, without the producers' state there.
        segment = aux_segment(shared.metadata.segments(partition, epoch), epoch, offset)
        if segment is None:
            raise RemoteResourceNotFound(
                f"no remote segment of {name_of(partition)} is known to hold {offset}"
                f" of leader epoch {epoch}"
            )
        checkpoint, snapshot = await shared.pools.follower.run(
            _fetch_indexes, shared.storage, segment
        )
        next_offset = segment.end_offset + 1
        if not checkpoint.endswith(b"\n"):  # else 101 may have been cut to 10, and looks whole
            raise CheckpointError("the last line is not whole")
        epochs = [entry for entry in parse_epochs(checkpoint) if entry.start_offset < next_offset]
        if segment.epochs[-1][0] not in [entry.epoch for entry in epochs]:
            raise CheckpointError("the segment's own epoch is not there")
    except CheckpointError as error:
        shared.meters.mark_topic("BuildRemoteLogAuxStateErrorsPerSec", partition.topic)
        raise RemoteStorageError(f"leader epochs of {name_of(partition)}: {error}") from error
    except Exception:
        shared.meters.mark_topic("BuildRemoteLogAuxStateErrorsPerSec", partition.topic)
        raise
    return AuxState(next_offset, epochs, snapshot)


def _fetch_indexes(storage: RemoteStorage, segment: RemoteSegment) -> tuple[bytes, bytes]:
    """On a worker thread."""
    with storage.fetch_index(segment, IndexKind.LEADER_EPOCH) as stream:
        checkpoint = stream.read()
    with storage.fetch_index(segment, IndexKind.PRODUCER_SNAPSHOT) as stream:
        return checkpoint, stream.read()
