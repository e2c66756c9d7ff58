"""One partition on this broker: its role, its in-sync replicas, and its log behind both.

It makes every check between a request and the log: epoch fence, role, minimum of in-sync replicas,
bounds of a read. It moves the high watermark and decides which changes of the in-sync replicas to
propose. `replica_manager.py` and the fetchers call it. Pure except for its `Log`: it does not know
timers, purgatories or messages.

Kafka: Partition; KIP-101 and KIP-595 (divergence), KIP-320 (fencing), KIP-497 (in-sync replicas).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.metadata.image import is_internal_topic
from tidelog.replication.in_sync import (
    committed_end,
    has_reached,
    lagging_replicas,
    preferred_replica,
)
from tidelog.replication.reads import (
    HIGH_WATERMARK,
    LOG_END,
    TRANSACTION_COMMITTED,
    FetchParams,
    ReadResult,
    Redirection,
    RemotePart,
    SearchRemote,
)
from tidelog.replication.replica_state import IsrChange, ReplicaRules, ReplicaState
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.transaction_proof import unproven_segment
from tidelog_storage.types import (
    OffsetAndEpoch,
    OffsetAndTimestamp,
    OutOfRange,
    Records,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.cluster.metadata.image import PartitionImage
    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.inspection import Inspection
    from tidelog_storage.log import Log
    from tidelog_storage.types import (
        AbortedTransaction,
        AppendResult,
        InRemoteTier,
        TopicPartition,
    )

__all__ = [
    "EARLIEST_LOCAL_TIMESTAMP",
    "EARLIEST_PENDING_UPLOAD_TIMESTAMP",
    "EARLIEST_TIMESTAMP",
    "HIGH_WATERMARK",
    "LATEST_TIERED_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "LOG_END",
    "MAX_TIMESTAMP",
    "TRANSACTION_COMMITTED",
    "FetchParams",
    "Partition",
    "ReadResult",
    "SearchRemote",
]

# Special timestamps of ListOffsets.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3  # KIP-734
EARLIEST_LOCAL_TIMESTAMP = -4  # KIP-405
LATEST_TIERED_TIMESTAMP = -5  # KIP-1005
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6  # KIP-1023

_NO_EPOCH = -1
_NOTHING_FOUND = OffsetAndTimestamp(-1, -1, -1)
_STARTS = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP)
_COPIED = (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP)


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


class Partition:
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
        self.future: Partition | None = None
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
            self._follow_assignment(image)
            if new_epoch or not stays:
                self._begin_epoch(new_leader=not stays)
        else:
            self.isr = ()
            self.remotes = {}
            self.is_leader = False
            self.leader_epoch_start_offset = -1
        self.config_changed()

    def _follow_assignment(self, image: PartitionImage) -> None:
        """Keep a state for each other replica; one added since this epoch began starts unknown."""
        self.remotes = {
            node_id: self.remotes.get(node_id) or ReplicaState()
            for node_id in self.replicas
            if node_id != self.node_id
        }
        for node_id, replica in self.remotes.items():
            replica.directory = image.directory_of(node_id)

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

    # ---- appending ----------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
        inspection: Inspection | None = None,
    ) -> AppendResult:
        """Append one batch as leader and move the high watermark if that commits it. Raises
        StorageError, and TooMuchAtOnceError as `Log.append_as_leader` does."""
        if not self.is_leader:
            raise StorageError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and len(self.isr) < self.min_isr:
            raise StorageError(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self.log
        try:
            result = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                produce_version=produce_version,
                from_client=from_client,
                inspection=inspection,
            )
        except StorageError as error:
            self._append_failed(error)
            raise
        self._appended(len(records))
        return result

    def append_own(self, header: BatchHeader, batch: bytes, now_ms: int) -> None:
        """Append a batch that this broker has just built for the log's end, as a leader of its
        epoch, as `append` does with acks=-1. It needs no check unless the settings change it."""
        log, size = self.log, len(batch)
        if not self.is_leader or header.leader_epoch != self.leader_epoch:
            raise StorageError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.config.keeps_own_batches or size > log.config.batch_bytes_max:
            records = memoryview(bytearray(batch))
            self.append(records, acks=-1, now_ms=now_ms, from_client=False)
            return
        if len(self.isr) < self.min_isr:
            raise StorageError(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            log.append_placed(header, batch, now_ms)
        except StorageError as error:
            self._append_failed(error)
            raise
        self._appended(size)

    def _append_failed(self, error: StorageError) -> None:
        if self._rules.append_failed is not None:
            self._rules.append_failed(self, error)

    def _appended(self, size: int) -> None:
        self.bytes_appended += size
        if self._sole_replica:
            self.log.set_high_watermark(self.log.log_end_offset)
        else:
            self.advance_high_watermark()

    def acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the error code of an acks=-1 append up to `required_offset`; None while
        undecided."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        if len(self.maximal_isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # ---- reading ------------------------------------------------------------------------------

    def end_offset(self, isolation: int) -> int:
        """Return the bound of a read: log end, high watermark or last stable offset."""
        log = self.log
        if isolation == HIGH_WATERMARK:
            return log.high_watermark
        return log.log_end_offset if isolation == LOG_END else log.last_stable_offset

    def on_older_segment(self, offset: int, isolation: int) -> bool:
        """Return whether a read at `offset` ends at the end of an older segment."""
        segments = self.log.segments
        end_offset = self.end_offset(isolation)
        return offset < end_offset and segments.floor(offset) is not segments.floor(end_offset)

    def read(
        self, request: FetchedPartition, params: FetchParams, max_bytes: int, *, min_one_batch: bool
    ) -> ReadResult:
        """Read for a Fetch: fence, divergence, range, then whole batches below the reader's bound.

        With `min_one_batch` the first batch comes whole even if it is larger than `max_bytes`.
        """
        error = self._read_error(request.current_leader_epoch, params)
        if error is not None:
            return ReadResult(error)
        log = self.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        isolation = params.isolation
        if isolation == HIGH_WATERMARK:
            bound = high_watermark
            aborted: Sequence[AbortedTransaction] | None = None
        elif isolation == LOG_END:
            bound = log.log_end_offset
            aborted = None
        else:
            bound = last_stable_offset
            aborted = ()
        offset = request.fetch_offset
        result = ReadResult(0, high_watermark, last_stable_offset, log.log_start_offset, aborted)
        if params.rack:
            result = self._redirected(params.rack, offset, result)
        if result.preferred_replica >= 0 or (
            request.last_fetched_epoch != _NO_EPOCH and self._diverges(request, result)
        ):
            return result
        if offset == bound:
            return result  # nothing new: the common case of a long poll
        if max_bytes <= 0 and not min_one_batch and log.log_start_offset <= offset < bound:
            return result  # the answer is full already
        outcome = log.read(offset, max_bytes, upper_bound=bound, min_one_batch=min_one_batch)
        if not isinstance(outcome, Records):
            return self._not_local(outcome, params, result)
        return self._found(result, outcome, offset)

    def _found(self, result: ReadResult, outcome: Records, offset: int) -> ReadResult:
        if result.aborted is not None and outcome.size:
            if self._is_proving(offset, outcome.next_offset):
                return result  # empty; what is parked is woken when that is done
            result.aborted = self.log.aborted_transactions(offset, outcome.next_offset)
        result.records = outcome.parts
        result.size = outcome.size
        return result

    def _is_proving(self, offset: int, upper_bound: int) -> bool:
        """Whether a large transaction index that a read needs is just being compared."""
        prove = self._rules.prove
        if prove is None:
            return False
        segment = unproven_segment(self.log, offset, upper_bound)
        return segment is not None and prove(self, segment)

    def _not_local(
        self, outcome: OutOfRange | InRemoteTier, params: FetchParams, result: ReadResult
    ) -> ReadResult:
        """Answer a read of an offset that is out of range, or in the remote tier, which only
        consumers read."""
        if isinstance(outcome, OutOfRange):
            return ReadResult(ErrorCode.OFFSET_OUT_OF_RANGE)
        if params.replica_id < 0:
            return RemotePart(result, outcome)
        result.error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        result.last_stable_offset = -1  # as in Kafka, which returns the other bounds
        return result

    def _read_error(self, current_leader_epoch: int, params: FetchParams) -> ErrorCode | None:
        if params.replica_id < 0:
            if self.is_leader and current_leader_epoch in (_NO_EPOCH, self.leader_epoch):
                return None
            return self.leader_error(current_leader_epoch, leader_only=params.leader_only)
        error = self.leader_error(current_leader_epoch)
        if error is None and (
            params.replica_id == self.node_id or params.replica_id not in self.replicas
        ):
            # With an epoch, one side has newer metadata, so the replica retries. Without one that
            # is unknown.
            if current_leader_epoch != _NO_EPOCH:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error

    def _redirected(self, rack: str, offset: int, result: ReadResult) -> ReadResult:
        """Return the result, or a redirection to a better replica for a consumer's rack
        (KIP-392)."""
        preferred = preferred_replica(
            rack,
            offset,
            self.node_id,
            isr=self.isr,
            replicas=self.remotes,
            brokers=self._rules.brokers,
        )
        return result if preferred == self.node_id else Redirection(result, preferred)

    def _diverges(self, request: FetchedPartition, result: ReadResult) -> bool:
        """Return whether the reader's last epoch ends elsewhere in this log (KIP-595), or is out of
        range."""
        end = self.log.end_offset_for_epoch(request.last_fetched_epoch)
        if (
            end.offset < 0
            or end.leader_epoch < 0
            or request.fetch_offset
            < result.log_start_offset  # in any case, whatever the epochs are
        ):
            result.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
            return True
        if end.leader_epoch < request.last_fetched_epoch or end.offset < request.fetch_offset:
            result.diverging = end
            return True
        return False

    # ---- offsets ------------------------------------------------------------------------------

    def offset_for(
        self,
        timestamp: int,
        *,
        isolation: int,
        current_leader_epoch: int,
        leader_only: bool,
        local_only: bool = False,
    ) -> OffsetAndTimestamp | SearchRemote | ErrorCode:
        """Answer ListOffsets for a timestamp or a special one; (-1, -1, -1) if nothing is found.

        `isolation` LOG_END is for replicas, which see everything. Only replicas may receive an
        offset that is not written yet, such as the next one to copy of a fully copied log; a
        follower returns none either. OFFSET_NOT_AVAILABLE until this leader's high watermark
        reaches the start of its epoch: before that it does not know what is committed.
        `local_only`: search by time only the local log.
        """
        error = self.leader_error(current_leader_epoch, leader_only=leader_only)
        if error is not None:
            return error
        log = self.log
        if timestamp in _STARTS:
            return self._start_for(timestamp)
        if timestamp >= 0 and log.is_tiered and not local_only:
            start, local_start = log.log_start_offset, log.local_log_start_offset
            if start < local_start:
                return SearchRemote(timestamp, start, local_start)
        last_fetchable = self.end_offset(isolation)
        lags = isolation != LOG_END and self.leader_epoch_start_offset > log.high_watermark
        if timestamp == LATEST_TIMESTAMP and not lags:
            return OffsetAndTimestamp(last_fetchable, -1, self.leader_epoch)
        if timestamp in _COPIED:
            found: OffsetAndTimestamp | None = self._start_for(timestamp)
            # A follower begins there (KIP-1023), even at the log end; it only asks the leader.
            bounded = isolation != LOG_END or not leader_only
        else:
            found = self._find_by_time(timestamp)
            bounded = True
        if found is not None and (found.offset < last_fetchable or not bounded):
            return found
        return ErrorCode.OFFSET_NOT_AVAILABLE if lags else _NOTHING_FOUND

    def _find_by_time(self, timestamp: int) -> OffsetAndTimestamp | None:
        if timestamp == MAX_TIMESTAMP:
            return self.log.max_timestamp_offset()
        return self.log.offset_for_timestamp(timestamp) if timestamp >= 0 else None

    def _start_for(self, timestamp: int) -> OffsetAndTimestamp:
        """Return the start of the log, of its local part or of the part to copy, or the end of the
        copied part; with the leader epoch of that offset, -1 if the cache no longer has it."""
        log = self.log
        if timestamp == EARLIEST_TIMESTAMP:
            offset = log.log_start_offset
        elif timestamp == EARLIEST_LOCAL_TIMESTAMP:
            offset = log.local_log_start_offset
        elif not log.is_tiered:
            return _NOTHING_FOUND
        elif timestamp == LATEST_TIERED_TIMESTAMP:
            offset = log.highest_remote_offset
        elif log.highest_remote_offset < 0 and log.log_start_offset < log.local_log_start_offset:
            return _NOTHING_FOUND  # this leader does not know yet how much is copied
        else:
            offset = max(log.highest_remote_offset + 1, log.log_start_offset)
        epoch = log.epochs.epoch_for_offset(offset)
        return OffsetAndTimestamp(offset, -1, _NO_EPOCH if epoch is None else epoch)

    def end_offset_for_epoch(
        self, leader_epoch: int, *, current_leader_epoch: int
    ) -> OffsetAndEpoch | ErrorCode:
        """Answer OffsetForLeaderEpoch: where an epoch ends in the leader's log (KIP-101)."""
        error = self.leader_error(current_leader_epoch)
        return self.log.end_offset_for_epoch(leader_epoch) if error is None else error

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Move the log start to `offset` (-1: the high watermark); return the offset, or an
        error."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = self.log
        if log.config.is_compacted and not log.config.deletes:  # an empty policy refuses nothing
            return ErrorCode.POLICY_VIOLATION
        if offset == -1:
            offset = log.high_watermark
        if offset < 0 or offset > log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        log.maybe_increment_log_start(offset, "client delete records")
        return offset

    @property
    def low_watermark(self) -> int:
        """Return the smallest log start of all live replicas: records below it are gone
        everywhere."""
        offset = self.log.log_start_offset
        if self.future is not None:
            offset = min(offset, self.future.log.log_start_offset)
        for node_id, replica in self.remotes.items():
            if replica.log_start_offset < offset and self._rules.is_alive(node_id):
                offset = replica.log_start_offset
        return offset

    def records_deleted(self, offset: int) -> ErrorCode | None:
        """Return the error code of a DeleteRecords up to `offset`; None while undecided."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.low_watermark >= offset else None

    # ---- following ----------------------------------------------------------------------------

    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendResult | None:
        """Append the leader's batches unchanged; None if there is nothing to append.

        `leader_epoch` is the epoch of the fetch. StorageError: see `Log.append_as_follower`, and
        FENCED_LEADER_EPOCH if that epoch is over.
        """
        log = self.followed_log(leader_epoch)
        result = log.append_as_follower(records, leader_epoch=leader_epoch, now_ms=now_ms)
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

    def followed_log(self, leader_epoch: int) -> Log:
        """Return the log, to change it by an answer of the leader in `leader_epoch`.

        StorageError FENCED_LEADER_EPOCH if that epoch has ended, or if this broker leads.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise StorageError(ErrorCode.FENCED_LEADER_EPOCH)
        return self.log

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

        Without an epoch (below Fetch v15, or from a broker that is not registered yet) nothing is
        recorded. Kafka records it, so that any client may claim what a replica has: acks=all would
        be answered though the followers are stopped. Nor is an epoch above the registered one: this
        broker's image is behind, or the epoch is invented.
        """
        broker, epoch = self._rules.brokers.get(params.replica_id), params.replica_epoch
        registered = _NO_EPOCH if broker is None else broker.epoch
        if epoch == _NO_EPOCH or epoch > registered:
            return True
        if epoch != registered:
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
            is_shrink=len(isr) < len(self.isr),
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
