"""One share partition that this broker leads: its state, its stored state, and its locks' timer.

It loads the state, writes changes one after the other, and ends locks in time.
`share_partitions.py` owns all of them, `fetch_work.py` reads for them. What it knows is void once
it is fenced: the partition has another leader, or the group, the topic or the state is gone.

Kafka: SharePartition (maybeInitialize, writeShareGroupState, AcquisitionLockTimerTask).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.share.values import UNINITIALIZED, Reading, Writing
from tidelog.shares.partition_state import Change, SharePartitionState
from tidelog.shares.records import ShareError
from tidelog.shares.start_offsets import first_offset
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from tidelog.coordinators.share.persister import Persister
    from tidelog.coordinators.share.values import SharePartition
    from tidelog.replication.partition import Partition
    from tidelog.seams import Clock, TimerHandle, Timers
    from tidelog.shares.counts import ShareCounts
    from tidelog.shares.partition_state import AckBatch
    from tidelog.shares.settings import ShareSettings
    from tidelog.tiered.reads.remote_reads import RemoteReads

__all__ = ["LedPartition", "Surroundings"]

_log = logging.getLogger("tidelog.shares")

READ_BYTES = 1 << 20  # of the first read
_NOT_LOADED = "The share partition is not loaded. Fetch from it first."
_COORDINATOR_MOVES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_KEPT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_VOID = (ErrorCode.NOT_LEADER_OR_FOLLOWER, *_KEPT)


class Surroundings(NamedTuple):
    """What all share partitions of a broker use. `spawn` runs a coroutine as a task; `wake` checks
    the parked requests of a partition; `drop` forgets a share partition. `remote` is None without
    a remote tier."""

    persister: Persister
    clock: Clock
    timers: Timers
    settings: Callable[[str], ShareSettings]
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    wake: Callable[[tuple[str, int]], None]
    drop: Callable[[LedPartition], None]
    remote: RemoteReads | None
    counts: ShareCounts


class LedPartition:
    """A share partition in one leader epoch.

    `state` is None until it is loaded. `failure` is why it is void, None while it is not.
    `is_new`: no fetch has read it yet.
    `is_read_remotely`: a read in the remote tier is in progress, and no other may begin.
    `read_bytes`: how much the next read takes, about what members take of one.
    `locks_ended`: number of records whose locks ended before a member acknowledged them.
    """

    __slots__ = (
        "_around",
        "_is_writing",
        "_queue",
        "_state_epoch",
        "_timer",
        "_timer_at",
        "failure",
        "is_new",
        "is_read_remotely",
        "key",
        "leader_epoch",
        "locks_ended",
        "partition",
        "read_bytes",
        "state",
    )

    def __init__(self, key: SharePartition, partition: Partition, around: Surroundings) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartitionState | None = None
        self.failure: ShareError | None = None
        self.is_new = True
        self.is_read_remotely = False
        self.read_bytes = READ_BYTES
        self.locks_ended = 0
        self._around = around
        self._state_epoch = 0
        self._queue: list[tuple[Change, Callable[[ShareError | None], None] | None]] = []
        self._is_writing = False
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def __repr__(self) -> str:
        return f"{self.key.group_id}:{self.partition.topic_partition}"

    @property
    def settings(self) -> ShareSettings:
        """The settings of its group, as they are now."""
        return self._around.settings(self.key.group_id)

    @property
    def is_fetchable(self) -> bool:
        """Whether a read may begin: there are records to acquire, or room for more."""
        return (
            self.failure is None
            and self.state is not None
            and not self.is_read_remotely
            and self.state.can_acquire(self.settings.limits)
        )

    def now(self) -> float:
        """Return the time by which its locks end, in seconds."""
        return self._around.timers.time()

    # ---- its life -----------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the stored state; then requests that wait for it go on."""
        began = self.now()
        await self._load()
        self._around.counts.loads.record(self.now() - began)

    async def _load(self) -> None:
        reading = Reading(self.key.topic_id, self.key.partition, self.leader_epoch)
        outcome = (await self._around.persister.read(self.key.group_id, [reading]))[0]
        if self.failure is not None:
            return
        try:
            _check(outcome.error, outcome.message)
            start_offset = outcome.start_offset
            if start_offset == UNINITIALIZED:
                start_offset = await first_offset(
                    self.partition,
                    self.leader_epoch,
                    self.settings.offset_reset,
                    self._around.clock.wall_ms(),
                    self._around.remote,
                )
            if self.failure is not None:
                return
            self.state = SharePartitionState(start_offset, outcome.batches)
        except ShareError as error:
            _log.warning("share partition %s cannot be loaded: %s", self, error)
            self.fence(error)
            return
        self._state_epoch = outcome.state_epoch
        self._around.wake(self.partition.topic_partition)

    def fence(self, failure: ShareError) -> None:
        """Give it up; requests that wait for it get this error."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._around.drop(self)
        queue, self._queue = self._queue, []
        for _, on_done in queue:
            if on_done is not None:
                on_done(failure)
        self._around.wake(self.partition.topic_partition)

    def when_written(self, call: Callable[[], None]) -> None:
        """Call once nothing of now waits to be written."""
        if self._is_writing:
            self._queue.append((Change([], []), lambda _: call()))
        else:
            call()

    # ---- changes ------------------------------------------------------------------------------

    def acknowledge(
        self,
        member_id: str,
        acks: Iterable[AckBatch],
        on_done: Callable[[ShareError | None], None],
    ) -> None:
        """Acknowledge records; `on_done` is called once it counts, or does not."""
        if self.state is None:
            on_done(ShareError(ErrorCode.INVALID_RECORD_STATE, _NOT_LOADED))
            return
        now = self._around.timers.time()
        try:
            change = self.state.acknowledge(member_id, acks, self.settings.limits, now)
        except ShareError as error:
            on_done(error)
            return
        self._write(change, on_done)

    def release(self, member_id: str, on_done: Callable[[ShareError | None], None]) -> None:
        """Release what a member holds; `on_done` as above."""
        if self.state is None:
            on_done(None)
        else:
            self._write(self.state.release(member_id, self.settings.limits), on_done)

    def changed(self) -> None:
        """Follow a change of its locks: keep the timer at the first one that ends."""
        deadline = None if self.state is None else self.state.next_deadline
        if deadline is None or self.failure is not None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # it sets the next one
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._around.timers.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = max(self._around.timers.time(), self._timer_at)
        self._timer = None
        state = self.state
        assert state is not None
        batches = state.expire(now, self.settings.limits)
        self.changed()
        if batches:
            self.locks_ended += sum(each.last_offset - each.first_offset + 1 for each in batches)
            self._write(Change([], batches), None)
            self._around.wake(self.partition.topic_partition)

    def _write(self, change: Change, on_done: Callable[[ShareError | None], None] | None) -> None:
        """Write a change after those that are on their way."""
        if not change.batches:
            self.changed()
            if on_done is not None:
                on_done(None)
            return
        self._queue.append((change, on_done))
        if not self._is_writing:
            self._is_writing = True
            self._around.spawn(self._write_all())

    async def _write_all(self) -> None:
        """Write what waits, all in one, until nothing waits."""
        while self._queue:
            queue, self._queue = self._queue, []
            error = await self._written([batch for change, _ in queue for batch in change.batches])
            self._settle(queue, error)
        self._is_writing = False

    async def _written(self, batches: list[Any]) -> ShareError | None:
        state = self.state
        assert state is not None
        writing = Writing(
            self.key.topic_id,
            self.key.partition,
            self._state_epoch,
            self.leader_epoch,
            state.start_offset,
            state.delivery_complete_count,
            tuple(batches),
        )
        outcome = (await self._around.persister.write(self.key.group_id, [writing]))[0]
        try:
            _check(outcome.error, outcome.message)
        except ShareError as error:
            _log.warning("the state of share partition %s is not written: %s", self, error)
            return error
        return None

    def _settle(
        self,
        queue: list[tuple[Change, Callable[[ShareError | None], None] | None]],
        error: ShareError | None,
    ) -> None:
        state = self.state
        assert state is not None
        for change, _ in queue:
            state.complete(change, is_written=error is None)
        if error is not None and error.code in _VOID:
            self.fence(error)
        self.changed()
        for _, on_done in queue:
            if on_done is not None:
                on_done(error)
        self._around.wake(self.partition.topic_partition)


def _check(error: ErrorCode, message: str | None) -> None:
    """Raise the ShareError for an error of the share coordinator, as clients get it."""
    if not error:
        return
    if error in _COORDINATOR_MOVES:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif error in _FENCED:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif error in _KEPT:
        code = error
    else:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    raise ShareError(code, message or f"The share coordinator answered {error.name}.")
