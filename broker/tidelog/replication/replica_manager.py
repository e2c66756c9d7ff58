"""The partitions of this broker: which are here, by the cluster's image, and their requests.

It owns the partitions, those that are offline, their purgatories and the role listeners; the order
"append to all, then wake"; and the progress of followers by their reads. The publisher calls it
first with each new image; the API handlers, the fetchers and the internal topics call it too. It
does not know wire versions.

Kafka: ReplicaManager.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_of_the_brokers
from tidelog.replication.alter_partition import AlterPartitionManager
from tidelog.replication.assigned_logs import AssignedLogs
from tidelog.replication.backlog import AT_ONCE_MAX, Backlog
from tidelog.replication.delayed_answers import DelayedAnswers
from tidelog.replication.lost_logs import LOST, UNREAD
from tidelog.replication.partition import Partition, ReadResult
from tidelog.replication.purgatory import Purgatory
from tidelog.replication.replica_state import ReplicaRules
from tidelog.replication.roles import RoleListeners
from tidelog.turns import Turns
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.metrics.meters import DataPathCounts
    from tidelog.quotas.replication import ReplicationQuota
    from tidelog.replication.aux_state import AuxStateOf
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.partition import FetchParams
    from tidelog.replication.roles import RoleListener
    from tidelog.seams import Clock, Timers
    from tidelog_storage.config import LogConfig
    from tidelog_storage.manager import LogManager

__all__ = ["ReplicaManager"]

_log = logging.getLogger(__name__)

CONFIGURED_AT_ONCE = 100  # partitions: about 10 ms, if each is of another topic
_RECOVERING = 1
_OPEN_AGAIN_S = 1.0
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class ReplicaManager:
    """The partitions that the cluster's image assigns to this broker.

    Invariant: each partition of `image` whose replicas name this broker is in `_partitions`, in
    `_backlog` until its log is opened, or in `_offline` if that failed. `_partitions` has no other;
    deleted ones whose logs are still there are in `_leaving`, and in `_backlog`.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        timers: Timers,
        logs: LogManager,
        log_config: Callable[[ClusterImage, str], LogConfig],
        *,
        on_disk_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        """`timers` is the running loop; `log_config` the configuration of a topic under an image.
        `on_disk_failure` is called with a log directory in which a log could not be opened or
        written: the partition is then offline."""
        self.node_id = node_id
        self.clock = clock
        self.logs = logs
        self.image: ClusterImage | None = None
        self.fetch_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.produce_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.delete_records_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers, purge_min=1)
        # The purgatories to check on a change of role; those of the remote tier are added.
        self.purgatories = [
            self.fetch_purgatory,
            self.produce_purgatory,
            self.delete_records_purgatory,
        ]
        self.rules = ReplicaRules(lambda: int(clock.monotonic() * 1000))
        self.rules.append_failed = self._append_failed
        self.counts: DataPathCounts | None = None
        """Counts records of producers, and those read by consumers, from disk and from the remote
        tier; None if metrics are off. Set before the handlers are built."""
        self._leader_quota: ReplicationQuota | None = None
        self.follower_quota: ReplicationQuota | None = None
        """Limits what the followers on this broker fetch; None without a limit."""
        self._log_config = log_config
        self._on_disk_failure = on_disk_failure
        self._timers = timers
        self.isr_changes: AlterPartitionManager | None = None
        self.ask_controller: Callable[[Any], Awaitable[Any]] | None = None
        self._roles = RoleListeners()
        self.aux_state_of: AuxStateOf | None = None
        """What followers need of the remote tier; set together with it, before any follower."""
        self._assigned = AssignedLogs(node_id, clock, logs, self.suspect)
        self.lost_logs = self._assigned.lost
        self.on_follower_begins: Callable[[Partition, int], None] | None = None
        self.on_opening: list[Callable[[TopicImage, Sequence[PartitionImage]], None]] = []
        """Called with a topic and those of its partitions whose logs were opened late, or went
        offline, without a new image."""
        self.on_suspect: Callable[[TopicPartition], None] | None = None
        """Called with a partition in which a read, or its opening, found damage."""
        self.suspects: set[TopicPartition] = set()
        """Suspect partitions from before there was a listener."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: dict[tuple[str, int], bytes] = {}  # the value is the topic id
        self._backlog = Backlog(timers, self._settle)
        self._leaving: dict[tuple[str, int], Partition] = {}
        self._to_configure: dict[str, None] = {}  # topics
        self._configuring: Turns | None = None

    def limit_replication(
        self, leader: ReplicationQuota | None, follower: ReplicationQuota | None
    ) -> None:
        """Limit what this broker's leaders send, and what its followers fetch, from now on."""
        self._leader_quota, self.follower_quota = leader, follower

    # ---- the image ----------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow a new image: delete, create, lead, reconfigure; then wake parked requests."""
        self.image = image
        self.rules.brokers = image.brokers
        if delta.old is None:
            self._assigned.set_strays_aside(image)
        self._backlog.begin(None if delta.old is None else AT_ONCE_MAX)  # all before it serves
        for deleted in delta.deleted_topics:
            self._delete_topic(deleted)
        for changed in delta.topics.values():
            self._apply_topic(changed.new, changed.partitions)
        for name in image.topics if delta.configures(self.node_id) else delta.topic_configs:
            topic, change = image.topics.get(name), delta.topics.get(name)
            if topic is not None and (change is None or change.old is not None):
                self._to_configure[name] = None
        if self._to_configure and self._configuring is None:
            self._configuring = Turns(self._timers, self._configure(), self._configured)
            self._configuring.begin()
        if delta.brokers and self.delete_records_purgatory:
            self.delete_records_purgatory.check_all(list(self._partitions))  # the dead don't count

    def _settle(self, keys: Sequence[TopicPartition]) -> None:
        """Make replicas that waited what the image says now: delete them, then open them."""
        assert self.image is not None
        room = self._backlog.begin(None)
        opened: dict[str, list[PartitionImage]] = {}
        for key in keys:
            partition = self._leaving.pop(key, None)
            if partition is not None:
                self._end(partition, delete=True)
            state = self.image.partition(*key)
            if state is not None:
                opened.setdefault(key.topic, []).append(state)
        for name, states in opened.items():
            topic = self.image.topics[name]
            self._apply_topic(topic, states)
            self._tell_opened(topic, states)
        self._backlog.begin(room)

    def _tell_opened(self, topic: TopicImage, states: Sequence[PartitionImage]) -> None:
        for listener in self.on_opening:
            listener(topic, states)

    def _apply_topic(self, topic: TopicImage, partitions: Iterable[PartitionImage]) -> None:
        config: LogConfig | None = None
        for state in partitions:
            if self.node_id not in state.replicas:
                self._leave((topic.name, state.partition), delete=False)
                continue
            key = TopicPartition(topic.name, state.partition)
            partition = self._partitions.get(key)
            if partition is None:
                if self._backlog.takes(key, at_once=is_of_the_brokers(topic.name)):
                    continue
                assert self.image is not None
                config = config or self._log_config(self.image, topic.name)
                partition = self._open(key, topic.topic_id, state, config)
                if partition is None:
                    continue
            if state.partition_epoch > partition.partition_epoch or (
                # the answer to a change of the ISR came first, and does not contain the replicas
                state.partition_epoch == partition.partition_epoch
                and state.replicas != partition.replicas
            ):
                self._update(partition, state)

    def _update(self, partition: Partition, state: PartitionImage) -> None:
        key = partition.topic_partition
        before = (partition.is_leader, partition.leader_epoch)
        partition.update(state)
        if before != (partition.is_leader, partition.leader_epoch):
            self._roles.changed(partition)
        if state.leader_recovery_state == _RECOVERING and self.isr_changes is not None:
            self.isr_changes.submit(partition.propose_recovered())
        self._wake_all(key)

    def _open(
        self, key: TopicPartition, topic_id: bytes, state: PartitionImage, config: LogConfig
    ) -> Partition | None:
        """Open or create a partition; a directory that fails takes it offline, not the broker.

        Kafka opens an offline one at the next start only; here the next change of its own record
        does, unless its directory has failed.
        """
        try:
            log = self._assigned.open(key, topic_id, state, config)
        except (OSError, StorageError, CheckpointError) as error:
            self._take_offline(key, topic_id, error)
            return None
        self._offline.pop(key, None)
        partition = self._partitions[key] = Partition(key, topic_id, log, self.node_id, self.rules)
        return partition

    def suspect(self, key: TopicPartition) -> None:
        """Have a partition scrubbed that seems damaged."""
        if self.on_suspect is None:
            self.suspects.add(key)
        else:
            self.on_suspect(key)

    def _let_go(self, partition: Partition) -> None:
        del self._partitions[partition.topic_partition]
        self._roles.stopped(partition, delete=False)
        partition.remove()

    def _take_offline(self, key: TopicPartition, topic_id: bytes, error: Exception) -> None:
        is_told = self._offline.get(key) == topic_id
        self._offline[key] = topic_id
        if isinstance(error, OSError) and not lacks_descriptors(error):
            self.disk_failed(key, error)
            return
        if error not in (LOST, UNREAD) or not is_told:
            _log.error("%s is offline: %s", key, error)
        if lacks_descriptors(error):
            self._timers.call_at(self._timers.time() + _OPEN_AGAIN_S, self._open_again, key)

    def directory_failed(self, log_dir: str, error: OSError) -> None:
        """Take all partitions of a failed log directory offline, as Kafka does."""
        lost = [
            partition
            for partition in self._partitions.values()
            if self.logs.log_dir(partition.topic_partition) == log_dir
        ]
        for partition in lost:
            self._let_go(partition)
            self._offline[partition.topic_partition] = partition.topic_id
        self.logs.fail(log_dir, error)
        for partition in lost:
            self._wake_all(partition.topic_partition)
        if self.image is not None:
            for name in sorted({partition.topic_partition.topic for partition in lost}):
                topic = self.image.topics.get(name)
                if topic is not None:
                    self._tell_opened(topic, topic.partitions)

    def _open_again(self, key: TopicPartition) -> None:
        """Open a log again that failed to open only for lack of descriptors."""
        topic = None if self.image is None else self.image.topics.get(key.topic)
        if key in self._offline and topic is not None:
            self._backlog.begin()
            self._apply_topic(topic, topic.partitions)
            self._tell_opened(topic, topic.partitions)

    def disk_failed(
        self, key: TopicPartition, error: Exception, log_dir: str | None = None
    ) -> None:
        """The log of a partition could not be written: report its directory (`log_dir` if that is
        not the current one) to `on_disk_failure`.

        An append or a read that lacked a descriptor is not a disk failure.
        """
        if lacks_descriptors(error.__cause__):
            return
        if self._on_disk_failure is not None:
            self._on_disk_failure(log_dir or self.logs.log_dir_wanted(key), error)

    def _configure(self) -> Iterator[None]:
        """Give topics, and their partitions, the settings that the image has for them; yield after
        each `CONFIGURED_AT_ONCE`."""
        count = 0
        while self._to_configure:
            name = next(iter(self._to_configure))
            del self._to_configure[name]
            topic = None if self.image is None else self.image.topics.get(name)
            if topic is None or self.image is None:
                continue  # deleted meanwhile
            config = self._log_config(self.image, name)
            for state in topic.partitions:
                partition = self._partitions.get((name, state.partition))
                if partition is not None:
                    partition.log.config = config
                    partition.config_changed()
                    self._roles.config_changed(partition)
                    self._wake_all(partition.topic_partition)
                count += 1
                if count % CONFIGURED_AT_ONCE == 0:
                    yield

    def _configured(self) -> None:
        self._configuring = None

    def _delete_topic(self, topic: TopicImage) -> None:
        if self.counts is not None:
            self.counts.forget(topic.name)
        for state in topic.partitions:
            key = TopicPartition(topic.name, state.partition)
            partition = self._partitions.get(key)
            if partition is not None and self._backlog.takes(key):
                self._leaving[key] = self._partitions.pop(key)  # requests do not find it any more
            else:
                self._leave(key, delete=True)

    def _leave(self, key: tuple[str, int], *, delete: bool) -> None:
        if self._offline.pop(key, None) is not None:
            self.logs.forget_offline(TopicPartition(*key))
        self.lost_logs.forget(TopicPartition(*key))
        partition = self._partitions.pop(key, None)
        if partition is not None:
            self._end(partition, delete=delete)

    def _end(self, partition: Partition, *, delete: bool) -> None:
        self._roles.stopped(partition, delete=delete)
        partition.remove()
        self._assigned.delete(partition.topic_partition)
        self._wake_all(partition.topic_partition)

    def follow_roles(self, listener: RoleListener) -> None:
        """Add a role listener: the remote tier, before the first image, or the moves of
        replicas."""
        self._roles.listeners.append(listener)

    def follower_begins(self, partition: Partition, replica_id: int) -> None:
        """Report that a follower asked where the local log of a partition begins."""
        if self.on_follower_begins is not None and replica_id in partition.replicas:
            self.on_follower_begins(partition, replica_id)

    def log_replaced(self, partition: Partition) -> None:
        """Report that a replica's log was replaced by one in another directory: listeners start
        again, as after an election."""
        self._roles.changed(partition)
        self._wake_all(partition.topic_partition)

    # ---- look-up ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        """Return the replica, or the error for a request."""
        partition = self._partitions.get((topic, index)) or self._opened(topic, index)
        return self._missing(topic, index) if partition is None else partition

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """Like `partition`, by topic id."""
        name = None if self.image is None else self.image.topic_names.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self.partition(name, index)

    def _opened(self, topic: str, index: int) -> Partition | None:
        """Open a replica that waits for that, if there is room, because it is asked for."""
        key = TopicPartition(topic, index)
        if self.image is None or self.image.partition(topic, index) is None:
            return None
        return self._partitions.get(key) if self._backlog.settle_asked(key) else None

    def _missing(self, topic: str, index: int) -> ErrorCode:
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.image is not None and self.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def hosted(self, key: TopicPartition) -> Partition | None:
        """Return the replica; None if none is open here."""
        return self._partitions.get(key)

    def partitions(self) -> Iterator[Partition]:
        """Return all replicas here."""
        return iter(list(self._partitions.values()))

    @property
    def offline_count(self) -> int:
        """Return the number of replicas of this broker that are offline."""
        return len(self._offline)

    # ---- appending ----------------------------------------------------------------------------

    def _append_failed(self, partition: Partition, error: StorageError) -> None:
        """Handle a failed append. If the disk failed, this broker stops leading the partition, as
        in Kafka, where its directory goes offline: other brokers' disks may work."""
        cause, key = error.__cause__, partition.topic_partition
        if lacks_descriptors(cause):
            return  # the next append may get a descriptor
        if isinstance(cause, OSError) and self._partitions.get(key) is partition:
            self._let_go(partition)
            self._take_offline(key, partition.topic_id, cause)
            # Later: a woken operation may be in the middle of its own append.
            self._timers.call_at(self._timers.time(), self._wake_all, key)

    def appended(self, keys: Sequence[tuple[str, int]]) -> None:
        """Wake fetches after all appends of a request, and produces if a high watermark moved."""
        if len(keys) == 1:
            self.fetch_purgatory.check(keys[0])
            if self.produce_purgatory:
                self.produce_purgatory.check(keys[0])
        else:
            self.fetch_purgatory.check_all(keys)
            if self.produce_purgatory:
                self.produce_purgatory.check_all(keys)

    def await_acks(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """Wait until each partition's high watermark reaches its offset (acks=-1).

        If the result is `decided`, `on_done` is not called; else it is called exactly once, unless
        the operation is cancelled.
        """
        operation = DelayedAnswers(waits, Partition.acknowledged, on_done)
        if not operation.decided:
            self.produce_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    # ---- reading ------------------------------------------------------------------------------

    def read(
        self,
        requests: Iterable[FetchedPartition],
        params: FetchParams,
        *,
        max_bytes: int,
        min_one_batch: bool = True,
        record_progress: bool = True,
    ) -> list[ReadResult]:
        """Read partitions in order, together at most `max_bytes`, but at least one batch if there
        is one.

        A follower's fetch offsets are its progress, recorded once per request (`record_progress`);
        call `wake_moved` when the fetch is answered or parked.
        """
        results: list[ReadResult] = []
        is_progress = params.replica_id >= 0 and record_progress
        partitions = self._partitions
        quota = self._leader_quota if params.replica_id >= 0 else None
        for request in requests:
            topic = request.topic
            partition = None
            if topic is not None:
                index = request.partition
                partition = partitions.get((topic, index)) or self._opened(topic, index)
            if partition is None:
                result = self._missing_for(request)
            elif request.topic_id not in (partition.topic_id, ZERO_UUID):
                result = ReadResult(ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                limit = min(request.max_bytes, max_bytes)
                must_read = min_one_batch
                if quota is not None and quota.holds_back(
                    partition.topic_partition.topic, request.partition, params.replica_id
                ):
                    limit, must_read = 0, False
                try:
                    result = partition.read(request, params, limit, min_one_batch=must_read)
                except Exception as error:  # noqa: BLE001 - Kafka: readFromLog, the others go on
                    result = self._failed_read(partition, error)
                if is_progress and self._record_fetch(partition, request, params, result):
                    params.moved.append(partition.topic_partition)
                if result.size:
                    min_one_batch = False
                    max_bytes = max(0, max_bytes - result.size)
                    if quota is not None:
                        quota.record(
                            partition.topic_partition.topic, request.partition, result.size
                        )
            results.append(result)
        return results

    def _failed_read(self, partition: Partition, error: Exception) -> ReadResult:
        if not isinstance(error, StorageError):
            _log.error("read of %s failed", partition.topic_partition, exc_info=error)
            return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        _log.error("read of %s failed: %s", partition.topic_partition, error)
        if isinstance(error.__cause__, OSError):
            self.disk_failed(partition.topic_partition, error)
        else:
            self.suspect(partition.topic_partition)
        return ReadResult(error.code)

    def _record_fetch(
        self,
        partition: Partition,
        request: FetchedPartition,
        params: FetchParams,
        result: ReadResult,
    ) -> bool:
        """Record a follower's progress after its read; return whether a watermark may have
        moved."""
        if result.error or result.diverging is not None:
            return False
        if not partition.record_fetch(request, params):
            result.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self.isr_changes is not None:
            change = partition.propose_expansion(params.replica_id)
            if change is not None:  # rare, but checked for each partition of every fetch
                self.isr_changes.submit(change)
        moved = partition.advance_high_watermark()
        result.high_watermark = partition.log.high_watermark
        result.last_stable_offset = partition.log.last_stable_offset
        return moved or bool(self.delete_records_purgatory)

    def wake_moved(self, params: FetchParams) -> None:
        """Wake operations that wait for watermarks moved by a follower's read.

        A woken operation may append, and must find the follower's fetch parked; otherwise that
        fetch would miss the append between its read and its parking.
        """
        moved, params.moved = params.moved, []
        for key in moved:
            self._wake_all(key)

    def _missing_for(self, request: FetchedPartition) -> ReadResult:
        if request.topic is None:
            result = ReadResult(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            result = ReadResult(self._missing(request.topic, request.partition))
        if result.error in _UNKNOWN:
            # an empty list, not null: Kafka answers these without reading the log
            result.aborted = ()
        return result

    # ---- deleting -----------------------------------------------------------------------------

    def await_deletion(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """Wait until every live replica's log start reached the offset; otherwise like
        `await_acks`."""
        operation = DelayedAnswers(waits, Partition.records_deleted, on_done)
        if not operation.decided:
            self.delete_records_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    # ---- waking, and the controller ----------------------------------------------------------

    def _wake_all(self, key: tuple[str, int]) -> None:
        """Check all parked requests after a change of role, in-sync replicas or configuration."""
        for purgatory in self.purgatories:
            purgatory.check(key)

    def use_controller(
        self,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        lag_ms_max: int,
    ) -> None:
        """Start to manage in-sync replicas: changes are sent to the active controller, and lagging
        followers are detected.

        `broker_epoch` is this broker's, -1 before it is registered; `lag_ms_max`
        replica.lag.time.max.ms.
        """
        self.ask_controller = ask_controller
        self.rules.lag_ms_max = lag_ms_max
        self.isr_changes = AlterPartitionManager(
            self.node_id, ask_controller, broker_epoch, self._isr_settled
        )
        self.isr_changes.watch(self.partitions, self._timers, lag_ms_max)

    def _isr_settled(self, partition: Partition) -> None:
        self._wake_all(partition.topic_partition)

    def finish_deletions(self) -> None:
        """Delete at once what waits for it: the next start would take it for strays."""
        for key in list(self._leaving):
            self._end(self._leaving.pop(key), delete=True)

    async def stop(self) -> None:
        """No more changes of in-sync replicas; `close` comes after."""
        if self.isr_changes is not None:
            await self.isr_changes.close()

    def close(self) -> None:
        """Close: answer parked requests with what there is."""
        self._backlog.clear()
        if self._configuring is not None:
            self._configuring.cancel()
        for purgatory in self.purgatories:
            purgatory.close()
