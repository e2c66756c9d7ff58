"""A user's own metadata manager: one dictionary for all brokers of this process.

remote.log.metadata.manager.class.name = support.memory_metadata:MemoryMetadata
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog_storage.remote.api import RemoteStorageNotReady
from tidelog_storage.remote.metadata_cache import PartitionMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from uuid import UUID

    from tidelog_storage.remote.api import (
        PartitionDelete,
        RemoteSegment,
        SegmentUpdate,
        TopicIdPartition,
    )

NAME = "support.memory_metadata:MemoryMetadata"
_KNOWN: dict[str, dict[tuple[UUID, int], PartitionMetadata]] = {}


class MemoryMetadata:
    """Ready a moment after a partition has come."""

    def configure(self, config: Mapping[str, str]) -> None:
        self.config = dict(config)
        self._all = _KNOWN.setdefault(config["cluster.id"], {})
        self._here: set[tuple[UUID, int]] = set()

    def _of(self, partition: TopicIdPartition) -> PartitionMetadata:
        key = (partition.topic_id, partition.partition)
        if key not in self._here:
            raise RemoteStorageNotReady("not here")
        return self._all.setdefault(key, PartitionMetadata(partition))

    async def add(self, segment: RemoteSegment) -> None:
        await asyncio.sleep(0)
        assert self._of(segment.topic_id_partition).apply(segment)

    async def update(self, update: SegmentUpdate) -> None:
        await asyncio.sleep(0)
        assert self._of(update.topic_id_partition).apply(update)

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        await asyncio.sleep(0)
        assert self._of(event.topic_id_partition).apply(event)

    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        return self._of(partition).segment_for(epoch, offset)

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        return self._of(partition).highest_offset(epoch)

    def segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterable[RemoteSegment]:
        return iter(self._of(partition).segments(epoch))

    def size(self, partition: TopicIdPartition, epoch: int) -> int:
        return self._of(partition).size(epoch)

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        return self._of(partition).next_segment_with_txn_index(epoch, offset)

    def on_leadership_changes(
        self, leaders: AbstractSet[TopicIdPartition], followers: AbstractSet[TopicIdPartition]
    ) -> None:
        for one in leaders | followers:
            key = (one.topic_id, one.partition)
            asyncio.get_running_loop().call_later(0.05, self._here.add, key)

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        self._here -= {(one.topic_id, one.partition) for one in partitions}

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return (partition.topic_id, partition.partition) in self._here

    def close(self) -> None:
        self._here.clear()
