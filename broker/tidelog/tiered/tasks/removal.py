"""Finishes the deletions of remote partitions that their leaders left (KIP-405).

Runs with tidelog's own metadata topic only: it finds the marked partitions there. It also begins
the deletion of topics that were deleted while this broker was away or all replicas were dead.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.tiered.metadata.client import TopicError
from tidelog.tiered.segments import name_of, until_ready
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.remote.api import PartitionDelete, PartitionDeleteState, TopicIdPartition
from tidelog_storage.remote.metadata_records import decode, metadata_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cluster.metadata.image import ClusterImage, TopicImage
    from tidelog.seams import Timeline
    from tidelog.tiered.metadata.topic import TopicBasedMetadata
    from tidelog.tiered.tasks.deletion import Deletions

__all__ = ["PartitionRemover"]

log = logging.getLogger("tidelog.tiered.deletion")

READY_S_MAX = 120.0
FIRST_RUN_S_MAX = 600.0


class PartitionRemover:
    """Works on the metadata partitions led here; `_scanned` is the next offset of each to scan."""

    def __init__(
        self,
        node_id: int,
        metadata: TopicBasedMetadata,
        deletions: Deletions,
        work: Timeline,
        interval_s: float,
    ) -> None:
        """`interval_s`: remote.partition.remover.task.interval.ms."""
        self._node_id = node_id
        self._client = metadata.client
        self._metadata = metadata
        self._deletions = deletions
        self._time = work
        self._interval_s = interval_s
        self._scanned: dict[int, int] = {}
        self._topic_id = b""  # of the scanned topic
        self._unfinished: dict[int, dict[TopicIdPartition, None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, image: ClusterImage) -> None:
        """Delete orphans of topics that the first image does not have, and begin to scan."""
        loop = asyncio.get_running_loop()
        orphans = self._find_orphans(frozenset(image.topic_names))
        self._tasks = [
            loop.create_task(orphans, name="remote orphans"),
            loop.create_task(self._run(), name="remote partition remover"),
        ]

    async def stop(self) -> None:
        """Cancel the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- topics that were deleted without their leader ---------------------------------------------

    async def _find_orphans(self, known_topic_ids: frozenset[bytes]) -> None:
        """Delete the remote parts of topics that were deleted while this broker was away."""
        files = self._metadata.files
        try:
            orphans = await files.partitions(known_topic_ids)
        except OSError as error:
            log.warning("%s: %s", files.folder, error)
            return
        for partition in orphans:
            self._metadata.on_leadership_changes(set(), {partition})
            self._deletions.orphaned(partition)

    def on_deleted(
        self, topics: Iterable[TopicImage], old: ClusterImage, new: ClusterImage
    ) -> None:
        """Ensure that deleted topics without live replicas are marked: the replicas may never come
        back. The leader of the metadata partition does it."""
        count = self._client.partition_count
        for topic in topics if count else ():
            if old.topic_config(topic.name).get("remote.storage.enable") != "true":
                continue
            for state in topic.partitions:
                name = TopicIdPartition(UUID(bytes=topic.topic_id), topic.name, state.partition)
                index = metadata_partition(name.topic_id, state.partition, count)
                is_mine = self._client.leader_of(index) == self._node_id
                if is_mine and not any(new.is_alive(replica) for replica in state.replicas):
                    self._metadata.on_leadership_changes(set(), {name})
                    self._deletions.vanished(name)

    # -- marked partitions -------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._time.sleep(min(self._interval_s, FIRST_RUN_S_MAX))
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("looking for remote parts of deleted topics failed")
            await self._time.sleep(self._interval_s)

    async def look(self) -> None:
        """Scan the metadata partitions led here, and finish the marked partitions found."""
        if self._client.topic_id != self._topic_id:  # the topic was deleted and created again
            self._topic_id = self._client.topic_id
            self._scanned.clear()
        for index in range(self._client.partition_count):
            if self._client.leader_of(index) != self._node_id:
                continue
            try:
                await self._scan(index)
            except TopicError as error:
                log.info("%s", error)
                self._scanned.pop(index, None)
                continue
            for partition in list(self._unfinished.get(index, ())):
                await self._finish(partition)

    async def _scan(self, index: int) -> None:
        """Collect the partitions that are marked and not finished."""
        unfinished = self._unfinished.setdefault(index, {})
        while True:
            offset = self._scanned.get(index, 0)
            chunk = self._client.read_here(index, offset)
            if chunk is None or chunk.next_offset == offset:
                return
            for _, value in chunk.records:
                event = _partition_delete(value)
                if event is None:
                    continue
                if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                    unfinished.pop(event.topic_id_partition, None)
                else:
                    unfinished[event.topic_id_partition] = None
            self._scanned[index] = chunk.next_offset
            await asyncio.sleep(0)

    async def _finish(self, partition: TopicIdPartition) -> None:
        if partition in self._deletions or self._metadata.is_tracked(partition):
            return
        self._metadata.on_leadership_changes(set(), {partition})
        try:
            async with asyncio.timeout(READY_S_MAX):
                await until_ready(self._metadata, partition)
            await self._deletions.remove(partition)
        except TimeoutError:
            log.info("the metadata of %s is not ready", name_of(partition))
        except Exception as error:  # noqa: BLE001 - of any plug-in; the next pass tries again
            log.warning("remote part of %s: %s", name_of(partition), error)
        finally:
            self._metadata.on_stop_partitions({partition})
            self._deletions.forget_counts(partition.topic)


def _partition_delete(value: bytes | None) -> PartitionDelete | None:
    """Decode a record; None if it is not a partition's deletion."""
    if value is None:
        return None
    try:
        event = decode(value)
    except (ProtocolError, ValueError):
        return None
    return event if isinstance(event, PartitionDelete) else None
