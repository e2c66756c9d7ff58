"""A follower's loop: copy partitions from one leader into the logs of this broker.

It owns one connection to the leader, one incremental fetch session on it, and the state of each
partition (`fetch_state.py`). `fetcher_manager.py` creates it and adds partitions. It changes logs
only through the follower methods of `partition.py`, which refuse answers of an older leader epoch.

One fetch is in flight at a time, for all partitions that can be fetched. A failed partition is left
out until its pause ends; one whose offset the leader lacks, until a task has found where to
continue (`starts.py`, `aux_state.py`). Neither blocks the others. When a partition becomes
fetchable while a fetch is parked at the leader, a small request is sent behind it, which ends it.

Kafka: AbstractFetcherThread, ReplicaFetcherThread; KIP-101, KIP-279, KIP-595 (truncation).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.network.peers import PeerError
from tidelog.replication.aux_state import AuxStateBuilder
from tidelog.replication.fetch_state import Backoff, Event, FetchState, State, event_of
from tidelog.replication.fetcher_session import Asked, FetcherSession
from tidelog.replication.leader_end_point import key_of
from tidelog.replication.partition import LATEST_TIMESTAMP
from tidelog.replication.starts import StartFinder
from tidelog.replication.truncation import batch_boundary, follower_truncation
from tidelog_protocol.batch import read_header
from tidelog_protocol.errors import ErrorCode, error_name
from tidelog_protocol.messages.data import FetchRequest
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import OffsetAndEpoch, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from tidelog.config.broker import BrokerConfig
    from tidelog.quotas.replication import ReplicationQuota
    from tidelog.replication.aux_state import AuxStateOf
    from tidelog.replication.fetcher_session import Key
    from tidelog.replication.leader_end_point import LeaderEndPoint
    from tidelog.replication.partition import Partition
    from tidelog.seams import Clock, Rng
    from tidelog_storage.types import TopicPartition

__all__ = ["FetcherContext", "ReplicaFetcher"]

_log = logging.getLogger(__name__)

APPLIED_AT_ONCE = 200  # partitions of an answer in one turn of the loop: 10 to 20 ms
BYTES_OF_ONE = 4096  # so many bytes of small batches take as long as one more partition
HELD_BACK_S = 0.1  # until a partition above the quota of replication is looked at again
_OWN_DISK = ErrorCode.KAFKA_STORAGE_ERROR
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetcherContext(NamedTuple):
    """The broker that a fetcher copies for.

    `on_advanced` gets logs that grew or whose high watermark moved, `on_disk_failure` those that
    could not be written. `aux_state.py` describes the two after it. `quota` returns what limits
    followers, if there is a limit.
    """

    config: BrokerConfig
    clock: Clock
    rng: Rng
    broker_epoch: Callable[[], int]
    on_advanced: Callable[[Sequence[TopicPartition]], None]
    on_disk_failure: Callable[[TopicPartition, Exception], None] | None = None
    aux_state_of: AuxStateOf | None = None
    from_last_tiered: Callable[[], bool] = bool
    quota: Callable[[], ReplicationQuota | None] = lambda: None


class ReplicaFetcher:
    """Follows some partitions of one leader. Invariant: every state in `_states` is current;
    answers for another one are dropped."""

    def __init__(self, name: str, leader: LeaderEndPoint, broker: FetcherContext) -> None:
        """It owns and closes `leader`."""
        self.name = name
        self._leader = leader
        self._broker = broker
        self._config = config = broker.config
        self._node_id = config.node_id
        self._backoff_s_max = config.replica_fetch_backoff_ms / 1000
        self._backoff = Backoff(self._backoff_s_max)
        self._loop = asyncio.get_running_loop()
        self._session = FetcherSession()
        self._restart_session = False
        self._states: dict[Key, FetchState] = {}
        self._touched: dict[Key, None] = {}  # may change their request in the next fetch
        self._starts_due_s = 0.0  # when all log starts are checked again
        self._pauses: dict[FetchState, asyncio.TimerHandle] = {}
        self._held: dict[Key, asyncio.TimerHandle] = {}  # held back by the quota
        self._work = asyncio.Event()
        self._is_fetching = False
        self._fetch_count = 0
        self._starts = StartFinder(self, leader, broker.from_last_tiered)
        self._aux_states = AuxStateBuilder(
            self, leader, broker.aux_state_of, broker.from_last_tiered
        )
        self._finding: asyncio.Task[None] | None = None
        self._building: dict[FetchState, asyncio.Task[None]] = {}
        self._hurrying: asyncio.Task[None] | None = None
        self._task = self._spawn(self._run(), "")

    def __repr__(self) -> str:
        return f"<ReplicaFetcher {self.name}: {len(self._states)} partitions>"

    def _spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        return self._loop.create_task(work, name=f"fetcher {self.name}{what}")

    # ---- partitions ---------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Return whether it has no partitions."""
        return not self._states

    def state(self, topic_id: bytes, index: int) -> FetchState | None:
        """Return the state of a partition; None if it is not followed here."""
        return self._states.get((topic_id, index))

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Follow a partition in this leader epoch; the same one again changes nothing."""
        key = (partition.topic_id, partition.topic_partition.partition)
        before = self._states.get(key)
        if before is not None:
            if before.partition is partition and before.leader_epoch == leader_epoch:
                return
            self._drop(before)
            # The leader's session has values of an ended epoch.
            self._restart_session = True
        self._states[key] = FetchState(partition, leader_epoch, self._backoff_s_max)
        self._touch(key)

    def remove(self, topic_id: bytes, index: int) -> None:
        """Stop following a partition."""
        state = self._states.pop((topic_id, index), None)
        if state is not None:
            self._drop(state)
            self._touched[topic_id, index] = None

    def stop(self) -> None:
        """Change no log from now on; `stopped` waits for the tasks' end."""
        for task in self._tasks():
            task.cancel()
        for timer in self._held.values():
            timer.cancel()
        for state in self._states.values():
            self._drop(state)
        self._states.clear()
        self._leader.close()

    async def stopped(self) -> None:
        """Return when all tasks have ended."""
        await asyncio.gather(*self._tasks(), return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        named = [task for task in (self._task, self._finding, self._hurrying) if task is not None]
        return [*named, *self._building.values()]

    def _drop(self, state: FetchState) -> None:
        pause = self._pauses.pop(state, None)
        if pause is not None:
            pause.cancel()
        building = self._building.get(state)
        if building is not None:
            building.cancel()

    def fetch_soon(self, state: FetchState) -> None:
        """Fetch or check a partition soon."""
        self._touch(key_of(state))

    def _touch(self, key: Key) -> None:
        """Fetch a partition, or find its start, now if possible."""
        self._touched[key] = None
        self._work.set()
        if self._is_fetching and self._hurrying is None:
            self._hurrying = self._spawn(self._hurry(), ": hurry")

    async def _hurry(self) -> None:
        """End a fetch parked at the leader: it is answered when another request arrives behind
        it."""
        ended = self._fetch_count
        try:
            await self._leader.list_offsets([], LATEST_TIMESTAMP)
        except PeerError:
            return  # then the fetch has failed as well
        finally:
            self._hurrying = None
        # it was too late for that fetch too
        if self._is_fetching and self._touched and self._fetch_count > ended:
            self._hurrying = self._spawn(self._hurry(), ": hurry")

    def is_current(self, state: FetchState) -> bool:
        """Return whether the partition is still followed in this state."""
        return self._states.get(key_of(state)) is state

    # ---- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                self._work.clear()
                self._find_starts()
                self._update_session()
                if self._session.asked:
                    await self._fetch()
                else:
                    await self._work.wait()
            except PeerError as error:
                _log.info("fetcher %s: %s", self.name, error)
                await self._back_off()
            except Exception:  # noqa: BLE001 - the other partitions have to be followed on
                _log.exception("fetcher %s failed and continues", self.name)
                await self._back_off()

    async def _back_off(self) -> None:
        self._session.restart()
        await asyncio.sleep(self._backoff.next_pause(self._broker.rng.uniform(0, 1)))

    def _update_session(self) -> None:
        if self._restart_session:
            self._restart_session = False
            self._session.restart()
        self._touch_risen_starts()
        touched, self._touched = self._touched, {}
        quota = self._broker.quota()
        for key in touched:
            state = self._states.get(key)
            asked = None
            if (
                state is not None
                and state.state is State.FETCHING
                and not (quota is not None and self._holds_back(key, state, quota))
            ):
                log = state.partition.log
                asked = Asked(
                    log.log_end_offset,
                    log.log_start_offset,
                    log.epochs.latest_epoch,
                    state.leader_epoch,
                    self._config.replica_fetch_max_bytes,
                )
            self._session.update(key, asked)

    def _holds_back(self, key: Key, state: FetchState, quota: ReplicationQuota) -> bool:
        """Return whether a partition must wait; it is looked at again soon (KIP-73)."""
        topic, index = state.partition.topic_partition
        if not quota.holds_back(topic, index, self._node_id):
            return False
        if key not in self._held:
            self._held[key] = self._loop.call_later(HELD_BACK_S, self._let_go, key)
        return True

    def _let_go(self, key: Key) -> None:
        del self._held[key]
        self._touch(key)

    def _touch_risen_starts(self) -> None:
        """Report a log start that rose only here (retention, KIP-950) to the leader, within the
        wait of a fetch, even without other changes."""
        now_s = self._loop.time()
        if now_s < self._starts_due_s:
            return
        self._starts_due_s = now_s + self._config.replica_fetch_wait_max_ms / 1000
        for key, asked in self._session.asked.items():
            state = self._states.get(key)
            if state is not None and state.partition.log.log_start_offset != asked.log_start_offset:
                self._touched[key] = None

    async def _fetch(self) -> None:
        """Send one fetch and apply its answer; PeerError if there is none."""
        config, session = self._config, self._session
        topics, forgotten = session.next_request()
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self._node_id, replica_epoch=self._broker.broker_epoch()
            ),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        self._is_fetching = True
        self._fetch_count += 1
        try:
            response = await self._leader.fetch(request)
        finally:
            self._is_fetching = False
        if response.error_code:
            if response.error_code in _SESSION_ERRORS and session.is_incremental:
                session.restart()  # at once: the leader restarted, or evicted the session
                return
            raise PeerError(f"the fetch was refused: {error_name(response.error_code)}")
        session.answered(response.session_id)
        self._backoff.succeeded()
        await self._take(response)

    async def _take(self, response: Any) -> None:
        """Apply an answer partition by partition: each truncation waits for the disk, and other
        tasks run meanwhile, as they do between parts of a large answer."""
        advanced: list[TopicPartition] = []
        room = APPLIED_AT_ONCE
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                state = self._asked_for(key)
                self._touched[key] = None
                if state is None:
                    # The leader assumes that its offsets have arrived, and would not repeat them.
                    self._restart_session = True
                    continue
                room -= 1 + len(data.records or b"") // BYTES_OF_ONE
                if self.guarded(state, self._take_partition, state, data):
                    advanced.append(state.partition.topic_partition)
                if data.diverging_epoch is not None or room <= 0:
                    if advanced:
                        self._broker.on_advanced(advanced)
                        advanced = []
                    await asyncio.sleep(0)
                    room = APPLIED_AT_ONCE
        if advanced:
            self._broker.on_advanced(advanced)

    def _asked_for(self, key: Key) -> FetchState | None:
        """Return the state that an answer is for; None if the request is outdated."""
        asked = self._session.asked.get(key)
        state = self._states.get(key)
        if (
            asked is None
            or state is None
            or state.state is not State.FETCHING
            or state.leader_epoch != asked.leader_epoch
            or state.partition.log.log_end_offset != asked.fetch_offset
        ):
            return None
        return state

    def guarded(self, state: FetchState, work: Callable[..., bool], *args: Any) -> bool:
        """Run work for one partition; a failure affects only this one."""
        try:
            return work(*args)
        except (StorageError, OSError) as error:
            code = error.code if isinstance(error, StorageError) else _OWN_DISK
            if lacks_descriptors(error.__cause__):
                code = ErrorCode.NONE  # of an append, which is retried
            self.fail(state, str(error), fatal=code in (_OWN_DISK, ErrorCode.FENCED_LEADER_EPOCH))
            if code is _OWN_DISK and self._broker.on_disk_failure is not None:
                self._broker.on_disk_failure(state.partition.topic_partition, error)
        except Exception as error:  # noqa: BLE001 - see above
            _log.exception("%s: following failed", state.partition.topic_partition)
            self.fail(state, str(error))
        return False

    # ---- answers ------------------------------------------------------------------------------

    def _take_partition(self, state: FetchState, data: Any) -> bool:
        """Apply the leader's answer for one partition; return whether log end or high watermark
        moved."""
        error = data.error_code
        if error:
            event = event_of(error)
            if event in (Event.OUT_OF_RANGE, Event.MOVED_TO_TIER):
                _log.info(
                    "%s: the leader answered %s", state.partition.topic_partition, error_name(error)
                )
                state.step(event)
                self._work.set()
            else:
                self.fail(state, error_name(error), fatal=event is Event.FATAL)
            return False
        if data.diverging_epoch is not None:
            end = OffsetAndEpoch(data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
            return self._diverged(state, end, data)
        appended = False
        if data.records:
            appended = self._append(state, data.records)
            quota = self._broker.quota()
            if quota is not None:
                quota.record(*state.partition.topic_partition, len(data.records))
            if not appended:
                # Batches of an epoch that is unknown here (KAFKA-18723).
                self.fail(state, "no batch of this leader epoch")
                return False
        state.step(Event.PROGRESS)
        return self._follow_offsets(state, data) or appended

    def _follow_offsets(self, state: FetchState, data: Any) -> bool:
        if data.high_watermark < 0:
            return False
        return state.partition.advance_as_follower(data.high_watermark, data.log_start_offset)

    def _append(self, state: FetchState, records: memoryview) -> bool:
        """Append unchanged; False if nothing was appended."""
        partition, epoch = state.partition, state.leader_epoch
        now_ms = self.now_ms()
        log = partition.log
        if log.log_start_offset == log.log_end_offset:
            first = read_header(records)
            if first.base_offset < log.log_end_offset < first.next_offset:
                # The leader's log starts in the middle of this whole batch.
                partition.followed_log(epoch).truncate_fully_and_start_at(
                    first.base_offset, now_ms=now_ms
                )
        result = partition.append_as_follower(records, leader_epoch=epoch, now_ms=now_ms)
        return result is not None

    def _diverged(self, state: FetchState, leader_end: OffsetAndEpoch, data: Any) -> bool:
        """Truncate what the leader does not have (KIP-101, KIP-595)."""
        log = state.partition.log
        before = (log.log_end_offset, log.epochs.latest_epoch)
        decision = follower_truncation(
            leader_end,
            log.end_offset_for_epoch(leader_end.leader_epoch),
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        self.cut(state, decision.offset)
        if (log.log_end_offset, log.epochs.latest_epoch) == before:
            self.fail(state, f"diverges, but there is nothing to truncate: {leader_end}")
            return False
        state.step(Event.PROGRESS)
        # Only now this log is a prefix of the leader's, so its offsets apply here.
        return decision.done and self._follow_offsets(state, data)

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._broker.clock.wall_ms()

    def cut(self, state: FetchState, offset: int) -> None:
        """Truncate the log to `offset`."""
        partition = state.partition
        log = partition.log
        offset = batch_boundary(log, max(offset, 0))
        _log.log(
            logging.WARNING if offset < log.high_watermark else logging.INFO,
            "%s: truncating from %d to %d, high watermark %d, leader epoch %d",
            partition.topic_partition,
            log.log_end_offset,
            offset,
            log.high_watermark,
            state.leader_epoch,
        )
        partition.followed_log(state.leader_epoch).truncate_to(offset, self.now_ms())

    # ---- failures -----------------------------------------------------------------------------

    def fail(self, state: FetchState, why: str, *, fatal: bool = False) -> None:
        """Leave the partition out for a while, or until newer metadata comes."""
        if fatal:
            is_news = why != ErrorCode.FENCED_LEADER_EPOCH.name  # otherwise a leader moved cleanly
            level = logging.WARNING if is_news else logging.INFO
            _log.log(level, "%s: stopped following: %s", state.partition.topic_partition, why)
            state.step(Event.FATAL)
            return
        _log.info("%s: fetching again: %s", state.partition.topic_partition, why)
        due = state.pause(self._loop.time(), self._broker.rng.uniform(0, 1))
        self._pauses[state] = self._loop.call_at(due, self._resume, state)

    def _resume(self, state: FetchState) -> None:
        del self._pauses[state]
        state.step(Event.PAUSE_OVER)
        self._touch(key_of(state))

    # ---- elsewhere ----------------------------------------------------------------------------

    def _find_starts(self) -> None:
        """Start tasks that find where partitions continue whose offset the leader lacks locally."""
        lost = []
        for state in self._states.values():
            if state.state is State.TRUNCATING:
                lost.append(state)
            elif state.state is State.BUILDING_REMOTE_LOG_AUX and state not in self._building:
                name = f": remote {state.partition.topic_partition}"
                self._building[state] = self._spawn(self._build(state), name)
        if lost and self._finding is None:
            self._finding = self._spawn(self._find(lost), ": offsets")

    async def _find(self, lost: list[FetchState]) -> None:
        try:
            await self._starts.find(lost)
        finally:
            self._finding = None
            self._work.set()

    async def _build(self, state: FetchState) -> None:
        try:
            await self._aux_states.build(state)
        finally:
            self._building.pop(state, None)
            self._work.set()
