"""One user partition's events in `__remote_log_metadata`, and the callers that wait for more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidelog.tiered.metadata.files import SavedPartition
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RetriableRemoteStorageError,
    SegmentState,
    SegmentUpdate,
)
from tidelog_storage.remote.metadata_cache import PartitionMetadata

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator

    from tidelog_storage.remote.api import TopicIdPartition
    from tidelog_storage.remote.metadata_records import MetadataEvent

__all__ = ["Tracked"]


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
        self.waiters: dict[Future[None], int] = {}  # of the records with these offsets

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
        self.fail(RetriableRemoteStorageError("the topic was deleted meanwhile"))

    def read_until(self, offset: int) -> None:
        """Note that all events below an offset are read."""
        self.next_offset = offset
        for waiter, awaited in self.waiters.items():
            if awaited < offset and not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """Raise the error in all waiters."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)

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
