"""What the tasks of all partitions share, and the one way in which a remote segment is deleted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog_storage.remote.api import (
    RemoteResourceNotFound,
    RetriableRemoteStorageError,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.lineage import copied_up_to, kept_up_to

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tidelog.metrics.meters import Meters
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Clock, Executor, Rng
    from tidelog.tiered.pools import Pool, Pools
    from tidelog.tiered.quotas import RateQuota
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import (
        RemoteLogMetadata,
        RemoteSegment,
        RemoteStorage,
    )
    from tidelog_storage.seams import FileSystem

__all__ = [
    "Shared",
    "copied_offset",
    "delete_data",
    "delete_segment",
    "id_of",
    "name_of",
    "until_ready",
]

log = logging.getLogger("tidelog.tiered")

READY_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The tier of one broker, for its tasks. `executor` is for local fsync, never for the store;
    `files` are the local ones.

    `forget` drops what is cached of segments that are gone. `catch_up` returns when this broker's
    image has all that is committed when it is called; PeerError or StorageError if nobody knows.
    """

    node_id: int
    clock: Clock
    rng: Rng
    executor: Executor
    files: FileSystem
    replicas: ReplicaManager
    metadata: RemoteLogMetadata
    storage: RemoteStorage
    pools: Pools
    copy_quota: RateQuota
    meters: Meters
    custom_metadata_bytes_max: int
    forget: Callable[[Iterable[UUID]], None]
    catch_up: Callable[[], Awaitable[None]]

    def change(self, segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
        """The event of a segment's new state, by this broker and now.

        With what the store keeps of the segment: in Kafka's brokers an event without it takes it
        away.
        """
        return SegmentUpdate(
            segment.topic_id_partition,
            segment.segment_id,
            self.node_id,
            self.clock.wall_ms(),
            state,
            segment.custom_metadata,
        )


def id_of(partition: Partition) -> TopicIdPartition:
    """As this room knows it: ids are UUIDs here, and 16 bytes everywhere else."""
    return TopicIdPartition(UUID(bytes=partition.topic_id), *partition.topic_partition)


def name_of(partition: TopicIdPartition) -> str:
    """As logs show it."""
    return f"{partition.topic}-{partition.partition}"


async def until_ready(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> None:
    """Wait until the metadata of a partition is ready."""
    while not metadata.is_ready(partition):  # noqa: ASYNC110 - plug-ins can only be asked
        await asyncio.sleep(READY_POLL_S)


async def delete_segment(shared: Shared, segment: RemoteSegment, pool: Pool) -> None:
    """DELETE_SEGMENT_STARTED, the store's part, DELETE_SEGMENT_FINISHED: again from the beginning
    after a failure, which is raised."""
    metadata = shared.metadata
    try:
        await metadata.update(shared.change(segment, SegmentState.DELETE_SEGMENT_STARTED))
        await delete_data(shared, segment, pool)
        await metadata.update(shared.change(segment, SegmentState.DELETE_SEGMENT_FINISHED))
    except RemoteResourceNotFound:
        log.info("segment %s is gone already", segment.segment_id.hex)
    shared.forget((segment.segment_id,))


async def delete_data(shared: Shared, segment: RemoteSegment, pool: Pool) -> None:
    """The store's part. As in Kafka, what may pass by itself is no failure to count."""
    topic = segment.topic
    shared.meters.mark_topic("RemoteDeleteRequestsPerSec", topic)
    try:
        await pool.run(shared.storage.delete_segment, segment)
    except RemoteResourceNotFound:
        return  # no error for our stores; whoever's raises it has nothing left to delete either
    except RetriableRemoteStorageError:
        raise
    except Exception:
        shared.meters.mark_topic("RemoteDeleteErrorsPerSec", topic)
        raise


def copied_offset(metadata: RemoteLogMetadata, partition: TopicIdPartition, held: Log) -> int:
    """Up to where a log is copied and all that it has locally still is; -1 for nowhere."""
    epochs = held.epochs.entries
    copied = copied_up_to(
        epochs, held.log_end_offset, lambda epoch: metadata.highest_offset(partition, epoch)
    )
    return kept_up_to(
        copied.offset,
        epochs,
        held.local_log_start_offset,
        held.log_end_offset,
        lambda epoch, offset: metadata.segment_for(partition, epoch, offset),
    )
