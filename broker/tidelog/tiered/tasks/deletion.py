"""Deletes the remote part of deleted topics, and of topics that leave the remote tier (KIP-405,
KIP-950).

A deleted partition is first marked in the metadata topic, so that the deletion survives a crash;
then its leader deletes. The remover (`removal.py`) finishes the rest, on the broker that leads the
metadata partition. Any broker may repeat every step. All is keyed by topic id, so that a new topic
of the same name is not affected.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog.tiered.segments import name_of, until_ready
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteStorageError,
    RemoteStorageNotReady,
    SegmentState,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.seams import Runtime
    from tidelog.tiered.pools import Pool
    from tidelog.tiered.segments import RemoteSegments
    from tidelog.tiered.tasks.partition import TieredPartition
    from tidelog.tiered.tasks.repeated import Pace
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = ["Deletions"]

log = logging.getLogger("tidelog.tiered.deletion")


class Deletions:
    """The deletions of this broker, one at a time for a partition."""

    def __init__(
        self,
        segments: RemoteSegments,
        pool: Pool,
        *,
        pace: Pace,
        runtime: Runtime,
        has_topic: Callable[[str], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`has_topic` returns whether tiered partitions of a topic are here. `catch_up` returns
        when this broker's image has all that is committed now; PeerError or StorageError if no
        controller answers."""
        self._segments = segments
        self._metadata = segments.metadata
        self._pool = pool
        self._pace = pace
        self._rng, self._time = runtime.rng, runtime.work
        self._has_topic = has_topic
        self._catch_up = catch_up
        metadata = segments.metadata
        self._topic = metadata if isinstance(metadata, TopicBasedMetadata) else None
        self._under_way: dict[TopicIdPartition, asyncio.Task[None]] = {}
        self._purging: set[TopicIdPartition] = set()
        self._ending: dict[asyncio.Task[None], None] = {}  # purges at their last segment

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._under_way

    def topic_deleted(self, tiered: TieredPartition) -> None:
        """Delete the remote part of a deleted topic if this broker led it; otherwise ensure that it
        is marked."""
        self._begin(tiered.partition, self._delete if tiered.leads else self._ensure_marked, tiered)

    def orphaned(self, partition: TopicIdPartition) -> None:
        """Delete the remote part of a topic that was deleted while this broker was away."""
        self._begin(partition, self._delete)

    def vanished(self, partition: TopicIdPartition) -> None:
        """Ensure that the partition of a deleted topic without live replicas is marked."""
        self._begin(partition, self._ensure_marked)

    def disabled(self, tiered: TieredPartition, *, delete: bool) -> None:
        """End the tasks of a topic that left the remote tier (KIP-950); its leader deletes the
        remote part."""
        self._begin(tiered.partition, self._purge if delete else _nothing, tiered)

    def led_elsewhere(self, partition: TopicIdPartition) -> None:
        """Stop a purge: the new leader does it. Without a replica, this broker would not learn that
        the partition is tiered again, and would delete new copies."""
        if partition in self._under_way:
            self._begin(partition, _nothing)

    def left(self, tiered: TieredPartition) -> None:
        """End the tasks of a replica that left this broker."""
        self._begin(tiered.partition, _nothing, tiered)

    def enabled(self, partition: TopicIdPartition) -> asyncio.Task[None] | None:
        """Stop the purge of a partition that is tiered again; its remaining segments expire.

        A purge ends after its current segment, whose deletion may be published already. Returns its
        task then: until it ends, no task may rely on the remote segments.
        """
        task = self._under_way.pop(partition, None)
        if task is None:
            return None
        if partition not in self._purging:
            task.cancel()
            return None
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)
        return task

    def _begin(
        self,
        partition: TopicIdPartition,
        work: Callable[[TopicIdPartition], Awaitable[None]],
        tiered: TieredPartition | None = None,
    ) -> None:
        """Run work after the partition's earlier deletion and after its copies have ended."""
        task = asyncio.get_running_loop().create_task(
            self._run(partition, work, tiered, self._under_way.get(partition)),
            name=f"remote deletion {name_of(partition)}",
        )
        self._under_way[partition] = task

        def done(ended: asyncio.Task[None]) -> None:
            if self._under_way.get(partition) is ended:
                del self._under_way[partition]
                self.forget_counts(partition.topic)

        task.add_done_callback(done)

    def forget_counts(self, topic: str) -> None:
        """Drop the metrics of a topic that has nothing left on this broker."""
        is_here = self._has_topic(topic) or any(each.topic == topic for each in self._under_way)
        if not is_here:
            self._segments.meters.forget_topic(topic)

    async def _run(
        self,
        partition: TopicIdPartition,
        work: Callable[[TopicIdPartition], Awaitable[None]],
        tiered: TieredPartition | None,
        earlier: asyncio.Task[None] | None,
    ) -> None:
        """Run work, then stop following the metadata. A cancelled deletion keeps it: its file must
        show the next start that the partition exists."""
        if earlier is not None:
            await asyncio.wait([earlier])
        if tiered is not None:
            await tiered.end()
        try:
            await work(partition)
        except RemoteStorageError as error:
            log.warning("remote part of %s: %s", name_of(partition), error)
        except Exception:
            log.exception("remote part of %s", name_of(partition))
        if self._under_way.get(partition) is asyncio.current_task():
            self._metadata.on_stop_partitions({partition})

    async def stop(self) -> None:
        """Cancel all deletions; a remover finishes the marked ones."""
        tasks = [*self._under_way.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- deleted topics ----------------------------------------------------------------------------

    async def _delete(self, partition: TopicIdPartition) -> None:
        async def delete() -> None:
            await self._begin_with_one(partition)
            await self.remove(partition)

        await until_ready(self._metadata, partition)
        await self._mark(partition)
        if self._topic is None:  # no remover looks for marks in a plug-in's metadata
            await self._retried(partition, delete)
        else:
            await delete()

    async def _retried(
        self,
        partition: TopicIdPartition,
        step: Callable[[], Awaitable[object]],
        ends_with: tuple[type[Exception], ...] = (RemoteStorageNotReady,),
    ) -> None:
        """Repeat a step until it succeeds, or the metadata does not know the partition."""
        failures = 0
        while True:
            try:
                await step()
            except ends_with:
                raise
            except Exception as error:  # noqa: BLE001 - of any plug-in
                failures += 1
                log.warning("remote part of %s: %s", name_of(partition), error)
                await self._time.sleep(self._pace.pause_s(failures, self._rng))
            else:
                return

    async def _begin_with_one(self, partition: TopicIdPartition) -> None:
        """Delete the objects of one segment before any event is published. So an unavailable store
        gets one call and not one for each segment, and no event shows a deletion that has not
        begun."""
        segments = self._segments
        segment = next(iter(self._metadata.segments(partition)), None)
        if segment is None:
            return
        await segments.delete_data(segment, self._pool)
        if await self._put(partition, PartitionDeleteState.DELETE_PARTITION_STARTED):
            for state in (
                SegmentState.DELETE_SEGMENT_STARTED,
                SegmentState.DELETE_SEGMENT_FINISHED,
            ):
                await segments.publish(segment, state)
            segments.forget((segment.segment_id,))

    async def _ensure_marked(self, partition: TopicIdPartition) -> None:
        """Mark a partition that has remote segments if its leader does not: it may have died."""
        if self._topic is None:
            return
        await until_ready(self._metadata, partition)
        await self._time.sleep(self._pace.interval_s)
        left = self._metadata.segments(partition)
        if self._topic.delete_state(partition) is None and list(left):
            await self._mark(partition)

    async def _mark(self, partition: TopicIdPartition) -> None:
        """Mark the partition, so that its deletion is finished even after a crash. Retried also
        while the metadata is not ready: it may be read again from its start."""
        marked = PartitionDeleteState.DELETE_PARTITION_MARKED
        await self._retried(partition, lambda: self._put(partition, marked), ends_with=())

    async def _put(self, partition: TopicIdPartition, state: PartitionDeleteState) -> bool:
        """Publish a state unless it is the current one; False if the partition is past it."""
        if self._topic is not None and self._topic.delete_state(partition) is state:
            return True
        segments = self._segments
        event = PartitionDelete(partition, segments.node_id, segments.clock.wall_ms(), state)
        try:
            await self._metadata.put_partition_delete(event)
        except ValueError as error:
            log.info("%s: %s", name_of(partition), error)
            return False
        return True

    async def remove(self, partition: TopicIdPartition) -> None:
        """Delete all remote segments of a marked partition; raises the last failure.

        Works after DELETE_PARTITION_FINISHED too: an isolated leader that did not know of the
        deletion may have begun another copy.
        """
        goes_on = await self._put(partition, PartitionDeleteState.DELETE_PARTITION_STARTED)
        await self._delete_all(partition, _always)
        if goes_on:
            await self._put(partition, PartitionDeleteState.DELETE_PARTITION_FINISHED)
            log.info("the remote part of %s is deleted", name_of(partition))

    async def _delete_all(
        self, partition: TopicIdPartition, may_go_on: Callable[[], Awaitable[bool]]
    ) -> None:
        failure: Exception | None = None
        for segment in list(self._metadata.segments(partition)):
            if not await may_go_on():
                return
            try:
                await self._segments.delete(segment, self._pool)
            except RemoteStorageNotReady:
                raise
            except Exception as error:  # noqa: BLE001 - of any plug-in; the others are deleted
                failure = error
        if failure is not None:
            raise failure

    # -- disabled topics ---------------------------------------------------------------------------

    async def _purge(self, partition: TopicIdPartition) -> None:
        """Purge until nothing is left. The topic still exists, so no remover would do it."""
        await until_ready(self._metadata, partition)
        self._purging.add(partition)
        try:
            await self._purge_all(partition)
        finally:
            self._purging.discard(partition)

    async def _purge_all(self, partition: TopicIdPartition) -> None:
        """Delete segment by segment. The list of segments is older than the controllers' answer
        that this broker still leads and purges, so no successor has copied or uses them. Kafka does
        not ask, and a deposed leader deletes its successor's segments."""
        task = asyncio.current_task()

        def is_wanted() -> bool:
            return self._under_way.get(partition) is task

        async def may_go_on() -> bool:
            if is_wanted():
                await self._catch_up()
            return is_wanted()

        while is_wanted() and list(self._metadata.segments(partition)):
            await self._retried(partition, lambda: self._delete_all(partition, may_go_on))


async def _nothing(_: TopicIdPartition) -> None:
    """Do nothing."""


async def _always() -> bool:
    """Allow every deletion."""
    return True
