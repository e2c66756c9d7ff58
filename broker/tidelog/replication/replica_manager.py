"""The partitions of this broker: from the cluster's image to open logs, and the doors append and
read.

Owns: which partitions are here, the purgatories of Produce, Fetch and DeleteRecords, and the order
"append to all, then wake". Called by the API handlers, the internal topics and, first of all
listeners, by the metadata log when a new image applies. Knows no wire versions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.replication.delayed_answers import DelayedAnswers
from tidelog.replication.partition import Partition, ReadResult
from tidelog.replication.purgatory import Purgatory
from tidelog.replication.replica_state import ReplicaRules
from tidelog.replication.roles import RoleListeners
from tidelog.replication.strays import strays
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tidelog.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.replication.aux_state import AuxStateOf
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.isr_proposals import IsrProposals
    from tidelog.replication.partition import FetchParams
    from tidelog.replication.purgatory import Timers
    from tidelog.replication.roles import RoleListener
    from tidelog.seams import Clock
    from tidelog_storage.config import LogConfig
    from tidelog_storage.manager import LogManager
    from tidelog_storage.types import AppendResult

__all__ = ["DelayedAnswers", "ReplicaManager"]

_log = logging.getLogger(__name__)

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_RECOVERING = 1


class ReplicaManager:
    """Hosts the partitions of this broker.

    Invariant: `_partitions` has exactly the partitions of `image` whose replicas name this broker
    and whose log could be opened; the others of them are in `_offline`.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        timers: Timers,
        logs: LogManager,
        log_config: Callable[[ClusterImage, str], LogConfig],
        *,
        lag_ms_max: int = 30_000,
        on_disk_failure: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        """`timers` is the running loop; `log_config` the configuration of a topic under an image;
        `lag_ms_max` replica.lag.time.max.ms. `on_disk_failure` is told of a log directory in which
        a log could not be opened or written: the partition is offline then."""
        self.node_id = node_id
        self.clock = clock
        self.logs = logs
        self.image: ClusterImage | None = None
        self.fetch_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.produce_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
        self.delete_records_purgatory: Purgatory[tuple[str, int]] = Purgatory(timers, purge_min=1)
        # All that wait for a role to change; those of the remote tier join them.
        self.purgatories = [
            self.fetch_purgatory,
            self.produce_purgatory,
            self.delete_records_purgatory,
        ]
        self.rules = ReplicaRules(lambda: int(clock.monotonic() * 1000), lag_ms_max)
        self._log_config = log_config
        self._on_disk_failure = on_disk_failure
        self._timers = timers
        self._isr_proposals: IsrProposals | None = None
        self._broker_epoch: Callable[[], int] | None = None
        self.ask_controller: Callable[[Any], Awaitable[Any]] | None = None
        self._roles = RoleListeners()
        self.aux_state_of: AuxStateOf | None = None
        """What followers ask of the remote tier; set with it, before there are any."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: dict[tuple[str, int], bytes] = {}  # to the topic id

    # ---- the image ----------------------------------------------------------------------------

    def apply(self, old: ClusterImage | None, new: ClusterImage) -> None:
        """Follow a new image: delete, create, lead, reconfigure; then wake whom that concerns.

        A broker of several waits for the first image that has its registration: what older ones say
        of it (topics it lacks, partitions it leads) was for an earlier life.
        """
        if self.image is None and self._broker_epoch is not None:
            if not 0 <= self._broker_epoch() <= new.offset:
                return
            old = None
        self.image = new
        self.rules.brokers = new.brokers
        if old is None:
            self._delete_strays(new)
        else:
            for name, topic in old.topics.items():
                if topic.topic_id not in new.topic_names:
                    self._delete_topic(name, topic)
        defaults_changed = old is None or old.broker_configs != new.broker_configs
        for name, topic in new.topics.items():
            before = None if old is None else old.topics.get(name)
            if before is not topic:
                self._apply_topic(topic)
            if before is not None and (
                defaults_changed
                or (old is not None and old.topic_config(name) != new.topic_config(name))
            ):
                self._reconfigure(topic)
        if old is not None and old.brokers is not new.brokers and self.delete_records_purgatory:
            self.delete_records_purgatory.check_all(list(self._partitions))  # the dead don't count

    def _apply_topic(self, topic: TopicImage) -> None:
        config: LogConfig | None = None
        for state in topic.partitions:
            if self.node_id not in state.replicas:
                self._leave((topic.name, state.partition), delete=False)
                continue
            key = TopicPartition(topic.name, state.partition)
            partition = self._partitions.get(key)
            if partition is None:
                assert self.image is not None
                config = config or self._log_config(self.image, topic.name)
                partition = self._open(key, topic.topic_id, config)
                if partition is None:
                    continue
            if state.partition_epoch > partition.partition_epoch or (
                # the answer to a change of the ISR came first, and says nothing of the replicas
                state.partition_epoch == partition.partition_epoch
                and state.replicas != partition.replicas
            ):
                self._update(partition, state)

    def _update(self, partition: Partition, state: PartitionImage) -> None:
        key = partition.topic_partition
        before = (partition.is_leader, partition.leader_epoch)
        try:
            partition.update(state)
        except OSError as error:  # the new leader epoch could not be made durable
            self._lose(partition, error)
        else:
            if before != (partition.is_leader, partition.leader_epoch):
                self._roles.changed(partition)
        if state.leader_recovery_state == _RECOVERING and self._isr_proposals is not None:
            self._isr_proposals.recovered(partition)
        self._wake_all(key)

    def _open(self, key: TopicPartition, topic_id: bytes, config: LogConfig) -> Partition | None:
        """Open or create a log; a directory that fails makes this partition offline, not the
        broker."""
        try:
            log = self.logs.get(key)
            if log is not None and log.topic_id not in (None, topic_id):
                self._delete_log(key)  # of a topic of that name which is gone
                log = None
            if log is None:
                log = self.logs.create(key, topic_id, config)
            else:
                log.config = config
        except (OSError, StorageError, CheckpointError) as error:
            self._take_offline(key, topic_id, error)
            return None
        self._offline.pop(key, None)
        partition = self._partitions[key] = Partition(key, topic_id, log, self.node_id, self.rules)
        return partition

    def _lose(self, partition: Partition, error: OSError) -> None:
        del self._partitions[partition.topic_partition]
        self._roles.stopped(partition, delete=False)
        partition.remove()
        self._take_offline(partition.topic_partition, partition.topic_id, error)

    def _take_offline(self, key: TopicPartition, topic_id: bytes, error: Exception) -> None:
        _log.error("%s is offline: %s", key, error)
        self._offline[key] = topic_id
        if isinstance(error, OSError):
            self.disk_failed(key, error)

    def disk_failed(
        self, key: TopicPartition, error: Exception, log_dir: str | None = None
    ) -> None:
        """The log of a partition could not be written: tell who knows what becomes of its
        directory, which is `log_dir` if it is not the current one."""
        if self._on_disk_failure is not None:
            self._on_disk_failure(log_dir or self.logs.log_dir_wanted(key), error)

    def _reconfigure(self, topic: TopicImage) -> None:
        assert self.image is not None
        config = self._log_config(self.image, topic.name)
        for state in topic.partitions:
            partition = self._partitions.get((topic.name, state.partition))
            if partition is not None:
                partition.log.config = config
                partition.config_changed()
                self._roles.config_changed(partition)
                self._wake_all(partition.topic_partition)

    def _delete_topic(self, name: str, topic: TopicImage) -> None:
        for state in topic.partitions:
            self._leave((name, state.partition), delete=True)

    def _leave(self, key: tuple[str, int], *, delete: bool) -> None:
        self._offline.pop(key, None)
        partition = self._partitions.pop(key, None)
        if partition is not None:
            self._roles.stopped(partition, delete=delete)
            partition.remove()
            self._delete_log(partition.topic_partition)
            self._wake_all(partition.topic_partition)

    def _delete_log(self, key: TopicPartition) -> None:
        try:
            self.logs.delete(key, self.clock.wall_ms())
        except OSError as error:
            _log.error("the log of %s could not be deleted: %s", key, error)

    def _delete_strays(self, image: ClusterImage) -> None:
        for key in strays(self.logs, image, self.node_id):
            _log.warning("deleting the stray log of %s", key)
            self._delete_log(key)

    def follow_roles(self, listener: RoleListener) -> None:
        """Tell who has the remote tier, before the first image, or who moves replicas."""
        self._roles.listeners.append(listener)

    def log_replaced(self, partition: Partition) -> None:
        """Its log lies in another directory now, and is another object: whoever knows the old one
        begins anew, as after an election."""
        self._roles.changed(partition)
        self._wake_all(partition.topic_partition)

    # ---- look-up ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        """The replica here, or what to tell who asks for it."""
        partition = self._partitions.get((topic, index))
        return self._missing(topic, index) if partition is None else partition

    def partition_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """Like `partition`, by topic id."""
        name = None if self.image is None else self.image.topic_names.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if name is None else self.partition(name, index)

    def _missing(self, topic: str, index: int) -> ErrorCode:
        if (topic, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.image is not None and self.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def partitions(self) -> Iterator[Partition]:
        """All replicas here."""
        return iter(list(self._partitions.values()))

    # ---- appending ----------------------------------------------------------------------------

    def append(
        self,
        partition: Partition,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
    ) -> AppendResult:
        """Append one batch; StorageError says why not. Nobody is woken before `appended`."""
        try:
            return partition.append(
                records,
                acks=acks,
                now_ms=now_ms,
                produce_version=produce_version,
                from_client=from_client,
            )
        except StorageError as error:
            self.append_refused(partition, error)
            raise

    def append_refused(self, partition: Partition, error: StorageError) -> None:
        """Nothing was appended. If the disk refused it, this broker leads the partition no more,
        as in Kafka, where its directory goes offline: others may have a disk that works."""
        cause, key = error.__cause__, partition.topic_partition
        if isinstance(cause, OSError) and self._partitions.get(key) is partition:
            self._lose(partition, cause)
            # Later: who is woken may be in the middle of what wanted to append.
            self._timers.call_at(self._timers.time(), self._wake_all, key)

    def appended(self, keys: Sequence[tuple[str, int]]) -> None:
        """All appends of one request are done: wake fetches, and produces if a high watermark
        moved."""
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
        """acks=-1: wait until each partition's high watermark reaches its offset.

        If the answer has `decided`, it is there already and `on_done` will not be called; else
        `on_done` is, exactly once, unless the operation is cancelled.
        """
        operation = DelayedAnswers(waits, Partition.acknowledged, on_done)
        if not operation.decided:
            self.produce_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    def _wake_all(self, key: tuple[str, int]) -> None:
        """Role, in-sync replicas or configuration changed: everything parked here looks again."""
        for purgatory in self.purgatories:
            purgatory.check(key)

    # ---- in-sync replicas ---------------------------------------------------------------------

    def use_controller(
        self,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
    ) -> None:
        """From now on this broker may lead partitions with followers: changes of their in-sync
        replicas are asked of the active controller, and followers that lag are looked for.

        `broker_epoch` is this broker's, -1 before it is registered.
        """
        # Clusters alone need them.
        from tidelog.replication.alter_partition import AlterPartitionManager  # noqa: PLC0415
        from tidelog.replication.isr_proposals import IsrProposals  # noqa: PLC0415

        self._broker_epoch = broker_epoch
        self.ask_controller = ask_controller
        self._isr_proposals = IsrProposals(
            AlterPartitionManager(self.node_id, ask_controller, broker_epoch, self._isr_settled),
            self.partitions,
            self._timers,
            self.rules.lag_ms_max,
        )

    def _isr_settled(self, partition: Partition) -> None:
        self._wake_all(partition.topic_partition)

    def _record_fetch(
        self,
        partition: Partition,
        request: FetchedPartition,
        params: FetchParams,
        result: ReadResult,
    ) -> bool:
        """Note a follower's progress after its read; whether a watermark may have moved."""
        if result.error or result.diverging is not None:
            return False
        if not partition.record_fetch(request, params):
            result.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self._isr_proposals is not None:
            self._isr_proposals.expand(partition, params.replica_id)
        moved = partition.advance_high_watermark()
        result.high_watermark = partition.log.high_watermark
        result.last_stable_offset = partition.log.last_stable_offset
        return moved or bool(self.delete_records_purgatory)

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

        A follower's fetch offsets are its progress, recorded once per request
        (`record_progress`); `wake_moved` is to follow, when the fetch is answered or parked.
        """
        results: list[ReadResult] = []
        is_progress = params.replica_id >= 0 and record_progress
        partitions = self._partitions
        for request in requests:
            topic = request.topic
            partition = None if topic is None else partitions.get((topic, request.partition))
            if partition is None:
                result = self._missing_for(request)
            elif request.topic_id not in (partition.topic_id, ZERO_UUID):
                result = ReadResult(ErrorCode.INCONSISTENT_TOPIC_ID)
            else:
                limit = request.max_bytes
                try:
                    result = partition.read(
                        request,
                        params,
                        min(limit, max_bytes),
                        min_one_batch=min_one_batch,
                    )
                except StorageError as error:
                    _log.error("read of %s failed: %s", partition.topic_partition, error)
                    if isinstance(error.__cause__, OSError):
                        self.disk_failed(partition.topic_partition, error)
                    result = ReadResult(error.code)
                if is_progress and self._record_fetch(partition, request, params, result):
                    params.moved.append(partition.topic_partition)
                if result.size:
                    min_one_batch = False
                    max_bytes = max(0, max_bytes - result.size)
            results.append(result)
        return results

    def wake_moved(self, params: FetchParams) -> None:
        """Wake what waits for the watermarks that a follower's read has moved.

        Whoever is woken may append, and must find the follower's fetch parked: between its look
        and its parking nothing may happen, or it would sleep over what was appended.
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
            result.aborted = ()  # an empty list, not null: Kafka answers these without the log
        return result

    # ---- deleting -----------------------------------------------------------------------------

    def await_deletion(
        self,
        waits: Sequence[tuple[Partition, int]],
        timeout_ms: int,
        on_done: Callable[[list[ErrorCode]], None],
    ) -> DelayedAnswers:
        """DeleteRecords: wait until every live replica's log start reached the offset; as
        `await_acks`."""
        operation = DelayedAnswers(waits, Partition.records_deleted, on_done)
        if not operation.decided:
            self.delete_records_purgatory.park(operation, operation.pending_keys(), timeout_ms)
        return operation

    async def stop(self) -> None:
        """No more changes of in-sync replicas; `close` comes after."""
        if self._isr_proposals is not None:
            await self._isr_proposals.close()

    def close(self) -> None:
        """Orderly stop: parked requests are answered with what there is."""
        for purgatory in self.purgatories:
            purgatory.close()
