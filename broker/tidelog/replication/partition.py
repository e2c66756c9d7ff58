"""One partition on this broker, as requests see it: appends, reads, offsets, deletions.

It makes every check between a request and the log: epoch fence, role, minimum of in-sync replicas,
bounds of a read. `replica_manager.py` calls it; it does not know timers, purgatories or messages.
Its state is in `replica.py`.

Kafka: Partition; KIP-101 and KIP-595 (divergence), KIP-320 (fencing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.replication.in_sync import preferred_replica
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
from tidelog.replication.replica import Replica
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

    from tidelog.replication.fetch_sessions import FetchedPartition
    from tidelog_storage.types import AbortedTransaction, AppendResult, InRemoteTier

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


class Partition(Replica):
    """A replica on this broker, with the operations of requests."""

    __slots__ = ()

    # ---- appending ----------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
    ) -> AppendResult:
        """Append one batch as leader and move the high watermark if that commits it. Raises
        StorageError."""
        if not self.is_leader:
            raise StorageError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and len(self.isr) < self.min_isr:
            raise StorageError(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self.log
        result = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            produce_version=produce_version,
            from_client=from_client,
        )
        self.bytes_appended += len(records)
        if self._sole_replica:
            log.set_high_watermark(log.log_end_offset)
        else:
            self.advance_high_watermark()
        return result

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
