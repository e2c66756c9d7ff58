"""Planted bugs of the remote tier; `test_remote_tier.py` finds each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tidelog.tiered.metadata.topic import TopicBasedMetadata
from tidelog.tiered.segments import RemoteSegments
from tidelog.tiered.tasks import copying, deletion
from tidelog.tiered.tasks.copying import Copier
from tidelog.tiered.tasks.deletion import Deletions
from tidelog_storage.log import Log
from tidelog_storage.remote.api import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = Callable[..., None]


def copied_before_it_is(patch: Patch) -> None:
    """Local retention goes by a copy that has only begun."""
    real = Copier._ship

    async def ship(self: Any, segment: Any, files: Any, truncations: int) -> Any:
        self._log.set_highest_remote_offset(segment.end_offset)
        return await real(self, segment, files, truncations)

    patch(Copier, "_ship", ship)


def failed_copies_count(patch: Patch) -> None:
    """What the store refused for a while is published as finished."""
    real = Copier._ship

    async def ship(self: Any, segment: Any, files: Any, truncations: int) -> Any:
        try:
            return await real(self, segment, files, truncations)
        except copying.RetriableRemoteStorageError:
            return None

    patch(Copier, "_ship", ship)


def deletions_are_finished_when_they_fail(patch: Patch) -> None:
    """Nobody tries again what the store did not delete."""

    async def delete(self: Any, segment: Any, pool: Any) -> None:
        await self.publish(segment, SegmentState.DELETE_SEGMENT_STARTED)
        with contextlib.suppress(Exception):  # the bug
            await pool.run(self.storage.delete_segment, segment)
        await self.publish(segment, SegmentState.DELETE_SEGMENT_FINISHED)

    patch(RemoteSegments, "delete", delete)


def nobody_marks(patch: Patch) -> None:
    """A deleted topic is known to its leader alone."""

    async def mark(self: Any, partition: Any) -> None:
        del self, partition

    async def remove(self: Any, partition: Any) -> None:
        await self._delete_all(partition, deletion._always)

    patch(Deletions, "_mark", mark)
    patch(Deletions, "remove", remove)


def a_new_leader_trusts_no_metadata(patch: Patch) -> None:
    """It copies on from its log end: what the leader before it left is never copied."""

    def find_positions(self: Any) -> None:
        if self.copied_offset is None and self.leads:
            self.copied_offset = self._log.segments.active.base_offset - 1
            self._log.reset_highest_remote_offset(self.copied_offset)

    patch(Copier, "find_positions", find_positions)


def events_are_not_read_back(patch: Patch) -> None:
    """What was published counts though no consumer has it yet: an update finds no segment."""
    real = TopicBasedMetadata._publish

    async def publish(self: Any, event: Any) -> None:
        tracked = self._tracked.get(event.topic_id_partition)
        before, tracked.next_offset = tracked.next_offset, 1 << 60
        try:
            await real(self, event)
        finally:
            tracked.next_offset = before

    patch(TopicBasedMetadata, "_publish", publish)


def retention_does_not_wait(patch: Patch) -> None:
    """Local retention deletes whether the segment is remote or not."""

    def highest(self: Any, offset: int) -> None:
        del offset
        self.highest_remote_offset = self.high_watermark - 1

    patch(Log, "set_highest_remote_offset", highest)
    patch(Log, "reset_highest_remote_offset", highest)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        copied_before_it_is,
        failed_copies_count,
        deletions_are_finished_when_they_fail,
        nobody_marks,
        a_new_leader_trusts_no_metadata,
        events_are_not_read_back,
        retention_does_not_wait,
    )
}
