"""Open and close the partitions of this broker, by the cluster's image.

It owns the hosted partitions, those that are offline, their purgatories and the role listeners.
First subscriber of each new image. `replica_manager.py` adds the operations of requests. It does
not know wire versions. Kafka: ReplicaManager (HostedPartition, applyDelta).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.replication.lost_logs import LOST, LostLogs
from tidelog.replication.partition import Partition
from tidelog.replication.purgatory import Purgatory
from tidelog.replication.replica_state import ReplicaRules
from tidelog.replication.roles import RoleListeners
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.directory import named
from tidelog_storage.holes import cut_doubtful_end, find_holes
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
    from typing import Any

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.metrics.meters import Meters
    from tidelog.replication.aux_state import AuxStateOf
    from tidelog.replication.isr_proposals import IsrProposals
    from tidelog.replication.purgatory import Timers
    from tidelog.replication.roles import RoleListener
    from tidelog.seams import Clock
    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager

__all__ = ["HostedPartitions"]

_log = logging.getLogger(__name__)

_RECOVERING = 1
_OPEN_AGAIN_S = 1.0


class HostedPartitions:
    """The partitions that the cluster's image assigns to this broker.

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
        meters: Meters | None = None,
    ) -> None:
        """`timers` is the running loop; `log_config` the configuration of a topic under an image;
        `lag_ms_max` replica.lag.time.max.ms. `on_disk_failure` is called with a log directory in
        which a log could not be opened or written: the partition is then offline. `meters` is None
        if metrics are off."""
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
        self.rules = ReplicaRules(lambda: int(clock.monotonic() * 1000), lag_ms_max)
        self.bytes_out = None if meters is None else meters.topic_count("BytesOutPerSec")
        """Counts records read by consumers, from disk and from the remote tier."""
        self._log_config = log_config
        self._on_disk_failure = on_disk_failure
        self._timers = timers
        self._isr_proposals: IsrProposals | None = None
        self.ask_controller: Callable[[Any], Awaitable[Any]] | None = None
        self._roles = RoleListeners()
        self.aux_state_of: AuxStateOf | None = None
        """What followers need of the remote tier; set together with it, before any follower."""
        self.lost_logs = LostLogs(logs, node_id)
        self.on_suspect: Callable[[TopicPartition], None] | None = None
        """Called with a partition in which a read, or its opening, found damage."""
        self.suspects: set[TopicPartition] = set()
        """Suspect partitions from before there was a listener."""
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: dict[tuple[str, int], bytes] = {}  # the value is the topic id

    # ---- the image ----------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow a new image: delete, create, lead, reconfigure; then wake parked requests."""
        self.image = image
        self.rules.brokers = image.brokers
        if delta.old is None:
            self._set_strays_aside(image)
        for deleted in delta.deleted_topics:
            self._delete_topic(deleted)
        for changed in delta.topics.values():
            self._apply_topic(changed.new, changed.partitions)
        for name in image.topics if delta.configures(self.node_id) else delta.topic_configs:
            topic, change = image.topics.get(name), delta.topics.get(name)
            if topic is not None and (change is None or change.old is not None):
                self._reconfigure(topic)
        if delta.brokers and self.delete_records_purgatory:
            self.delete_records_purgatory.check_all(list(self._partitions))  # the dead don't count

    def _apply_topic(self, topic: TopicImage, partitions: Iterable[PartitionImage]) -> None:
        config: LogConfig | None = None
        for state in partitions:
            if self.node_id not in state.replicas:
                self._leave((topic.name, state.partition), delete=False)
                continue
            key = TopicPartition(topic.name, state.partition)
            partition = self._partitions.get(key)
            if partition is None:
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
        if state.leader_recovery_state == _RECOVERING and self._isr_proposals is not None:
            self._isr_proposals.recovered(partition)
        self._wake_all(key)

    def _open(
        self, key: TopicPartition, topic_id: bytes, state: PartitionImage, config: LogConfig
    ) -> Partition | None:
        """Open or create a log; a directory that fails makes this partition offline, not the
        broker."""
        try:
            if self.lost_logs.keeps_offline(key, state, config):
                raise LOST
            log = self.logs.get(key)
            if log is not None and log.topic_id != topic_id:
                self._set_aside([key], "of another topic of that name")
                log = None
            if log is None:
                log = self.logs.create(key, topic_id, config)
            else:
                log.config = config
                _tell_lost_start(key, log)
                self._look_for_holes(key, log, state)
        except (OSError, StorageError, CheckpointError) as error:
            self._take_offline(key, topic_id, error)
            return None
        self._offline.pop(key, None)
        partition = self._partitions[key] = Partition(key, topic_id, log, self.node_id, self.rules)
        return partition

    def _look_for_holes(self, key: TopicPartition, log: Log, state: PartitionImage) -> None:
        """Log what is missing inside a log, and have it scrubbed soon."""
        if self.logs.may_have_gaps(log):
            return
        if log.doubtful_end is not None:
            self._judge_doubtful_end(key, log, state)
        holes = find_holes(log)
        for damage in holes.damages:
            log.set_damages(damage.base_offset, [damage])
            _log.error("%s: damaged %s", key, damage)
        if holes.is_suspect:
            self.suspect(key)

    def _judge_doubtful_end(self, key: TopicPartition, log: Log, state: PartitionImage) -> None:
        """Offsets are missing before the last batch after a crash: it goes only if another replica
        in sync has what was acknowledged. A compacted leader may have left the gap."""
        missing, end = log.doubtful_end, log.log_end_offset
        is_alone = set(state.isr) <= {self.node_id}
        if is_alone:
            log.doubtful_end = None
            what = "it stays, as no other replica is in sync: read on behind them"
        elif cut_doubtful_end(log, self.clock.wall_ms()) is None:
            return
        else:
            what = "it was cut off, and is fetched again from the leader"
        _log.error(
            "%s: offsets from %d on are missing before the last batch, which ends at %d: its own"
            " are wrong, unless a compaction left them out; %s",
            key,
            missing,
            end - 1,
            what,
        )

    def suspect(self, key: TopicPartition) -> None:
        """Have a partition scrubbed that seems damaged."""
        if self.on_suspect is None:
            self.suspects.add(key)
        else:
            self.on_suspect(key)

    def _lose(self, partition: Partition, error: OSError) -> None:
        self._let_go(partition)
        self._take_offline(partition.topic_partition, partition.topic_id, error)

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
        if error is not LOST or not is_told:
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

    def _open_again(self, key: TopicPartition) -> None:
        """Open a log again that failed to open only for lack of descriptors."""
        topic = None if self.image is None else self.image.topics.get(key.topic)
        if key in self._offline and topic is not None:
            self._apply_topic(topic, topic.partitions)

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

    def _delete_topic(self, topic: TopicImage) -> None:
        if self.bytes_out is not None:
            self.bytes_out.forget(topic.name)
        for state in topic.partitions:
            self._leave((topic.name, state.partition), delete=True)

    def _leave(self, key: tuple[str, int], *, delete: bool) -> None:
        self._offline.pop(key, None)
        self.lost_logs.forget(TopicPartition(*key))
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

    def _set_strays_aside(self, image: ClusterImage) -> None:
        """Rename logs that the metadata does not know (LogManager.isStrayKraftReplica).

        A log is deleted only when this broker sees the deletion in the metadata. If the metadata
        does not know a log at the start, its topic was deleted, or the metadata is the wrong one.
        """
        strays = [
            key
            for key, topic_id in self.logs.topic_ids().items()
            if not _is_assigned(image, key, topic_id, self.node_id)
        ]
        self._set_aside(strays, "no topic of the metadata's has them here")
        self.lost_logs.find(image)

    def _set_aside(self, keys: Sequence[TopicPartition], reason: str) -> None:
        try:
            kept = self.logs.set_aside(keys)
        except OSError as error:
            _log.error("%d stray logs could not be renamed: %s", len(keys), error)
            return
        if kept:
            _log.warning(
                "%d stray logs are kept, %s: %s. Nothing uses them: remove them if their records"
                " are not needed",
                len(kept),
                reason,
                named(kept),
            )

    def follow_roles(self, listener: RoleListener) -> None:
        """Add a role listener: the remote tier, before the first image, or the moves of
        replicas."""
        self._roles.listeners.append(listener)

    def log_replaced(self, partition: Partition) -> None:
        """Report that a replica's log was replaced by one in another directory: listeners start
        again, as after an election."""
        self._roles.changed(partition)
        self._wake_all(partition.topic_partition)

    # ---- look-up ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | ErrorCode:
        """Return the replica, or the error for a request."""
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

    def hosted(self, key: TopicPartition) -> Partition | None:
        """Return the replica; None if none is open here."""
        return self._partitions.get(key)

    def partitions(self) -> Iterator[Partition]:
        """Return all replicas here."""
        return iter(list(self._partitions.values()))

    # ---- waking, and the controller ----------------------------------------------------------

    def _wake_all(self, key: tuple[str, int]) -> None:
        """Check all parked requests after a change of role, in-sync replicas or configuration."""
        for purgatory in self.purgatories:
            purgatory.check(key)

    def use_controller(
        self,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
    ) -> None:
        """Start to manage in-sync replicas: changes are sent to the active controller, and lagging
        followers are detected.

        `broker_epoch` is this broker's, -1 before it is registered.
        """
        # Only clusters need them.
        from tidelog.replication.alter_partition import AlterPartitionManager  # noqa: PLC0415
        from tidelog.replication.isr_proposals import IsrProposals  # noqa: PLC0415

        self.ask_controller = ask_controller
        self._isr_proposals = IsrProposals(
            AlterPartitionManager(self.node_id, ask_controller, broker_epoch, self._isr_settled),
            self.partitions,
            self._timers,
            self.rules.lag_ms_max,
        )

    def _isr_settled(self, partition: Partition) -> None:
        self._wake_all(partition.topic_partition)

    async def stop(self) -> None:
        """No more changes of in-sync replicas; `close` comes after."""
        if self._isr_proposals is not None:
            await self._isr_proposals.close()

    def close(self) -> None:
        """Close: answer parked requests with what there is."""
        for purgatory in self.purgatories:
            purgatory.close()


def _is_assigned(image: ClusterImage, key: TopicPartition, topic_id: bytes, node_id: int) -> bool:
    """Return whether a log is a replica of this very topic, assigned to this broker."""
    topic = image.topics.get(key.topic)
    state = image.partition(*key)
    return (
        topic is not None
        and topic.topic_id == topic_id
        and state is not None
        and node_id in state.replicas
    )


def _tell_lost_start(key: TopicPartition, log: Log) -> None:
    """Log what is missing before a log's first segment, unless it is tiered and so remote."""
    if log.lost_start is not None and not log.is_tiered:
        first_offset = log.segments.first.base_offset
        _log.warning(
            "%s: offsets %d to %d are missing: the segments below %d are lost, or were deleted"
            " just before a crash",
            key,
            log.lost_start,
            first_offset - 1,
            first_offset,
        )
