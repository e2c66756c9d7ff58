"""RemoteLogMetadata kept in `__remote_log_metadata` (KIP-405): Kafka's
TopicBasedRemoteLogMetadataManager.

Owns the partitions that this broker follows, how far each has read the topic, and when that is
enough. An event is published with acks=all and counts when this broker's consumer has read it, so
the order of the topic is the order here. A start without the topic creates it. If it is deleted it
is created again, and leaders publish their events again (Kafka loses them with the next restart).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import TYPE_CHECKING

from tidelog.start_error import StartError
from tidelog.tiered.metadata.client import TopicError
from tidelog.tiered.metadata.consumer import MetadataConsumer
from tidelog.tiered.metadata.settings import MetadataSettings, pause_s
from tidelog.tiered.metadata.tracked import Tracked
from tidelog_protocol.errors import ProtocolError
from tidelog_storage.remote.api import (
    PARTITION_TRANSITIONS,
    PartitionDelete,
    RemoteResourceNotFound,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
    is_legal,
)
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import decode, encode, metadata_partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from collections.abc import Set as AbstractSet

    from tidelog.tiered.metadata.client import Chunk, MetadataTopicClient
    from tidelog.tiered.metadata.files import MetadataFiles
    from tidelog_protocol.errors import ErrorCode
    from tidelog_protocol.messages.admin import CreateTopicsRequest
    from tidelog_storage.remote.api import (
        PartitionDeleteState,
        RemoteSegment,
        SegmentUpdate,
        TopicIdPartition,
    )
    from tidelog_storage.remote.metadata_records import MetadataEvent

__all__ = ["TopicBasedMetadata"]

log = logging.getLogger("tidelog.tiered.metadata")

SILENT_S = 3.0  # brokers of a new cluster start one after the other
SAVE_S = 60.0
RETRY_S = 0.1
AGAIN_S = 1.0  # between attempts to create a topic that was deleted
LAST_SAVE_S_MAX = 1.0  # how long a stop waits for the files


class TopicBasedMetadata:
    """`RemoteLogMetadata` of one broker; `unreadable` and `illegal` count ignored records.

    Look-ups work once a partition has caught up with the topic. `is_ready` also requires that a new
    leader has read all events of the previous leader.
    """

    def __init__(
        self,
        client: MetadataTopicClient,
        files: MetadataFiles,
        create_topic: Callable[[CreateTopicsRequest.CreatableTopic], Awaitable[ErrorCode]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_failure` stops the broker, because the topic can't be created or used."""
        self.unreadable = 0
        self.illegal = 0
        self.on_ready: Callable[[TopicIdPartition], None] | None = None
        """Called whenever a partition has caught up."""
        self.client = client
        self.files = files
        self._create_topic = create_topic
        self._on_failure = on_failure
        self._settings = MetadataSettings.of({})
        self._consumer = MetadataConsumer(client, self._took, self._lost)
        self._tracked: dict[TopicIdPartition, Tracked] = {}
        self._by_index: dict[int, dict[TopicIdPartition, Tracked]] = {}
        self._has_new = asyncio.Event()
        self._is_open = False  # the topic is there and has the partitions it should have
        self._main: asyncio.Task[None] | None = None
        self._looking: dict[int, asyncio.Task[None]] = {}  # by metadata partition
        self._restoring: asyncio.Task[None] | None = None  # of a deleted topic
        self._is_to_restore = False
        self._committed: Mapping[int, int] = {}
        self._topic_id = b""  # of the topic that is read

    def configure(self, config: Mapping[str, str]) -> None:
        """Set Kafka's settings of the topic; ValueError names the key that is wrong."""
        self._settings = MetadataSettings.of(config)

    def start(self) -> None:
        """Find or create the topic, then read it for this broker's partitions."""
        assert self._main is None
        loop = asyncio.get_running_loop()
        self._main = loop.create_task(self._run(), name="remote-log-metadata")

    def on_image(self) -> None:
        """Follow the cluster. `on_failure` gets a StartError if the topic is another one."""
        has_topic = bool(self.client.partition_count)
        if has_topic and not self._has_right_count():
            return
        if self._is_open:
            if not has_topic:
                self._restore_topic()
            elif self.client.topic_id != self._topic_id:
                self._outlive_topic()
        self._consumer.wake()

    # -- tracked partitions ------------------------------------------------------------------------

    def on_leadership_changes(
        self, leaders: AbstractSet[TopicIdPartition], followers: AbstractSet[TopicIdPartition]
    ) -> None:
        """Follow the partitions that this broker leads or follows now."""
        for partition in sorted(leaders | followers):
            tracked = self._tracked.get(partition)
            if tracked is None:
                tracked = self._track(partition)
            elif partition in leaders:
                tracked.ask()
                self._look_up(tracked.index)
            tracked.leads = partition in leaders

    def _track(self, partition: TopicIdPartition) -> Tracked:
        count = self._settings.partition_count
        index = metadata_partition(partition.topic_id, partition.partition, count)
        tracked = self._tracked[partition] = Tracked(partition, index)
        self._by_index.setdefault(index, {})[partition] = tracked
        self._has_new.set()
        return tracked

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        """Stop following partitions that left this broker."""
        for partition in partitions:
            tracked = self._tracked.pop(partition, None)
            if tracked is None:
                continue
            del self._by_index[tracked.index][partition]
            if not self._by_index[tracked.index]:
                del self._by_index[tracked.index]
                self._consumer.unassign(tracked.index)
            tracked.fail(_not_ready(partition))

    def is_tracked(self, partition: TopicIdPartition) -> bool:
        """Return whether this broker follows the events of a partition."""
        return partition in self._tracked

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Return whether all events before the partition, or its leadership, came are read."""
        tracked = self._tracked.get(partition)
        return tracked is not None and tracked.is_caught_up

    # -- the topic ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Find or create the topic, follow new partitions, and save from time to time."""
        settings = self._settings
        if not await self._find_topic(pause_s(settings.retry_ms), settings.retry_ms_max / 1000):
            return
        topic_id = self._topic_id = self.client.topic_id
        self._is_open = True
        committed = await self.files.committed(topic_id)
        if topic_id == self._topic_id:
            self._committed = committed
        self._consumer.start()
        while True:
            try:
                async with asyncio.timeout(SAVE_S):
                    await self._begin_new()
            except TimeoutError:
                await self._save()
            except Exception:
                log.exception("the remote log metadata can't follow what is new; it tries again")
                await asyncio.sleep(RETRY_S)

    async def _find_topic(self, pause_s: float, seconds_max: float = math.inf) -> bool:
        """Return when the topic exists; create it if it is missing (Kafka:
        TopicBasedRemoteLogMetadataManager.initializeResources).

        False, after a call of `on_failure`, if it does not exist after `seconds_max`, or has
        another number of partitions.
        """
        loop, name = asyncio.get_running_loop(), self.client.name
        began, is_warned = loop.time(), False
        while not self.client.partition_count:
            brokers, replicas = self.client.broker_count, self._settings.replication_factor
            if brokers < replicas:
                why = (
                    f"remote.log.metadata.topic.replication.factor is {replicas},"
                    f" brokers that are registered: {brokers}"
                )
            else:
                why = (await self._create_topic(self._settings.topic(name))).name
            if self.client.partition_count:
                break
            waited_s = loop.time() - began
            if waited_s >= seconds_max:
                self._on_failure(StartError(f"{name} was not created: {why}"))
                return False
            if waited_s >= SILENT_S and not is_warned:
                is_warned = True
                log.warning("%s is not created yet: %s", name, why)
                if not math.isinf(seconds_max):
                    log.warning("without it the broker stops %g s after its start", seconds_max)
            await asyncio.sleep(pause_s)
        return self._has_right_count()

    def _has_right_count(self) -> bool:
        """Return whether the number of partitions is right; calls `on_failure` if not."""
        count, wanted = self.client.partition_count, self._settings.partition_count
        if count != wanted:
            text = (
                f"{self.client.name} has {count} partitions, and"
                f" remote.log.metadata.topic.num.partitions is {wanted}: this number cannot change"
            )
            self._on_failure(StartError(text))
        return count == wanted

    def _outlive_topic(self) -> None:
        """Begin again with a new topic: the previous one was deleted."""
        log.warning(
            "%s was deleted: it is created again, and leaders publish their events again",
            self.client.name,
        )
        self._topic_id = self.client.topic_id
        self._committed = {}
        for tracked in self._tracked.values():
            tracked.outlive()
        self._consumer.read_again()
        for index in self._by_index:
            self._look_up(index)
        self._restore_topic()

    def _restore_topic(self) -> None:
        """Create a deleted topic again, publish the events that leaders know, and save; now, or
        again after the current run."""
        self._is_to_restore = True
        if self._restoring is None or self._restoring.done():
            loop = asyncio.get_running_loop()
            self._restoring = loop.create_task(
                self._run_restoring(), name="remote-log-metadata-again"
            )

    async def _run_restoring(self) -> None:
        while self._is_to_restore:
            self._is_to_restore = False
            try:
                await self._find_topic(AGAIN_S)
                await self._publish_again()
                await self._save()
                continue
            except TopicError as error:
                log.info("%s", error)
            except Exception:
                log.exception(
                    "%s: events can't be published again; the next attempt follows",
                    self.client.name,
                )
            self._is_to_restore = True
            await asyncio.sleep(RETRY_S)

    async def _publish_again(self) -> None:
        topic_id = self.client.topic_id
        for tracked in [each for each in self._tracked.values() if each.is_unpublished]:
            for event in tracked.events_again(self.client.replicas.node_id):
                await self.client.publish(tracked.index, encode(event))
                if topic_id != self.client.topic_id:
                    return  # the topic was deleted again, which restores it again
            tracked.is_to_publish = False

    async def _begin_new(self) -> None:
        """Read the topic for new partitions, each from where its file ends."""
        while True:
            self._has_new.clear()
            for tracked in [each for each in self._tracked.values() if not each.is_begun]:
                await self._restore(tracked)
                if self._tracked.get(tracked.partition) is tracked:
                    tracked.is_begun = True
                    self._consumer.assign(tracked.index, tracked.next_offset)
                    self._look_up(tracked.index)
            await self._has_new.wait()

    async def _restore(self, tracked: Tracked) -> None:
        topic_id = self._topic_id
        saved = await self.files.load(tracked.partition, topic_id)
        if saved is not None and saved.metadata_partition == tracked.index:
            tracked.cache = PartitionMetadata.restore(saved.snapshot)
            tracked.has_file = True
            if topic_id != self._topic_id:
                return
            tracked.is_older = saved.is_older
            committed = self._committed.get(tracked.index, 0)
            tracked.next_offset = max(saved.next_offset, committed)
            tracked.is_saved = True

    def _look_up(self, index: int) -> None:
        """Find the end of a metadata partition for all partitions that wait for it."""
        if self._is_open and index not in self._looking:
            loop = asyncio.get_running_loop()
            self._looking[index] = loop.create_task(self._find_end(index))

    async def _find_end(self, index: int) -> None:
        while True:
            waiting = [
                (tracked, tracked.asks, tracked.next_offset)
                for tracked in self._by_index.get(index, {}).values()
                if tracked.is_begun and tracked.target is None
            ]
            if not waiting:
                break
            try:
                end_offset = await self.client.end_offset(index)
            except TopicError as error:
                log.debug("%s", error)
                await asyncio.sleep(pause_s(self.client.settings.consumer.retry_backoff_ms))
                continue
            for tracked, asks, next_offset in waiting:
                if tracked.asks != asks:
                    continue
                if next_offset > end_offset:
                    log.warning("the snapshot of %s is ahead of the topic", tracked.partition)
                    tracked.forget()
                    self._consumer.assign(index, 0)
                tracked.target = end_offset
                self._check(tracked)
        del self._looking[index]

    def _check(self, tracked: Tracked) -> None:
        if tracked.is_caught_up:
            tracked.was_ready = True
            if tracked.is_unpublished:
                self._restore_topic()
            if self.on_ready is not None:
                self.on_ready(tracked.partition)

    # -- reading -----------------------------------------------------------------------------------

    def _took(self, index: int, chunk: Chunk) -> None:
        """Apply the next records of a metadata partition."""
        here = self._by_index.get(index, {})
        for offset, value in chunk.records:
            event = self._event(index, offset, value)
            if event is None:
                continue
            tracked = here.get(event.topic_id_partition)
            if tracked is None or not tracked.is_begun or offset < tracked.next_offset:
                continue
            if not (tracked.cache.apply(event) or tracked.is_older or _is_late(event, tracked)):
                self.illegal += 1
                log.info("%s-%d at %d: illegal, %s", self.client.name, index, offset, event)
            tracked.is_saved = False
        for tracked in list(here.values()):
            if tracked.is_begun and tracked.next_offset < chunk.next_offset:
                was_caught_up = tracked.is_caught_up
                tracked.read_until(chunk.next_offset)
                if not was_caught_up:
                    self._check(tracked)

    def _event(self, index: int, offset: int, value: bytes | None) -> MetadataEvent | None:
        try:
            if value is None:
                raise ProtocolError("no value")
            return decode(value)
        except (ProtocolError, ValueError) as error:
            self.unreadable += 1
            log.warning("%s-%d at %d is passed over: %s", self.client.name, index, offset, error)
            return None

    def _lost(self, index: int) -> None:
        """Forget the events of a metadata partition that lost records."""
        for tracked in self._by_index.get(index, {}).values():
            tracked.forget()
        self._look_up(index)

    # -- writing -----------------------------------------------------------------------------------

    async def add(self, segment: RemoteSegment) -> None:
        """Publish a new segment; ValueError unless it is COPY_SEGMENT_STARTED."""
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a new segment is COPY_SEGMENT_STARTED, not {segment.state.name}")
        await self._note(segment.topic_id_partition)
        await self._publish(segment)

    async def _note(self, partition: TopicIdPartition) -> None:
        """Write the partition's file before its first object. If the topic is deleted while this
        broker is down, the file shows at the next start that objects must be deleted."""
        tracked = self._tracked.get(partition)
        if tracked is None or tracked.has_file:
            return
        if not tracked.is_caught_up:
            raise _not_ready(partition)
        try:
            await self.files.note(self._topic_id, tracked.saved())
        except OSError as error:
            raise RetriableRemoteStorageError(f"{self.files.folder}: {error}") from error
        tracked.has_file = True

    async def update(self, update: SegmentUpdate) -> None:
        """Publish a new state; ValueError for an illegal one, RemoteResourceNotFound for a
        segment that is not known."""
        if update.state is SegmentState.COPY_SEGMENT_STARTED:
            raise ValueError("an update is never COPY_SEGMENT_STARTED")
        segment = self._known(update.topic_id_partition).cache.segment(update.segment_id)
        if segment is None:
            raise RemoteResourceNotFound(f"no segment {update.segment_id.hex} is known")
        if not is_legal(segment.state, update.state):
            raise ValueError(f"{segment.state.name} can't become {update.state.name}")
        await self._publish(update)

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        """Publish the state of a deleted partition; ValueError for an illegal one."""
        state = self._known(event.topic_id_partition).cache.delete_state
        if event.state not in PARTITION_TRANSITIONS[state]:
            raise ValueError(f"{state and state.name} can't become {event.state.name}")
        await self._publish(event)

    async def _publish(self, event: MetadataEvent) -> None:
        """Publish an event, and wait until it is read; RetriableRemoteStorageError."""
        partition = event.topic_id_partition
        tracked = self._tracked.get(partition)
        if tracked is None or not self._is_open:
            raise _not_ready(partition)
        topic_id = self._topic_id
        try:
            offset = await self.client.publish(tracked.index, encode(event))
        except TopicError as error:
            raise RetriableRemoteStorageError(str(error)) from error
        if topic_id != self._topic_id:
            raise RetriableRemoteStorageError(f"{self.client.name} was deleted meanwhile")
        if tracked is not self._tracked.get(partition):
            raise _not_ready(partition)
        if tracked.next_offset > offset:
            return
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tracked.waiters[seen] = offset
        try:
            async with asyncio.timeout(self._settings.consume_wait_ms / 1000):
                await seen
        except TimeoutError:
            text = f"{self.client.name}-{tracked.index}: {offset} was not read in time"
            raise RetriableRemoteStorageError(text) from None
        finally:
            del tracked.waiters[seen]

    # -- look-ups ----------------------------------------------------------------------------------

    def _known(self, partition: TopicIdPartition) -> Tracked:
        tracked = self._tracked.get(partition)
        if tracked is None or not tracked.was_ready:
            raise _not_ready(partition)
        return tracked

    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        """Return the finished segment that holds this offset of this epoch."""
        return self._known(partition).cache.segment_for(epoch, offset)

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """Return the largest offset of this epoch that was ever copied."""
        return self._known(partition).cache.highest_offset(epoch)

    def segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteSegment]:
        """Return all known segments, of one epoch or of all, by start offset."""
        return self._known(partition).cache.segments(epoch)

    def size(self, partition: TopicIdPartition, epoch: int) -> int:
        """Return the bytes of the segments that have this epoch (KIP-852)."""
        return self._known(partition).cache.size(epoch)

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        """Return the first finished segment at or behind this offset of this epoch whose
        transaction index is not empty (KIP-1058)."""
        return self._known(partition).cache.next_segment_with_txn_index(epoch, offset)

    def delete_state(self, partition: TopicIdPartition) -> PartitionDeleteState | None:
        """Return the state of the partition's deletion, None if it is not marked."""
        return self._known(partition).cache.delete_state

    # -- stop --------------------------------------------------------------------------------------

    async def _save(self) -> None:
        """Write the files; the next save repeats those that fail."""
        if not self._is_open:
            return
        begun = [tracked for tracked in self._tracked.values() if tracked.is_begun]
        changed = [tracked for tracked in begun if not tracked.is_saved]
        saved = [tracked.saved() for tracked in changed]
        for tracked in changed:
            tracked.is_saved = True
        assigned = [tracked.partition for tracked in self._tracked.values()]
        positions = {index: at for index, at in self._consumer.positions.items() if at}
        for tracked in self._tracked.values():
            if not tracked.is_begun:  # its file is as old as this offset
                positions[tracked.index] = self._committed.get(tracked.index, 0)
        try:
            await self.files.save(self._topic_id, saved, assigned, positions)
        except OSError as error:
            log.warning("the files of the remote log metadata were not written: %s", error)
            for tracked in changed:
                tracked.is_saved = False
        else:
            for tracked in changed:
                tracked.has_file = True

    async def stop(self, *, saves: bool = True) -> None:
        """Save and stop reading; `close` comes after."""
        await self._consumer.stop()
        tasks = [task for task in (*self._looking.values(), self._main, self._restoring) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if saves:
            with contextlib.suppress(TimeoutError):  # the earlier files still work
                async with asyncio.timeout(LAST_SAVE_S_MAX):
                    await self._save()

    def close(self) -> None:
        """Stop publishing and reading; closing twice is allowed."""
        self._is_open = False
        self.client.close()


def _not_ready(partition: TopicIdPartition) -> RemoteStorageNotReady:
    name = f"{partition.topic}-{partition.partition}"
    return RemoteStorageNotReady(f"the remote metadata of {name} is not ready")


def _is_late(event: MetadataEvent, tracked: Tracked) -> bool:
    """Return whether another broker took a step of the deletion meanwhile: each of them may."""
    if not isinstance(event, PartitionDelete):
        return False
    state = tracked.cache.delete_state
    return state is not None and event.state < state
