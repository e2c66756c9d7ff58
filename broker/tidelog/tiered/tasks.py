"""The tasks of one tiered partition (KIP-405): when they run, and what ends them.

Copy and expiration run on the leader, the follower's task learns how far the log is copied, so that
its own local retention may delete: every task interval, and at once when something has happened.
One run at a time. After a failure that may pass soon, with growing pauses; after any other once an
interval, as in Kafka: each try may cost a copy and three events. All skip while the metadata is not
ready.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.tiered.copying import Copier
from tidelog.tiered.expiration import Expiration
from tidelog.tiered.shared import copied_offset, name_of
from tidelog_storage.remote.api import (
    RemoteStorageError,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
)
from tidelog_storage.remote.lineage import Lineage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from tidelog.config.broker import BrokerConfig
    from tidelog.replication.partition import Partition
    from tidelog.seams import Rng
    from tidelog.tiered.shared import Shared
    from tidelog_storage.remote.api import RemoteSegment, SegmentFiles, TopicIdPartition

__all__ = ["Pace", "Repeated", "TieredPartition"]

log = logging.getLogger("tidelog.tiered")

FAILURES_TOLD = 4  # some seconds: what passes by itself sooner is nobody's concern


class Pace(NamedTuple):
    """How often tasks run, in seconds: the interval, and the pauses after failures."""

    interval_s: float
    backoff_s: float
    backoff_s_max: float
    jitter: float

    @classmethod
    def of(cls, config: BrokerConfig) -> Pace:
        """Kafka's remote.log.manager.task.* settings."""
        return cls(
            config.remote_log_manager_task_interval_ms / 1000,
            config.remote_log_manager_task_retry_backoff_ms / 1000,
            config.remote_log_manager_task_retry_backoff_max_ms / 1000,
            config.remote_log_manager_task_retry_jitter,
        )

    def pause_s(self, failures: int, rng: Rng) -> float:
        """After so many failures in a row, spread by chance."""
        pause_s: float = min(self.backoff_s * 2 ** min(failures - 1, 32), self.backoff_s_max)
        return pause_s * rng.uniform(1 - self.jitter, 1 + self.jitter)


class Repeated:
    """Work that is done again and again by one asyncio task, never twice at a time."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], pace: Pace, rng: Rng
    ) -> None:
        """`work` raises RetriableRemoteStorageError for what may pass soon."""
        self._name = name
        self._work = work
        self._pace = pace
        self._rng = rng
        self._wake = asyncio.Event()
        self._is_anew = False
        self._is_ending = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def wake(self) -> None:
        """Run now; after the present run, if there is one. A pause after a failure is kept."""
        self._wake.set()

    def begin_anew(self) -> None:
        """Run now, whatever failed before: the role is new. Kafka makes a new task then."""
        self._is_anew = True
        self._wake.set()

    async def end(self) -> None:
        """Let the present run end, and begin no other."""
        self._is_ending = True
        self._wake.set()
        await asyncio.wait([self._task])

    async def cancel(self) -> None:
        """End now."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while not self._is_ending:
            self._wake.clear()
            self._is_anew = False
            pause_s = 0.0
            try:
                await self._work()
                failures = 0
            except RemoteStorageNotReady:
                pass  # whoever makes it ready wakes it
            except RetriableRemoteStorageError as error:
                failures += 1
                log.info("%s: %s", self._name, error)
            except Exception as error:
                failures, pause_s = 0, self._pace.interval_s
                if isinstance(error, RemoteStorageError):
                    log.warning("%s: %s", self._name, error)
                else:
                    log.exception("%s failed", self._name)
            if failures:
                pause_s = self._pace.pause_s(failures, self._rng)
            await (self._pause(pause_s) if pause_s else self._rest())

    async def _pause(self, seconds: float) -> None:
        """A store that fails is not asked at each roll."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not (self._is_ending or self._is_anew) and loop.time() < until:
            self._wake.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._pace.interval_s):
                await self._wake.wait()
        except TimeoutError:
            return


class TieredPartition:
    """One tiered partition on this broker, in whichever role.

    `damaged` are remote segments that could not be repaired, as its leader found them; `suspects`
    could not be read, and were not looked at yet.
    """

    def __init__(
        self, shared: Shared, partition: TopicIdPartition, replica: Partition, pace: Pace
    ) -> None:
        self.partition = partition
        self.replica = replica
        self.copier = Copier(shared, partition, replica, self.rolled)
        self.expiration = Expiration(shared, partition, self.copier)
        self._shared = shared
        self._pace = pace
        self._copying: Repeated | None = None
        self._tending: Repeated | None = None
        self.damaged: dict[UUID, RemoteSegment] = {}
        self.suspects: dict[UUID, RemoteSegment] = {}
        self._replacing: asyncio.Task[None] | None = None
        self._is_over = False
        self._copy_failures = 0  # in a row, that may pass
        self._earlier: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Whether this broker leads it."""
        return self.copier.leads

    def lead(self, replica: Partition) -> None:
        """This broker leads it, in a new epoch."""
        self.replica = replica
        self.forget_damages()  # the leader before may have repaired them
        self.copier.lead(replica)
        if self._copying is None:
            self._copying = self._repeat("copy", self._copy)
        self._start()

    def follow(self, replica: Partition) -> None:
        """This broker follows it: a copy under way is finished, no other is begun."""
        self.replica = replica
        self.forget_damages()
        self.copier.resign()
        self._start()

    def _start(self) -> None:
        if self._tending is None:
            self._tending = self._repeat("tend", self._tend)
        for repeated in self._repeated():
            repeated.begin_anew()

    def _repeat(self, what: str, work: Callable[[], Awaitable[None]]) -> Repeated:
        name = f"remote {what} {name_of(self.partition)}"
        return Repeated(name, work, self._pace, self._shared.rng)

    def _repeated(self) -> list[Repeated]:
        return [each for each in (self._copying, self._tending) if each is not None]

    def rolled(self) -> None:
        """A segment was sealed: there may be something to copy."""
        if self._copying is not None:
            self._copying.wake()

    def wake(self) -> None:
        """Something has happened: a change of settings, the metadata is ready."""
        for repeated in self._repeated():
            repeated.wake()

    def wait_for(self, earlier: asyncio.Task[None] | None) -> None:
        """Do nothing before this has ended: it still deletes something remote."""
        self._earlier = earlier
        if earlier is not None:
            earlier.add_done_callback(lambda _: None if self._is_over else self.wake())

    async def end(self) -> None:
        """Begin nothing more, and return when what is under way has ended."""
        self._is_over = True
        self.copier.resign()
        for repeated in self._repeated():
            await repeated.end()
        if self._replacing is not None:
            await asyncio.wait([self._replacing])

    async def cancel(self) -> None:
        """End now: the broker stops."""
        self._is_over = True
        self.copier.resign()
        for repeated in self._repeated():
            await repeated.cancel()
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])

    def note_damaged(self, segment: RemoteSegment) -> None:
        """A remote segment is damaged: what is local of it stays until there is a good copy."""
        self.damaged[segment.segment_id] = segment
        self._keep_local()

    def note_whole(self, segment: RemoteSegment) -> None:
        """A remote segment is not damaged, or not any more."""
        self.damaged.pop(segment.segment_id, None)
        self._keep_local()

    def forget_damages(self) -> None:
        """Nothing is known to be damaged."""
        self.damaged.clear()
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
        """See `Copier.replace`; one at a time. What ends this partition's tasks waits for it."""
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
            and self._shared.metadata.is_ready(self.partition)
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
            if self._copy_failures == FAILURES_TOLD:
                size, count = self.copier.lag()
                name = name_of(self.partition)
                text = "%s is not copied (%d bytes in %d segments wait on the local disk): %s"
                log.warning(text, name, size, count, error)
            raise
        if self._copy_failures >= FAILURES_TOLD:
            log.warning("%s is copied again", name_of(self.partition))
        self._copy_failures = 0

    async def _tend(self) -> None:
        """Expiration on the leader; on a follower, how far the log is copied."""
        if not self._is_ready:
            return
        if self.leads:
            leader_epoch = self.replica.leader_epoch
            await self.expiration.run(
                self.replica.log,
                lambda: self.leads and self._is_ready and self.replica.leader_epoch == leader_epoch,
            )
        else:
            self._learn()

    def _learn(self) -> None:
        held = self.replica.log
        held.reset_highest_remote_offset(copied_offset(self._shared.metadata, self.partition, held))
