"""The remote segments of one broker: publishes their states, and deletes them (KIP-405)."""

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
    from collections.abc import Callable, Iterable

    from tidelog.metrics.meters import Meters
    from tidelog.replication.partition import Partition
    from tidelog.seams import Clock
    from tidelog.tiered.pools import Pool
    from tidelog_storage.log import Log
    from tidelog_storage.remote.api import RemoteLogMetadata, RemoteSegment, RemoteStorage

__all__ = ["RemoteSegments", "id_of", "name_of", "until_ready"]

log = logging.getLogger("tidelog.tiered")

READY_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegments:
    """Metadata and objects of the remote segments. `forget` drops cached data of deleted ones."""

    node_id: int
    clock: Clock
    metadata: RemoteLogMetadata
    storage: RemoteStorage
    meters: Meters
    forget: Callable[[Iterable[UUID]], None]

    async def publish(self, segment: RemoteSegment, state: SegmentState) -> None:
        """Publish a segment's new state.

        The event has the segment's custom metadata: Kafka's brokers drop them after an event
        without them.
        """
        update = SegmentUpdate(
            segment.topic_id_partition,
            segment.segment_id,
            self.node_id,
            self.clock.wall_ms(),
            state,
            segment.custom_metadata,
        )
        await self.metadata.update(update)

    async def delete(self, segment: RemoteSegment, pool: Pool) -> None:
        """Publish DELETE_SEGMENT_STARTED, delete the objects, publish DELETE_SEGMENT_FINISHED.

        Raises the first failure; the next attempt begins again with the first step.
        """
        try:
            await self.publish(segment, SegmentState.DELETE_SEGMENT_STARTED)
            await self.delete_data(segment, pool)
            await self.publish(segment, SegmentState.DELETE_SEGMENT_FINISHED)
        except RemoteResourceNotFound:
            log.info("segment %s is gone already", segment.segment_id.hex)
        self.forget((segment.segment_id,))

    async def delete_data(self, segment: RemoteSegment, pool: Pool) -> None:
        """Delete a segment's objects. As in Kafka, retriable failures are not counted."""
        self.meters.mark_topic("RemoteDeleteRequestsPerSec", segment.topic)
        try:
            await pool.run(self.storage.delete_segment, segment)
        except RemoteResourceNotFound:
            return  # a plug-in may raise this; nothing is left to delete
        except RetriableRemoteStorageError:
            raise
        except Exception:
            self.meters.mark_topic("RemoteDeleteErrorsPerSec", segment.topic)
            raise

    def copied_offset(self, partition: TopicIdPartition, held: Log) -> int:
        """Return the last offset up to which a log is copied without a gap; -1 for none."""
        metadata, epochs = self.metadata, held.epochs.entries
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


def id_of(partition: Partition) -> TopicIdPartition:
    """Return a replica's id with its topic id as UUID; it is 16 bytes outside of the tier."""
    return TopicIdPartition(UUID(bytes=partition.topic_id), *partition.topic_partition)


def name_of(partition: TopicIdPartition) -> str:
    """Return a partition's name for logs."""
    return f"{partition.topic}-{partition.partition}"


async def until_ready(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> None:
    """Wait until the metadata of a partition is ready."""
    while not metadata.is_ready(partition):  # noqa: ASYNC110 - the plug-in interface has no event
        await asyncio.sleep(READY_POLL_S)
