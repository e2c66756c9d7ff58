"""All share partitions that this broker leads, and the sessions of the members that read them.

It makes a share partition at the first fetch of a group, and gives it up when the partition gets
another leader, is deleted or fails. It is a role listener of the replica manager. `fetch_work.py`
and `api/share_fetch.py` use it.

Kafka: SharePartitionManager, SharePartitionCache.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.awaiting import begun
from tidelog.coordinators.share.values import SharePartition
from tidelog.replication.purgatory import Purgatory
from tidelog.shares.counts import ShareCounts
from tidelog.shares.led_partition import LedPartition, Surroundings
from tidelog.shares.records import ShareError
from tidelog.shares.sessions import ShareSessions
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from typing import Any

    from tidelog.coordinators.share.persister import Persister
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.seams import Timers
    from tidelog.shares.partition_state import AckBatch
    from tidelog.shares.sessions import ShareSession, TopicIdPartition
    from tidelog.shares.settings import ShareSettings
    from tidelog.tiered.reads.remote_reads import RemoteReads
    from tidelog_storage.types import TopicPartition

__all__ = ["SharePartitions"]

_log = logging.getLogger("tidelog.shares")

_GONE = "This broker is no longer the leader of the partition."
_NEVER_FETCHED = "This server does not host this topic-partition."
RELEASED_AT_ONCE = 500  # share partitions of a turn: about 5 ms


class SharePartitions:
    """The share partitions of one broker, by group and partition."""

    def __init__(
        self,
        replicas: ReplicaManager,
        persister: Persister,
        timers: Timers,
        settings: Callable[[str], ShareSettings],
        *,
        sessions_max: int,
        remote: RemoteReads | None = None,
    ) -> None:
        """`timers` say when locks end; `settings` returns those of a group."""
        self.replicas = replicas
        self.settings = settings
        self.remote = remote
        self.remote_purgatory: Purgatory[tuple[str, int]] = Purgatory(asyncio.get_running_loop())
        """The fetches that wait for the remote tier."""
        replicas.purgatories.append(self.remote_purgatory)
        self.sessions = ShareSessions(sessions_max)
        self.counts = ShareCounts()
        self._led: dict[SharePartition, LedPartition] = {}
        self._by_place: dict[TopicPartition, dict[SharePartition, LedPartition]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._to_wake: dict[tuple[str, int], None] = {}
        self._around = Surroundings(
            persister,
            replicas.clock,
            timers,
            settings,
            self._spawn,
            self.wake,
            self._drop,
            remote,
            self.counts,
        )
        replicas.follow_roles(self)

    def __len__(self) -> int:
        return len(self._led)

    def led(self) -> Iterable[LedPartition]:
        """Return all share partitions."""
        return self._led.values()

    # ---- share partitions ---------------------------------------------------------------------

    def leads(self, group_id: str, key: TopicIdPartition) -> bool:
        """Return whether a group's share partition is there."""
        return SharePartition(group_id, *key) in self._led

    def lead(self, group_id: str, key: TopicIdPartition) -> LedPartition:
        """Return a group's share partition, made and loaded if it is new. ShareError if this
        broker does not lead the partition."""
        share_key = SharePartition(group_id, *key)
        led = self._led.get(share_key)
        if led is not None:
            return led
        partition = self.replicas.partition_by_id(*key)
        if isinstance(partition, ErrorCode):
            raise ShareError(partition)
        if not partition.is_leader:
            raise ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _GONE)
        led = self._led[share_key] = LedPartition(share_key, partition, self._around)
        self._by_place.setdefault(partition.topic_partition, {})[share_key] = led
        self._spawn(led.load())
        return led

    def _drop(self, led: LedPartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
            place = led.partition.topic_partition
            there = self._by_place[place]
            del there[led.key]
            if not there:
                del self._by_place[place]

    async def _drop_group(self, group_id: str) -> None:
        """Give up the share partitions of a group that no member reads here any more, once what
        its members held is released; unless a member comes meanwhile."""
        empty = ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share group is empty.")

        def retire(led: LedPartition) -> None:
            if not self.sessions.has_members(group_id):
                led.fence(empty)

        leds = [led for key, led in self._led.items() if key.group_id == group_id]
        for number, led in enumerate(leds, 1):
            led.when_written(partial(retire, led))
            if number % RELEASED_AT_ONCE == 0:
                await asyncio.sleep(0)

    # ---- acknowledgements, and the end of sessions --------------------------------------------

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acks: Mapping[TopicIdPartition, Sequence[AckBatch]],
        on_done: Callable[[dict[TopicIdPartition, ShareError | None]], None],
    ) -> None:
        """Acknowledge records of several partitions; `on_done` is called with all outcomes."""

        def ask(
            batches: Sequence[AckBatch],
            led: LedPartition,
            tell: Callable[[ShareError | None], None],
        ) -> None:
            def done(error: ShareError | None) -> None:
                if error is None:
                    self.counts.acknowledge(batches)
                tell(error)

            led.acknowledge(member_id, batches, done)

        calls = {key: partial(ask, batches) for key, batches in acks.items()}
        self._ask_each(group_id, calls, on_done)

    def release(self, session: ShareSession) -> None:
        """Release what the member of a closed session holds."""
        self._spawn(self._end([session], []))

    def close_largest_sessions(self) -> None:
        """Close sessions while all have too many partitions."""
        for session in self.sessions.close_largest():
            self.release(session)

    async def _end(self, sessions: Sequence[ShareSession], group_ids: Sequence[str]) -> None:
        """Release what the members of closed sessions hold, then give up these groups; others have
        a turn between parts."""
        for session in sessions:
            for number, key in enumerate(list(session.partitions), 1):
                led = self._led.get(SharePartition(session.group_id, *key))
                if led is not None:
                    led.release(session.member_id, _forget)
                if number % RELEASED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        for group_id in group_ids:
            await self._drop_group(group_id)

    def _ask_each(
        self,
        group_id: str,
        calls: Mapping[TopicIdPartition, Callable[[LedPartition, Callable[..., None]], None]],
        on_done: Callable[[dict[TopicIdPartition, ShareError | None]], None],
    ) -> None:
        outcomes: dict[TopicIdPartition, ShareError | None] = {}

        def tell(key: TopicIdPartition, error: ShareError | None) -> None:
            outcomes[key] = error
            if len(outcomes) == len(calls):
                on_done(outcomes)

        if not calls:
            on_done(outcomes)
        for key, call in calls.items():
            led = self._led.get(SharePartition(group_id, *key))
            if led is None:
                tell(key, ShareError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NEVER_FETCHED))
            else:
                call(led, lambda error, key=key: tell(key, error))

    def owner_closed(self, owner: object) -> None:
        """End the sessions of a closed connection, and share partitions that it read alone."""
        sessions, groups = self.sessions.owner_closed(owner)
        self._spawn(self._end(sessions, groups))

    # ---- roles of the replicas ----------------------------------------------------------------

    def became_leader(self, partition: Partition) -> None:
        """Give up what was known of another replica in its place."""
        for led in list(self._by_place.get(partition.topic_partition, {}).values()):
            if led.partition is not partition:
                self._fence_later(led)

    def became_follower(self, partition: Partition) -> None:
        """Give up its share partitions."""
        for led in list(self._by_place.get(partition.topic_partition, {}).values()):
            self._fence_later(led)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """Give up its share partitions."""
        del delete
        self.became_follower(partition)

    def config_changed(self, partition: Partition) -> None:
        """Nothing depends on it."""

    def _fence_later(self, led: LedPartition) -> None:
        """Fence once the image is applied: a woken request may read other partitions."""
        self._drop(led)
        asyncio.get_running_loop().call_soon(
            led.fence, ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _GONE)
        )

    # ---- waking, and tasks --------------------------------------------------------------------

    def wake(self, place: tuple[str, int]) -> None:
        """Check the parked requests of a partition soon: one of them may be the reason."""
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_all)
        self._to_wake[place] = None

    def _wake_all(self) -> None:
        places, self._to_wake = list(self._to_wake), {}
        self.replicas.fetch_purgatory.check_all(places)
        self.remote_purgatory.check_all(places)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work of a share partition, at once up to where it first waits."""
        rest = begun(work)
        if rest is not None:
            task = asyncio.get_running_loop().create_task(rest)
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the work of a share partition failed", exc_info=error)

    async def close(self) -> None:
        """Stop all work; what is being written may or may not be stored."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for led in list(self._led.values()):
            led.fence(ShareError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The broker stops."))
        await asyncio.gather(*tasks, return_exceptions=True)


def _forget(error: ShareError | None) -> None:
    """Drop the outcome: no request waits for it."""
