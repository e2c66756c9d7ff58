"""The tasks of one tiered partition (KIP-405), and its damaged remote segments.

Copy and expiration run on the leader. The follower's task finds how far the log is copied, so that
its own local retention may delete. All tasks skip while the metadata is not ready.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.tiered.segments import name_of
from tidelog.tiered.tasks.copying import Copier
from tidelog.tiered.tasks.expiration import Expiration
from tidelog.tiered.tasks.repeated import Repeated
from tidelog_storage.remote.api import RemoteStorageNotReady, RetriableRemoteStorageError
from tidelog_storage.remote.lineage import Lineage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from tidelog.replication.partition import Partition
    from tidelog.tiered.pools import Pool
    from tidelog.tiered.tasks.aux_state import DamagedSegmentError
    from tidelog.tiered.tasks.copying import Copying
    from tidelog.tiered.tasks.repeated import Pace
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition

__all__ = ["TieredPartition"]

log = logging.getLogger("tidelog.tiered")

FAILURES_BEFORE_WARNING = 4  # some seconds; shorter outages are not logged as warnings
_OFTEN = 32  # some seconds at least; a follower that waits for metadata asks ten times


class TieredPartition:
    """One tiered partition on this broker, as leader or follower.

    `damaged` has the remote segments that the leader found damaged and could not repair. `suspects`
    has those that could not be read and were not checked yet. `unusable` is the one whose end a
    follower waits to begin at, and that it found damaged.
    """

    def __init__(
        self,
        tools: Copying,
        expiration_pool: Pool,
        pace: Pace,
        partition: TopicIdPartition,
        replica: Partition,
    ) -> None:
        self.partition = partition
        self.replica = replica
        self.copier = Copier(tools, partition, replica, self.rolled)
        self.expiration = Expiration(tools.segments, expiration_pool, partition, self.copier)
        self._segments = tools.segments
        self._runtime = tools.runtime
        self._pace = pace
        self._copying: Repeated | None = None
        self._tending: Repeated | None = None
        self.damaged: dict[UUID, RemoteSegment] = {}
        self.suspects: dict[UUID, RemoteSegment] = {}
        self.unusable: RemoteSegment | None = None
        self._asked: dict[int, tuple[int, int]] = {}  # by follower: local start, and how often
        self._replacing: asyncio.Task[None] | None = None
        self._is_over = False
        self._copy_failures = 0  # retriable ones in a row
        self._earlier: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Return whether this broker leads the partition."""
        return self.copier.leads

    def lead(self, replica: Partition) -> None:
        """Become leader, in a new epoch."""
        self.replica = replica
        self.forget_damages()  # the previous leader may have repaired them
        self.copier.lead(replica)
        if self._copying is None:
            self._copying = self._repeat("copy", self._copy)
        self._start()

    def follow(self, replica: Partition) -> None:
        """Become follower: a copy in progress is finished, no other begins."""
        self.replica = replica
        self.forget_damages()
        self.copier.resign()
        self._start()

    def _start(self) -> None:
        if self._tending is None:
            self._tending = self._repeat("tend", self._tend)
        for repeated in self._repeated():
            repeated.restart()

    def _repeat(self, what: str, work: Callable[[], Awaitable[None]]) -> Repeated:
        name = f"remote {what} {name_of(self.partition)}"
        return Repeated(name, work, self._pace, self._runtime)

    def _repeated(self) -> list[Repeated]:
        return [each for each in (self._copying, self._tending) if each is not None]

    def rolled(self) -> None:
        """Run the copy task: a segment was sealed."""
        if self._copying is not None:
            self._copying.wake()

    def wake(self) -> None:
        """Run all tasks: settings have changed, or the metadata is ready."""
        for repeated in self._repeated():
            repeated.wake()

    async def copy_now(self) -> bool:
        """Run the copy task now; return whether everything sealed is copied then. Raises a
        failure."""
        if self._copying is not None:
            await self._copying.run_now()
        return self._is_ready and self.copier.copied_offset is not None and not self.copier.lag()[1]

    async def tend_now(self) -> None:
        """Run the other task now: expire segments, on the leader. Raises a failure."""
        if self._tending is not None:
            await self._tending.run_now()

    def wait_for(self, earlier: asyncio.Task[None] | None) -> None:
        """Begin after an earlier task has ended, which still deletes a remote segment."""
        self._earlier = earlier
        if earlier is not None:
            earlier.add_done_callback(lambda _: None if self._is_over else self.wake())

    async def end(self) -> None:
        """Stop the tasks, and wait for what is in progress."""
        self._is_over = True
        self.copier.resign()
        for repeated in self._repeated():
            await repeated.end()
        if self._replacing is not None:
            await asyncio.wait([self._replacing])

    async def cancel(self) -> None:
        """Cancel the tasks: the broker stops."""
        self._is_over = True
        self.copier.resign()
        for repeated in self._repeated():
            await repeated.cancel()
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])

    def note_damaged(self, segment: RemoteSegment) -> None:
        """Note a damaged remote segment; its local records stay until it has a good copy."""
        self.damaged[segment.segment_id] = segment
        self._keep_local()

    def note_whole(self, segment: RemoteSegment) -> None:
        """Note a remote segment that is not damaged, or is repaired."""
        self.damaged.pop(segment.segment_id, None)
        self._keep_local()

    def has_asked_often(self, replica_id: int) -> bool:
        """Note that a follower asks where the local log begins; return True each time it did so
        often."""
        start = self.replica.log.local_log_start_offset
        known, count = self._asked.get(replica_id, (start, 0))
        count = count + 1 if known == start else 1
        self._asked[replica_id] = start, count
        return count % _OFTEN == 0

    def note_unusable(self, error: DamagedSegmentError) -> None:
        """Note a segment that this follower cannot begin behind. Only its leader can repair it."""
        segment = error.segment
        if self.unusable is None or self.unusable.segment_id != segment.segment_id:
            text = (
                "%s: %s. This replica cannot follow until the leader has copied the segment again"
            )
            log.error(text, name_of(self.partition), error)
        self.unusable = segment

    def forget_damages(self) -> None:
        """Forget all damaged segments."""
        self.damaged.clear()
        self._asked.clear()
        self.unusable = None
        self._keep_local()

    def _keep_local(self) -> None:
        held = self.replica.log
        lineage = Lineage(held.epochs.entries, held.log_end_offset)
        starts = [
            one.start_offset
            for one in self.damaged.values()
            if one.end_offset >= held.local_log_start_offset and lineage.has(one)
        ]
        held.kept_from = min(starts, default=None)

    async def replace(self, damaged: RemoteSegment, files: SegmentFiles | None) -> None:
        """Run `Copier.replace`, one at a time. The end of this partition's tasks waits for it."""
        if not (self.leads and self._is_ready):
            raise RemoteStorageNotReady(f"{name_of(self.partition)} is not led here")
        task = asyncio.create_task(self.copier.replace(damaged, files), name="remote replacement")
        self._replacing = task
        await task

    @property
    def _is_ready(self) -> bool:
        return (
            not self._is_over
            and (self._earlier is None or self._earlier.done())
            and self.replica.log.is_tiered
            and self._segments.metadata.is_ready(self.partition)
        )

    async def _copy(self) -> None:
        if not self.leads or not self._is_ready:
            return
        try:
            await self.copier.run()
        except RemoteStorageNotReady:
            raise
        except RetriableRemoteStorageError as error:
            self._copy_failures += 1
            if self._copy_failures == FAILURES_BEFORE_WARNING:
                size, count = self.copier.lag()
                name = name_of(self.partition)
                text = "%s is not copied (%d bytes in %d segments wait on the local disk): %s"
                log.warning(text, name, size, count, error)
            raise
        if self._copy_failures >= FAILURES_BEFORE_WARNING:
            log.warning("%s is copied again", name_of(self.partition))
        self._copy_failures = 0

    async def _tend(self) -> None:
        """Expire segments on the leader; on a follower, find how far the log is copied."""
        if not self._is_ready:
            return
        if self.leads:
            leader_epoch = self.replica.leader_epoch
            await self.expiration.run(
                self.replica.log,
                lambda: self.leads and self._is_ready and self.replica.leader_epoch == leader_epoch,
            )
        else:
            held = self.replica.log
            held.reset_highest_remote_offset(self._segments.copied_offset(self.partition, held))
