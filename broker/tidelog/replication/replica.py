"""The state of one replica: its role, followers, in-sync replicas and high watermark.

It owns leader epoch and role, the remote replicas' progress, the in-sync replicas and their change
in flight, the movement of the high watermark, and what a follower may do to its log. Pure except
for its `Log`; `partition.py` adds the operations of requests. `hosted_partitions.py` and
`replica_manager.py` call both.

Kafka: Partition and Replica; KIP-497 (in-sync replicas), KIP-320 and KIP-101 (epochs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.replication.in_sync import committed_end, has_reached, lagging_replicas
from tidelog.replication.replica_state import IsrChange, ReplicaRules, ReplicaState
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog.replication.reads import FetchParams
    from tidelog_storage.log import Log
    from tidelog_storage.types import AppendResult, TopicPartition

__all__ = ["Replica"]

_NO_EPOCH = -1

# After these answers to a proposed ISR the controller has newer metadata, which will arrive.
_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
# After these the change was certainly not made, and the partition epoch is the right one.
_GO_BACK = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class Replica:
    """A replica on this broker.

    Invariants: log start <= high watermark <= log end; the high watermark never goes back while
    this broker leads in `leader_epoch`. `isr` (as the controller committed it) and `remotes` (the
    other replicas, by broker id) are empty unless this broker leads: a follower does not know them.
    `pending_change` is the one change of the ISR in flight. `bytes_appended` only grows;
    differences of it are the bytes that came since. `future` is the replica in another log
    directory that will replace this one, None unless it is moving.
    """

    __slots__ = (
        "_rules",
        "_sole_replica",
        "bytes_appended",
        "future",
        "is_internal",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leader_epoch_start_offset",
        "log",
        "min_isr",
        "node_id",
        "partition_epoch",
        "pending_change",
        "remotes",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: Log,
        node_id: int,
        rules: ReplicaRules | None = None,
    ) -> None:
        """`rules` are shared by all partitions of the broker; without them no broker is alive."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.is_internal = is_internal_topic(topic_partition.topic)
        self.leader = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.remotes: dict[int, ReplicaState] = {}
        self.pending_change: IsrChange | None = None
        self.is_leader = False
        self.leader_epoch_start_offset = -1  # log end when this broker became leader
        self.min_isr = 1
        self.bytes_appended = 0
        self.future: Replica | None = None
        self._rules = ReplicaRules() if rules is None else rules
        self._sole_replica = False

    # ---- role ---------------------------------------------------------------------------------

    def update(self, image: PartitionImage) -> None:
        """Apply published metadata; older partition epochs are ignored.

        A log with records of a newer epoch is not led in an older one: newer metadata will follow.
        """
        if image.partition_epoch < self.partition_epoch:
            return
        new_epoch = image.leader_epoch > self.leader_epoch
        # Skipped epochs may have had another leader, which truncated records of this one on
        # followers.
        stays = self.is_leader and image.leader_epoch <= self.leader_epoch + 1
        if new_epoch or image.partition_epoch > self.partition_epoch:
            self.pending_change = None
        self.partition_epoch = image.partition_epoch
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.replicas = image.replicas
        if image.leader == self.node_id and image.leader_epoch >= self.log.epochs.latest_epoch:
            self.isr = image.isr
            self.is_leader = True
            self._follow_assignment()
            if new_epoch or not stays:
                self._begin_epoch(new_leader=not stays)
        else:
            self.isr = ()
            self.remotes = {}
            self.is_leader = False
            self.leader_epoch_start_offset = -1
        self.config_changed()

    def _follow_assignment(self) -> None:
        """Keep a state for each other replica; one added since this epoch began starts unknown."""
        self.remotes = {
            node_id: self.remotes.get(node_id) or ReplicaState()
            for node_id in self.replicas
            if node_id != self.node_id
        }

    def _begin_epoch(self, *, new_leader: bool) -> None:
        """Begin to lead in a new epoch, from the log end on."""
        start = self.leader_epoch_start_offset = self.log.log_end_offset
        self.log.assign_epoch(self.leader_epoch)
        now_ms = self._rules.now_ms()
        for node_id, replica in self.remotes.items():
            in_sync = node_id in self.isr
            replica.reset(in_sync=in_sync, new_leader=new_leader, leader_end=start, now_ms=now_ms)

    def config_changed(self) -> None:
        """Check the high watermark after a change of configuration or replicas: the minimum may
        allow it to move."""
        self.min_isr = min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))
        self._sole_replica = self.isr == (self.node_id,) and not self.remotes and self.min_isr <= 1
        self.advance_high_watermark()

    def remove(self) -> None:
        """Remove the replica from this broker: this object is no longer a leader."""
        self.is_leader = False
        self.leader = -1
        self.isr = ()
        self.remotes = {}
        self.pending_change = None

    def leader_error(
        self, current_leader_epoch: int, *, leader_only: bool = True
    ) -> ErrorCode | None:
        """Fence a request by its epoch, then by the role (KIP-320); None if it is allowed."""
        if current_leader_epoch not in (_NO_EPOCH, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if leader_only and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None

    def advance_high_watermark(self) -> bool:
        """Move the high watermark to the smallest log end of the replicas that count; True if it
        moved.

        It does not move below the minimum of in-sync replicas, or while a follower's log end is
        unknown, and it never goes back.
        """
        if not self.is_leader or len(self.isr) < self.min_isr:
            return False
        log = self.log
        end = log.log_end_offset
        if log.high_watermark >= end:
            return False
        if not self._sole_replica:
            end = committed_end(self.node_id, end, self.maximal_isr, self.remotes, self._rules)
            if log.high_watermark >= end:
                return False
        log.set_high_watermark(end)
        return True

    # ---- following ----------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendResult | None:
        """Append the leader's batches unchanged; None if there is nothing to append.

        `leader_epoch` is the epoch of the fetch. StorageError: see `Log.append_as_follower`, and
        FENCED_LEADER_EPOCH if that epoch is over.
        """
        self._check_following(leader_epoch)
        result = self.log.append_as_follower(records, leader_epoch=leader_epoch, now_ms=now_ms)
        if result is not None:
            self.bytes_appended += len(records)
        return result

    def advance_as_follower(self, leader_high_watermark: int, leader_log_start: int) -> bool:
        """Take over the leader's offsets after appending its records; return whether any moved.

        The high watermark may go back: a new leader may know less.
        """
        log = self.log
        before = (log.high_watermark, log.log_start_offset)
        log.set_high_watermark(leader_high_watermark)
        if leader_log_start > log.log_start_offset:
            # Never above this high watermark, which a leader that knows less may hold down.
            start = min(leader_log_start, log.high_watermark)
            log.maybe_increment_log_start(start, "leader offset incremented")
        return (log.high_watermark, log.log_start_offset) != before

    def truncate_as_follower(self, offset: int, *, leader_epoch: int, now_ms: int) -> bool:
        """Drop everything from `offset` on, whatever the high watermark (KIP-101); return whether
        there was anything. StorageError FENCED_LEADER_EPOCH if that epoch has ended."""
        self._check_following(leader_epoch)
        return self.log.truncate_to(offset, now_ms)

    def restart_as_follower(
        self, offset: int, *, leader_epoch: int, now_ms: int, log_start: int | None = None
    ) -> None:
        """Drop everything and continue at `offset`. StorageError like `truncate_as_follower`."""
        self._check_following(leader_epoch)
        self.log.truncate_fully_and_start_at(offset, log_start, now_ms)

    def restart_from_remote(
        self,
        offset: int,
        *,
        log_start: int,
        epochs: Sequence[tuple[int, int]],
        snapshot: bytes,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Drop everything local and continue at `offset`, after a remote segment with these epochs
        and producers (KIP-405). StorageError like `truncate_as_follower`."""
        self._check_following(leader_epoch)
        self.log.restart_from_remote(
            offset, log_start=log_start, epochs=epochs, snapshot=snapshot, now_ms=now_ms
        )

    def _check_following(self, leader_epoch: int) -> None:
        """Fence an answer to a fetch in an earlier role: a leader's log must not change by it."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise StorageError(ErrorCode.FENCED_LEADER_EPOCH)

    # ---- in-sync replicas ---------------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Return the maximal ISR: an expansion in flight counts, a shrink does not."""
        change = self.pending_change
        if change is None or change.joining < 0:
            return self.isr
        return (*self.isr, change.joining)

    def record_fetch(self, request: FetchedPartition, params: FetchParams) -> bool:
        """Record that a follower has everything below its fetch offset. False if the fetch is from
        an earlier life of that broker (KIP-903; Kafka's Replica.updateFetchStateOrThrow).

        An epoch above the registered one is not recorded: this broker's image is behind, or the
        epoch is invented.
        """
        broker, epoch = self._rules.brokers.get(params.replica_id), params.replica_epoch
        registered = _NO_EPOCH if broker is None else broker.epoch
        if epoch > registered:
            return True
        if epoch not in (_NO_EPOCH, registered):
            return False
        self.remotes[params.replica_id].record_fetch(
            request.fetch_offset,
            request.fetcher_log_start_offset,
            leader_end=self.log.log_end_offset,
            now_ms=self._rules.now_ms(),
            broker_epoch=epoch,
        )
        return True

    def propose_expansion(self, node_id: int) -> IsrChange | None:
        """Propose the ISR with this follower; None if it is a member or may not join."""
        replica = self.remotes.get(node_id)
        if (
            replica is None
            or not self.is_leader
            or self.pending_change is not None
            or node_id in self.isr
            or not has_reached(replica, self.log.high_watermark, self.leader_epoch_start_offset)
            or not self._rules.is_eligible(node_id, replica)
        ):
            return None
        return self._propose((*self.isr, node_id), joining=node_id)

    def propose_shrink(self) -> IsrChange | None:
        """Propose the ISR without lagging replicas; None if none lags."""
        if not self.is_leader or self.pending_change is not None:
            return None
        leaving = lagging_replicas(
            self.node_id,
            self.log.log_end_offset,
            self.isr,
            self.remotes,
            now_ms=self._rules.now_ms(),
            lag_ms_max=self._rules.lag_ms_max,
        )
        if not leaving:
            return None
        return self._propose(tuple(node_id for node_id in self.isr if node_id not in leaving))

    def propose_recovered(self) -> IsrChange | None:
        """Propose the same ISR after an unclean election, as recovered."""
        if not self.is_leader or self.pending_change is not None:
            return None
        return self._propose(self.isr)

    def _propose(self, isr: tuple[int, ...], joining: int = -1) -> IsrChange:
        remotes = self.remotes
        change = self.pending_change = IsrChange(
            self,
            tuple(
                (node_id, remotes[node_id].broker_epoch if node_id in remotes else _NO_EPOCH)
                for node_id in isr
            ),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            joining=joining,
        )
        return change

    def change_committed(
        self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> bool:
        """Apply a change that the controller made; False if the metadata came first."""
        if (
            change is not self.pending_change
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return False
        self.pending_change = None
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.config_changed()
        return True

    def change_refused(self, change: IsrChange, error: int) -> bool:
        """Handle a refused change; return whether to send it again."""
        if change is not self.pending_change or error in _WAIT_FOR_METADATA:
            return False
        if error in _GO_BACK:
            self.pending_change = None
            self.advance_high_watermark()
            return False
        return True
