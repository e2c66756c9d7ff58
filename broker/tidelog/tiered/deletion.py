"""The remote part of what is deleted or disabled: deleted topics, and topics that leave the remote
tier (KIP-405, KIP-950).

A deleted partition is marked first, in the metadata topic, so that it is known whatever happens
next; its leader then deletes at once. What it cannot delete the remover finishes, on the broker
that leads the metadata partition. Every step may be done again by anybody; all is keyed by topic
id, so that a new topic of the same name is another one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.tiered.metadata.client import TopicError
from tidelog.tiered.shared import delete_data, delete_segment, name_of, until_ready
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteStorageError,
    RemoteStorageNotReady,
    SegmentState,
)
from tidelog_storage.remote.metadata_records import decode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.tiered.metadata.client import MetadataTopicClient
    from tidelog.tiered.metadata.topic import TopicBasedMetadata
    from tidelog.tiered.shared import Shared
    from tidelog.tiered.tasks import Pace, TieredPartition
    from tidelog_storage.remote.api import TopicIdPartition

__all__ = ["Deletions", "PartitionRemover"]

log = logging.getLogger("tidelog.tiered.deletion")

READY_S_MAX = 120.0
FIRST_RUN_S_MAX = 600.0


class Deletions:
    """What is being deleted by this broker; a partition at most once at a time."""

    def __init__(
        self,
        shared: Shared,
        pace: Pace,
        topic: TopicBasedMetadata | None,
        has_topic: Callable[[str], bool],
    ) -> None:
        """`topic` is the metadata if it is our own; `has_topic` whether tiered partitions of a
        topic are here."""
        self._has_topic = has_topic
        self._shared = shared
        self._pace = pace
        self._topic = topic
        self._under_way: dict[TopicIdPartition, asyncio.Task[None]] = {}
        self._purging: set[TopicIdPartition] = set()
        self._ending: set[asyncio.Task[None]] = set()  # purges at their last segment

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._under_way

    def topic_deleted(self, tiered: TieredPartition) -> None:
        """The topic is gone: delete its remote part if this broker led it, else see that somebody
        marks it."""
        self._begin(tiered.partition, self._delete if tiered.leads else self._see_to_it, tiered)

    def orphaned(self, partition: TopicIdPartition) -> None:
        """A topic was deleted while this broker, which knew its remote part, was away."""
        self._begin(partition, self._delete)

    def vanished(self, partition: TopicIdPartition) -> None:
        """A topic was deleted of whose replicas none is alive: see that it is marked."""
        self._begin(partition, self._see_to_it)

    def disabled(self, tiered: TieredPartition, *, delete: bool) -> None:
        """The topic has left the remote tier (KIP-950); its leader deletes its remote part."""
        self._begin(tiered.partition, self._purge if delete else _nothing, tiered)

    def led_elsewhere(self, partition: TopicIdPartition) -> None:
        """Another broker leads, and purges what is to be purged. Who went on here would not hear,
        without a replica, that the partition is back, and delete what is copied then."""
        if partition in self._under_way:
            self._begin(partition, _nothing)

    def left(self, tiered: TieredPartition) -> None:
        """The replica has left this broker: what is under way may end."""
        self._begin(tiered.partition, _nothing, tiered)

    def enabled(self, partition: TopicIdPartition) -> asyncio.Task[None] | None:
        """The partition comes back to the remote tier: what is left of it expires.

        A purge ends with the segment that it is at. Until it has (then the answer is its task)
        nobody may count on what is remote: the word that it goes may be on its way.
        """
        task = self._under_way.pop(partition, None)
        if task is None:
            return None
        if partition not in self._purging:
            task.cancel()
            return None
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def _begin(
        self,
        partition: TopicIdPartition,
        work: Callable[[TopicIdPartition], Awaitable[None]],
        tiered: TieredPartition | None = None,
    ) -> None:
        """Do it when nothing else is done to the partition, and no copy is under way any more."""
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
        """Tell nothing more of a topic of which nothing is here."""
        is_here = self._has_topic(topic) or any(each.topic == topic for each in self._under_way)
        if not is_here:
            self._shared.meters.forget_topic(topic)

    async def _run(
        self,
        partition: TopicIdPartition,
        work: Callable[[TopicIdPartition], Awaitable[None]],
        tiered: TieredPartition | None,
        earlier: asyncio.Task[None] | None,
    ) -> None:
        """Afterwards let go of the metadata; not if this is given up, because somebody else wants
        the partition or the broker stops: its file must then tell of it."""
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
            self._shared.metadata.on_stop_partitions({partition})

    async def stop(self) -> None:
        """End now; what is marked is deleted by somebody later."""
        tasks = [*self._under_way.values(), *self._ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- deleted topics ----------------------------------------------------------------------------

    async def _delete(self, partition: TopicIdPartition) -> None:
        await until_ready(self._shared.metadata, partition)
        await self._mark(partition)
        if self._topic is None:
            await self._delete_until_done(partition)
            return
        await self._begin_with_one(partition)
        await self.remove(partition)

    async def _delete_until_done(self, partition: TopicIdPartition) -> None:
        """The mark is in somebody else's metadata, where no remover looks for it: who does not end
        it here leaves its objects in the store for good."""

        async def delete() -> None:
            await self._begin_with_one(partition)
            await self.remove(partition)

        await self._retried(partition, delete)

    async def _retried(
        self,
        partition: TopicIdPartition,
        step: Callable[[], Awaitable[object]],
        ends_with: tuple[type[Exception], ...] = (RemoteStorageNotReady,),
    ) -> None:
        """Do it again until it succeeds, or the metadata know nothing of the partition."""
        failures = 0
        while True:
            try:
                await step()
            except ends_with:
                raise
            except Exception as error:  # noqa: BLE001 - of any plug-in
                failures += 1
                log.warning("remote part of %s: %s", name_of(partition), error)
                await asyncio.sleep(self._pace.pause_s(failures, self._shared.rng))
            else:
                return

    async def _begin_with_one(self, partition: TopicIdPartition) -> None:
        """Delete the data of one segment, for which the mark stands, before anything else is told:
        a store that is away is asked once, and not for each segment, and no event tells of a
        deletion that has not begun."""
        shared = self._shared
        segment = next(iter(shared.metadata.segments(partition)), None)
        if segment is None:
            return
        await delete_data(shared, segment, shared.pools.expiration)
        if await self._put(partition, PartitionDeleteState.DELETE_PARTITION_STARTED):
            for state in (
                SegmentState.DELETE_SEGMENT_STARTED,
                SegmentState.DELETE_SEGMENT_FINISHED,
            ):
                await shared.metadata.update(shared.change(segment, state))
            shared.forget((segment.segment_id,))

    async def _see_to_it(self, partition: TopicIdPartition) -> None:
        """The leader may have died: mark what it has left if nobody else does."""
        if self._topic is None:
            return
        await until_ready(self._shared.metadata, partition)
        await asyncio.sleep(self._pace.interval_s)
        left = self._shared.metadata.segments(partition)
        if self._topic.delete_state(partition) is None and list(left):
            await self._mark(partition)

    async def _mark(self, partition: TopicIdPartition) -> None:
        """Until it is marked: from then on it can't be forgotten. The metadata may be read anew
        meanwhile, and not be ready."""
        marked = PartitionDeleteState.DELETE_PARTITION_MARKED
        await self._retried(partition, lambda: self._put(partition, marked), ends_with=())

    async def _put(self, partition: TopicIdPartition, state: PartitionDeleteState) -> bool:
        """Publish a state, unless it is so; False if the partition is past it."""
        if self._topic is not None and self._topic.delete_state(partition) is state:
            return True
        shared = self._shared
        event = PartitionDelete(partition, shared.node_id, shared.clock.wall_ms(), state)
        try:
            await shared.metadata.put_partition_delete(event)
        except ValueError as error:
            log.info("%s: %s", name_of(partition), error)
            return False
        return True

    async def remove(self, partition: TopicIdPartition) -> None:
        """Delete all remote segments of a marked partition; raises if some could not be.

        Also of one whose deletion is finished: a leader that was cut off, and had not heard of it,
        may have begun another copy behind that.
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
        for segment in list(self._shared.metadata.segments(partition)):
            if not await may_go_on():
                return
            try:
                await delete_segment(self._shared, segment, self._shared.pools.expiration)
            except RemoteStorageNotReady:
                raise
            except Exception as error:  # noqa: BLE001 - of any plug-in: the others are tried too
                failure = error
        if failure is not None:
            raise failure

    # -- disabled topics ---------------------------------------------------------------------------

    async def _purge(self, partition: TopicIdPartition) -> None:
        """Until nothing is left: the topic goes on, so nobody else would do it."""
        await until_ready(self._shared.metadata, partition)
        self._purging.add(partition)
        try:
            await self._purge_all(partition)
        finally:
            self._purging.discard(partition)

    async def _purge_all(self, partition: TopicIdPartition) -> None:
        """Each segment is known before the controllers are asked, and they say that this broker
        still leads and still purges: so a successor has neither copied it nor counts on it. Who was
        deposed and asked nobody, as in Kafka, would delete what is the successor's."""
        shared, task = self._shared, asyncio.current_task()

        def is_wanted() -> bool:
            return self._under_way.get(partition) is task

        async def may_go_on() -> bool:
            if is_wanted():
                await shared.catch_up()
            return is_wanted()

        while is_wanted() and list(shared.metadata.segments(partition)):
            await self._retried(partition, lambda: self._delete_all(partition, may_go_on))


async def _nothing(_: TopicIdPartition) -> None:
    """Only let go of it."""


async def _always() -> bool:
    """Whoever deletes it: it is to go."""
    return True


class PartitionRemover:
    """Finishes, for the metadata partitions led here, what others have marked and left.

    `_scanned` is up to where each of them was looked through.
    """

    def __init__(
        self,
        shared: Shared,
        client: MetadataTopicClient,
        metadata: TopicBasedMetadata,
        deletions: Deletions,
        interval_s: float,
    ) -> None:
        """`interval_s`: remote.partition.remover.task.interval.ms."""
        self._shared = shared
        self._client = client
        self._metadata = metadata
        self._deletions = deletions
        self._interval_s = interval_s
        self._scanned: dict[int, int] = {}
        self._topic_id = b""  # of the topic that was looked through
        self._unfinished: dict[int, dict[TopicIdPartition, None]] = {}

    async def run(self) -> None:
        """Look and finish, again and again."""
        await asyncio.sleep(min(self._interval_s, FIRST_RUN_S_MAX))
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("looking for remote parts of deleted topics failed")
            await asyncio.sleep(self._interval_s)

    async def look(self) -> None:
        """One pass over the metadata partitions led here."""
        if self._client.topic_id != self._topic_id:  # somebody has deleted the one before
            self._topic_id = self._client.topic_id
            self._scanned.clear()
        for index in range(self._client.partition_count):
            if self._client.leader_of(index) != self._shared.node_id:
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
        """Note what is marked and not finished."""
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
        except Exception as error:  # noqa: BLE001 - of any plug-in: it is tried again
            log.warning("remote part of %s: %s", name_of(partition), error)
        finally:
            self._metadata.on_stop_partitions({partition})
            self._deletions.forget_counts(partition.topic)


def _partition_delete(value: bytes | None) -> PartitionDelete | None:
    """The event, if the record is of this kind."""
    if value is None:
        return None
    try:
        event = decode(value)
    except (ProtocolError, ValueError):
        return None
    return event if isinstance(event, PartitionDelete) else None
