"""One user partition's events in `__remote_log_metadata`, and how its leader publishes them again
after the topic was deleted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.tiered.metadata.client import TopicError
from tidelog.tiered.metadata.files import SavedPartition
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RetriableRemoteStorageError,
    SegmentState,
    SegmentUpdate,
)
from tidelog_storage.remote.metadata_cache import PartitionMetadata
from tidelog_storage.remote.metadata_records import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from uuid import UUID

    from tidelog.tiered.metadata.client import MetadataTopicClient
    from tidelog_storage.remote.api import TopicIdPartition
    from tidelog_storage.remote.metadata_records import MetadataEvent

__all__ = ["RETRY_S", "Republishing", "Tracked", "Waiter"]

log = logging.getLogger("tidelog.tiered.metadata")

RETRY_S = 0.1


class Waiter(NamedTuple):
    """Waits until a record is read."""

    offset: int
    seen: asyncio.Future[None]


class Tracked:
    """A user partition that this broker follows.

    `cache` has all events of the partition below `next_offset` of its metadata partition. It is
    caught up once that reaches `target`, the end offset found after the last request; `asks` counts
    the requests. `is_begun` once its file, if any, was read; `has_file` if it has one. `leads`:
    this broker leads it. `is_older` than the topic if the topic was deleted: then a leader
    publishes its events again (`is_to_publish`), and brokers that know them ignore them.
    """

    def __init__(self, partition: TopicIdPartition, index: int) -> None:
        self.partition = partition
        self.index = index
        self.cache = PartitionMetadata(partition)
        self.next_offset = 0
        self.target: int | None = None
        self.asks = 0
        self.is_begun = False
        self.was_ready = False
        self.is_saved = self.has_file = False
        self.leads = False
        self.is_older = self.is_to_publish = False
        self.waiters: list[Waiter] = []

    def ask(self) -> None:
        """Require all events that are published until now."""
        self.target = None
        self.asks += 1

    def forget(self) -> None:
        """Forget all events, and read them again."""
        self.cache = PartitionMetadata(self.partition)
        self.next_offset = 0
        self.is_saved = self.was_ready = False
        self.ask()

    def outlive(self) -> None:
        """Keep the events of a deleted topic, and read all of the new one."""
        self.next_offset = 0
        self.is_saved = False
        self.is_older = self.is_to_publish = True
        self.ask()
        error = RetriableRemoteStorageError("the topic was deleted meanwhile")
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Raise the error in all waiters."""
        for waiter in self.waiters:
            if not waiter.seen.done():
                waiter.seen.set_exception(error)

    def saved(self) -> SavedPartition:
        """Return the content of its file."""
        return SavedPartition(self.cache.snapshot(), self.index, self.next_offset, self.is_older)

    @property
    def is_caught_up(self) -> bool:
        """Whether all required events are read."""
        return self.is_begun and self.target is not None and self.next_offset >= self.target

    @property
    def is_unpublished(self) -> bool:
        """Whether this broker publishes the events again now."""
        return self.is_to_publish and self.leads and self.is_caught_up

    def events_again(self, node_id: int) -> Iterator[MetadataEvent]:
        """Yield events that give an empty broker the same state, each as it is at that moment."""
        partition, cache = self.partition, self.cache
        for segment_id in [each.segment_id for each in cache.segments()]:
            segment = cache.segment(segment_id)
            if segment is None:
                continue
            started = SegmentState.COPY_SEGMENT_STARTED
            yield replace(segment, state=started, custom_metadata=None)
            segment = cache.segment(segment_id)
            if segment is not None and segment.state is not started:
                yield SegmentUpdate(
                    partition,
                    segment_id,
                    node_id,
                    segment.event_timestamp,
                    segment.state,
                    segment.custom_metadata,
                )
        for state in PartitionDeleteState:
            if cache.delete_state is not None and state <= cache.delete_state:
                yield PartitionDelete(partition, node_id, 0, state)


class Republishing:
    """Creates a deleted topic again, and publishes and saves the events that brokers know."""

    def __init__(
        self,
        client: MetadataTopicClient,
        tracked: Mapping[tuple[UUID, int], Tracked],
        find_topic: Callable[[], Awaitable[None]],
        save: Callable[[], Awaitable[None]],
    ) -> None:
        """`find_topic` returns when the topic exists."""
        self._client = client
        self._tracked = tracked
        self._find_topic = find_topic
        self._save = save
        self._task: asyncio.Task[None] | None = None
        self._is_awaited = False

    def wake(self) -> None:
        """Run now, or again after the current run."""
        self._is_awaited = True
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run(), name="remote-log-metadata-again")

    async def stop(self) -> None:
        """Cancel the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._is_awaited:
            self._is_awaited = False
            try:
                await self._find_topic()
                await self._publish()
                await self._save()
            except TopicError as error:
                log.info("%s", error)
            except Exception:
                log.exception(
                    "%s: events can't be published again; the next attempt follows",
                    self._client.name,
                )
            else:
                continue
            self._is_awaited = True
            await asyncio.sleep(RETRY_S)

    def _unpublished(self) -> list[Tracked]:
        return [tracked for tracked in self._tracked.values() if tracked.is_unpublished]

    async def _publish(self) -> None:
        topic_id = self._client.topic_id
        for tracked in self._unpublished():
            for event in tracked.events_again(self._client.replicas.node_id):
                await self._client.publish(tracked.index, encode(event))
                if topic_id != self._client.topic_id:
                    return  # the topic was deleted again, which wakes this
            tracked.is_to_publish = False
