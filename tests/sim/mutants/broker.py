"""Planted bugs of the broker room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog import maintenance
from tidelog.cluster.metadata import durable
from tidelog.cluster.metadata.log import MetadataLog
from tidelog.coordinators.groups.coordinator import GroupCoordinator
from tidelog.replication import replica_manager
from tidelog.replication.partition import Partition
from tidelog.replication.purgatory import Purgatory
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import AppendResult, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


def acknowledge_before_append(patch: Patch) -> None:
    """A write that the disk refuses is acknowledged all the same."""
    original = Partition.append

    def append(self: Partition, records: memoryview, **options: Any) -> AppendResult:
        end = self.log.log_end_offset
        try:
            return original(self, records, **options)
        except StorageError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return AppendResult(end, end, -1, self.log.log_start_offset)

    patch(Partition, "append", append)
    patch(replica_manager.ReplicaManager, "_append_failed", lambda *_: None)


def high_watermark_not_restored(patch: Patch) -> None:
    """A new leader stays at the high watermark of the checkpoint until the next write."""
    original = Partition.update
    advance = Partition.advance_high_watermark
    is_updating = False

    def update(self: Partition, image: Any) -> None:
        nonlocal is_updating
        is_updating = True
        try:
            original(self, image)
        finally:
            is_updating = False

    patch(Partition, "update", update)
    patch(Partition, "advance_high_watermark", lambda self: not is_updating and advance(self))


def topics_before_fsync(patch: Patch) -> None:
    """Metadata is answered for before it is on disk."""

    async def commit(self: MetadataLog, records: Any = ()) -> None:
        self.on_append = None  # nothing is flushed
        if records:
            self.append(records)
        self._publish(self.latest)

    patch(MetadataLog, "commit", commit)


def offsets_in_memory(patch: Patch) -> None:
    """Committed offsets are answered for and never written."""

    async def write_offsets(
        self: GroupCoordinator, shard: Any, changes: Any, records: Any = None
    ) -> ErrorCode:
        del records
        shard.appended(changes, shard.end_offset, self.now())
        self.advance(shard)
        return ErrorCode.NONE

    patch(GroupCoordinator, "write_offsets", write_offsets)


def leak_parked_requests(patch: Patch) -> None:
    """Who waited for a connection that is gone waits for ever."""
    patch(Purgatory, "cancel", lambda _self, operation: setattr(operation, "closed", True))


def take_no_descriptors_for_a_broken_disk(patch: Patch) -> None:
    """EMFILE ends the broker, as an error of its disk."""
    for module in (durable, maintenance, replica_manager):
        patch(module, "lacks_descriptors", lambda _error: False)


def early_timers_are_the_last(patch: Patch) -> None:
    """A group's timer that fires before its deadline, by a slow clock, is not set again."""
    original = GroupCoordinator._expire

    def expire(self: GroupCoordinator, shard: Any, group: Any) -> None:
        rounding_ms = 2
        if self.now().ticks_ms >= shard.watches[group.group_id].at_ms - rounding_ms:
            original(self, shard, group)

    patch(GroupCoordinator, "_expire", expire)


MUTANTS = {
    "acknowledge-before-append": acknowledge_before_append,
    "high-watermark-not-restored": high_watermark_not_restored,
    "topics-before-fsync": topics_before_fsync,
    "offsets-in-memory": offsets_in_memory,
    "early-timers-are-the-last": early_timers_are_the_last,
    "leak-parked-requests": leak_parked_requests,
    "take-no-descriptors-for-a-broken-disk": take_no_descriptors_for_a_broken_disk,
}
