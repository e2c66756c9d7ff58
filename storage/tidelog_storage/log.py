"""The log of one partition: its offsets and segments; append, read, truncate, retain, flush.

It keeps log start <= local log start <= high watermark <= log end, and last stable offset <= high
watermark. Everything is a plain function that runs to its end; time comes as an argument. Batches
stay opaque: an append writes the caller's buffer, a read returns the file's own bytes.
`recovery.py` creates a `Log` from a folder, `manager.py` keeps them all, the broker's partitions
call the rest.

A log with a remote tier (KIP-405) has records below its first segment: it knows from where on they
are local and up to where they were copied, and nothing else of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import coordinator_epoch, iter_records
from tidelog_storage import search
from tidelog_storage.checkpoints import CheckpointError, TopicIdFile
from tidelog_storage.compaction.swap import swap_files
from tidelog_storage.config import NEVER_TIERED
from tidelog_storage.flush import FlushTask, seal
from tidelog_storage.indexes import RELATIVE_OFFSET_MAX, AbortedEntry
from tidelog_storage.inspection import AppendTarget
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.reader import Reader
from tidelog_storage.removals import Removals
from tidelog_storage.replay import replay_producers
from tidelog_storage.replicated import check_replicated
from tidelog_storage.retention import Retention, RollPolicy, plan_deletion
from tidelog_storage.sealed import keep_producers, sealed_files
from tidelog_storage.segment import LOG_SUFFIX, Segment, SegmentOptions
from tidelog_storage.transaction_proof import TransactionProof
from tidelog_storage.types import (
    UNDEFINED_EPOCH,
    AbortedTransaction,
    AppendResult,
    InRemoteTier,
    OutOfRange,
    Records,
    StorageError,
)
from tidelog_storage.validator import ZSTD_VERSION_MIN, place_plain, validate_slowly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.config import LogConfig
    from tidelog_storage.indexes import TransactionIndex
    from tidelog_storage.inspection import Inspection
    from tidelog_storage.loading import Loaded, LogContext
    from tidelog_storage.producer_state import CompletedTransaction
    from tidelog_storage.replicated import ReplicatedBatch
    from tidelog_storage.seams import Buffer
    from tidelog_storage.types import (
        Damage,
        OffsetAndEpoch,
        OffsetAndTimestamp,
        ReadOutcome,
        SealedFiles,
    )

_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast
_UNLIMITED = 1 << 62


class Log:
    """One partition's log; everything below `recovery_point` is durable.

    `log_start_offset`: first offset that may be read. `log_end_offset`: offset of the next record.
    `high_watermark`: first offset not known to be on all replicas that count; moved from outside.
    `local_log_start_offset`: first offset that may be read here; above the log start only if what
    is between is in the remote tier. `is_tiered`: whether there is one. `highest_remote_offset`:
    last offset known to be there, -1 if none is. `kept_from`: local retention deletes nothing from
    this offset on, as its remote copy is damaged. `lost_start`, `lost_end`: offsets from the one to
    the first segment, and from the log end to the other, were on disk when the log was last open
    and are not there any more; None if nothing is known to be lost. `doubtful_end`: after a crash,
    the first of the offsets that are missing before the last batch; see `holes.py`.
    `truncations`: how many there were; background work compares it to detect a cut.
    """

    def __init__(self, context: LogContext, config: LogConfig, loaded: Loaded) -> None:
        """A loaded log; use `recovery.load_log`."""
        assert 0 <= loaded.log_start_offset <= loaded.log_end_offset
        self._context = context
        self._files = context.files
        self.folder = context.folder
        self.topic_partition = context.topic_partition
        self.topic_id = context.topic_id
        self.id_file = TopicIdFile(context.files, context.folder)
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self._start_at(loaded.log_start_offset)
        self.log_end_offset = end = loaded.log_end_offset
        self.high_watermark = min(max(loaded.high_watermark, self.local_log_start_offset), end)
        self.highest_remote_offset = -1
        self.kept_from: int | None = None
        self.recovery_point = min(loaded.recovery_point, end)
        self._noted_point = 0  # its checkpoint may say so much, if that is more
        self.lost_start: int | None = None
        self.lost_end: int | None = None
        self.doubtful_end: int | None = None
        self.last_flushed_ms = 0
        self.removals = Removals(context.files.remove)
        self.truncations = 0
        self._reader = Reader(loaded.segments)
        self._epochs_lost = loaded.epochs_lost
        self._configure(config)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> LogConfig:
        """The topic's configuration; set it to change it.

        CheckpointError if it has a remote tier and that part of the log can't be read any more.
        """
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._configure(config)
        # Unless only this broker's own switch says so: then nothing of a remote part is forgotten.
        if not (self.is_tiered or config.remote_storage_enable):
            self.drop_remote_part()

    def _configure(self, config: LogConfig) -> None:
        self._config = config
        self.is_tiered = (
            self._context.remote_storage_system_enable
            and config.remote_storage_enable
            and not config.is_compacted
            and self.topic_partition.topic not in NEVER_TIERED
        )
        if self.is_tiered and self._epochs_lost is not None:
            raise CheckpointError(self._epochs_lost)
        self.segments.active.use(SegmentOptions.of(config))
        self._rolls = RollPolicy(config, str(self.topic_partition))
        self._flush_messages = min(config.flush_messages, _UNLIMITED)

    @property
    def has_lost_epochs(self) -> bool:
        """Whether the epochs below the first segment are not known, and so is the log start."""
        return self._epochs_lost is not None

    @property
    def has_lost_records(self) -> bool:
        """Return whether durable records were missing when the log was loaded: another replica has
        more.

        A tiered log has its other records in the remote tier.
        """
        return self.lost_end is not None or (self.lost_start is not None and not self.is_tiered)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all segments' records."""
        return self.segments.size_in_bytes

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest undecided transaction, else the high watermark.

        Never below the log start, when the beginning of that transaction has been deleted.
        """
        first = self.producers.first_unstable_offset
        if first is None:
            return self.high_watermark
        return max(self.log_start_offset, min(first, self.high_watermark))

    def move_to(self, folder: str) -> None:
        """The folder was renamed to `folder`. Flushes under way count for nothing: they may find
        their files closed."""
        assert not self.removals, "their files would be looked for in the old folder"
        self.folder = self.producers.folder = self.id_file.folder = folder
        for segment in self.segments:
            segment.move_to(folder)
        self.epochs.move_to(folder)
        self.truncations += 1

    # -- offsets -----------------------------------------------------------------------------------

    def set_high_watermark(self, offset: int) -> int:
        """Move the high watermark, clamped to local log start .. log end; return the new one.

        Records that are no longer local were committed: only those are copied to the remote tier.
        """
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            offset = min(max(offset, self.local_log_start_offset), self.log_end_offset)
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return offset

    def maybe_increment_log_start(self, offset: int, reason: str) -> bool:
        """Hide records below `offset`; return whether the log start moved.

        `reason` is for the caller's log. StorageError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise StorageError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"log start offset {offset} of {self.topic_partition} ({reason}) is above the high"
                f" watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self._start_at(offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start_incremented(offset)
        return True

    def _start_at(self, log_start_offset: int) -> None:
        """Update the state for a new log start or first segment."""
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = max(log_start_offset, self.segments.first.base_offset)

    # -- the remote part ---------------------------------------------------------------------------

    def set_highest_remote_offset(self, offset: int) -> None:
        """Record that the remote tier has this log up to `offset`, inclusive; ignore a smaller
        one."""
        if self.is_tiered and offset > self.highest_remote_offset:
            self.highest_remote_offset = offset

    def reset_highest_remote_offset(self, offset: int) -> None:
        """Record that the remote tier has this log up to `offset` and no further: the leader of
        another branch may have deleted copies. Records that are only local must not count as
        copied."""
        if self.is_tiered:
            self.highest_remote_offset = offset

    def drop_remote_part(self) -> None:
        """Drop the remote part: the log now begins where its local part does.

        For a topic whose remote.storage.enable went off (KIP-950). If it comes back, copying begins
        at what is local then.
        """
        self.highest_remote_offset = -1
        self._epochs_lost = None
        self.set_high_watermark(self.high_watermark)
        if self.maybe_increment_log_start(self.local_log_start_offset, "remote storage disabled"):
            self._flush_epochs()  # else a crash could bring the remote part back, if the topic does

    # -- appending ---------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        produce_version: int = 13,
        from_client: bool = True,
        inspection: Inspection | None = None,
    ) -> AppendResult:
        """Check a batch, assign offsets (in place) and append it.

        TooMuchAtOnceError for one whose `inspection` must be done first. StorageError with the code
        for the client; nothing was appended then, unless what failed was noting the end of a
        transaction or a flush: then the log must not be appended to.
        """
        config = self._config
        base_offset = self.log_end_offset
        buffer: Buffer = records
        header = None
        keeps = config.keeps_batches if from_client else config.keeps_own_batches
        if keeps and inspection is None and produce_version >= ZSTD_VERSION_MIN:
            header = place_plain(records, base_offset, leader_epoch, now_ms, config)
        if header is None:
            how = config, self.topic_partition, produce_version, from_client
            target = AppendTarget(base_offset, leader_epoch, now_ms, *how)
            buffer, header = validate_slowly(records, target, inspection)
        if header.producer_id >= 0:
            duplicate = self._check_producer(header, buffer, from_client=from_client)
            if duplicate is not None:
                return duplicate._replace(log_start_offset=self.log_start_offset)
        self.append_placed(header, buffer, now_ms)
        last_offset = base_offset + header.last_offset_delta
        append_time = header.max_timestamp if config.uses_log_append_time else -1
        return _new(
            AppendResult, (base_offset, last_offset, append_time, self.log_start_offset, False)
        )

    def _check_producer(
        self, header: BatchHeader, buffer: Buffer, *, from_client: bool
    ) -> AppendResult | None:
        if not header.is_control:
            return self.producers.check(header, self.log_end_offset, from_client=from_client)
        marker = next(iter_records(buffer), None)
        if marker is not None:
            self.producers.check_marker(header, coordinator_epoch(marker), self.log_end_offset)
        return None

    def append_placed(self, header: BatchHeader, buffer: Buffer, now_ms: int) -> None:
        """Append a batch unchecked, as leader: it has its offset, the log's end, and its epoch."""
        base_offset = header.base_offset
        self.epochs.assign(header.leader_epoch, base_offset)
        last_offset = base_offset + header.last_offset_delta
        active = self.segments.active
        timestamp = header.max_timestamp
        if self._rolls.is_due(active, len(buffer), last_offset, timestamp, now_ms):
            active = self.roll(now_ms, base_offset)
        try:
            if not self.log_end_offset:
                self.id_file.sync()
            active.append(buffer, last_offset, timestamp)
        except OSError as error:
            raise self._failed(error) from error
        self.log_end_offset = last_offset + 1  # the next batch has another offset in any case
        if header.producer_id >= 0:
            self._update_producer(header, buffer, 0)
        self._appended(last_offset + 1)

    def _update_producer(self, header: BatchHeader, buffer: Buffer, position: int) -> None:
        completed = self.producers.update(header, buffer, position)
        if completed is not None:
            try:
                self.complete_transaction(completed, self.segments.active)
            except OSError as error:
                raise self._failed(error) from error

    def _appended(self, next_offset: int) -> None:
        """Update the producers' state after a write."""
        self.producers.map_end_offset = next_offset
        if next_offset - self.recovery_point >= self._flush_messages:
            try:
                self.flush()
            except OSError as error:
                raise self._failed(error) from error

    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendResult | None:
        """Append a leader's batches unchanged; None if there is nothing to append.

        A torn batch at the end is left out, and so is what comes from a batch of an epoch above
        `leader_epoch` on (KAFKA-18723): a newer leader's, to be fetched once we know of it.
        StorageError CORRUPT_MESSAGE for a bad batch, OFFSET_OUT_OF_RANGE for offsets below the end.
        """
        batches = check_replicated(
            records, self.log_end_offset, leader_epoch, self.epochs.latest_epoch
        )
        if not batches:
            return None
        first, last = batches[0].header, batches[-1].header
        self._append_all(batches, records[: batches[-1].position + last.size_in_bytes], now_ms)
        self.log_end_offset = last.next_offset
        for batch in batches:
            if batch.header.producer_id >= 0:
                self._update_producer(batch.header, records, batch.position)
        self._appended(last.next_offset)
        return AppendResult(first.base_offset, last.last_offset, -1, self.log_start_offset)

    def _append_all(
        self, batches: Sequence[ReplicatedBatch], records: memoryview, now_ms: int
    ) -> None:
        """Write a leader's batches, which fill `records`, then note their epochs.

        An epoch whose append failed is not recorded: it would claim missing records, and elections
        rely on it.
        """
        try:
            if not self.log_end_offset:
                self.id_file.sync()
            active = self._active_for(batches, len(records), now_ms)
            active.append_all(records, [batch.header for batch in batches])
        except OSError as error:
            raise self._failed(error) from error
        for batch in batches:
            if batch.header.leader_epoch >= 0:
                self.epochs.assign(batch.header.leader_epoch, batch.header.base_offset)

    def _active_for(self, batches: Sequence[ReplicatedBatch], size: int, now_ms: int) -> Segment:
        """Return the segment for a leader's batches of `size` bytes; roll if it is time."""
        first, last = batches[0].header, batches[-1].header
        timestamp = max([batch.header.max_timestamp for batch in batches])
        if not self._rolls.is_due(self.segments.active, size, last.last_offset, timestamp, now_ms):
            return self.segments.active
        # At the log end, also if the leader has compacted what is between: recovery takes a gap
        # between two segments for a loss.
        fits = last.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
        return self.roll(now_ms, None if fits else first.base_offset)

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_bound: int, min_one_batch: bool = True
    ) -> ReadOutcome:
        """Read whole batches from the one that holds `offset` on, below `upper_bound`, of one
        segment.

        At most `max_bytes`; a larger first batch is returned whole if `min_one_batch`.
        `upper_bound` is a batch boundary: the log end, high watermark or last stable offset.
        """
        end = self.log_end_offset
        if offset >= upper_bound or offset < self.local_log_start_offset:
            return self._read_nothing(offset, upper_bound)
        try:
            return self._reader.read(
                offset,
                max_bytes,
                upper_bound=upper_bound,
                log_end_offset=end,
                min_one_batch=min_one_batch,
            )
        except OSError as error:
            raise self._failed(error) from error

    def _read_nothing(self, offset: int, upper_bound: int) -> ReadOutcome:
        local_start = self.local_log_start_offset
        start = self.log_start_offset if self.is_tiered else local_start
        if not start <= offset <= self.log_end_offset:
            return OutOfRange(self.log_start_offset, self.log_end_offset)
        if offset >= upper_bound:
            return Records((), 0, offset)
        epoch = self.epochs.epoch_for_offset(offset)
        return InRemoteTier(offset, UNDEFINED_EPOCH if epoch is None else epoch, local_start)

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Find the first local record as new as `timestamp` (ms) or newer."""
        return search.offset_for_timestamp(self.segments, timestamp, self.log_start_offset)

    def max_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """The first local record with the largest timestamp; None for an empty log (KIP-734)."""
        return search.max_timestamp_offset(self.segments)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where a leader epoch ends here; see `LeaderEpochCache.end_offset_for`."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- transactions ------------------------------------------------------------------------------

    def aborted_transactions(self, offset: int, upper_bound: int) -> list[AbortedTransaction]:
        """Return aborted transactions that overlap [offset, upper bound), for read_committed.

        Kafka searches to the log's end, unless an aborted transaction shows that no older one is
        open. Here the producers' state at a segment's start shows it as well.
        """
        found: list[AbortedEntry] = []
        for segment in self.segments.from_floor(offset):
            if segment.base_offset >= upper_bound:
                oldest_open = self.oldest_open_before(segment)
                if oldest_open is not None and oldest_open >= upper_bound:
                    break
            if self.transactions_of(segment).collect(offset, upper_bound, found):
                break
        return [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found]

    def complete_transaction(self, completed: CompletedTransaction, segment: Segment) -> None:
        """Note an aborted transaction in the index of the segment that holds its marker."""
        if completed.is_aborted:
            entry = AbortedEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                self.producers.last_stable_offset(completed),
            )
            try:
                segment.transaction_index.append(entry)
            except OSError as error:
                if not lacks_descriptors(error):
                    raise  # else the records have it, and the next flush or use looks there
        self.producers.complete_transaction(completed)

    def oldest_open_before(self, segment: Segment) -> int | None:
        """First offset of the oldest transaction that is open where a segment begins, or its base
        offset if none is; None if that is not known."""
        if segment.oldest_open is None:
            segment.oldest_open = self.producers.oldest_open_at(segment.base_offset)
        return segment.oldest_open

    def transactions_of(self, segment: Segment) -> TransactionIndex:
        """Return a segment's transaction index, compared with the records on first use, and rebuilt
        if they differ.

        StorageError if the records can't be read.
        """
        if not segment.transactions_are_proven:
            proof = TransactionProof(self, segment)
            try:
                proof.settle(proof.run())
            except ProtocolError as error:
                path = segment.path(LOG_SUFFIX)
                raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {error}") from error
            except OSError as error:
                raise self._failed(error) from error
        return segment.transaction_index

    # -- damage ----------------------------------------------------------------------------------

    @property
    def damages(self) -> tuple[Damage, ...]:
        """Offsets that are known to be unreadable here, in order; see `scrub.py`."""
        return self._reader.damages

    def set_damages(self, base_offset: int, damages: Sequence[Damage]) -> None:
        """Set the damages that a scrub found in the segment of that base offset, replacing earlier
        ones. A read ends before a damage, one in it is CORRUPT_MESSAGE."""
        self._reader.set_damages(base_offset, damages)

    # -- cutting -----------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Drop everything from `offset` (a batch boundary) on; whether there was anything."""
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)  # epochs without records are dropped too
            return False
        if self.segments.first.base_offset > offset:
            self._truncate_below_local_start(offset, now_ms)
            return True
        self._begin_cut(offset)
        for segment in reversed(self.segments.remove_above(offset)):
            segment.remove()
        self.segments.active.truncate_to(offset, now_ms)
        self._shrink_to(offset)
        self.epochs.truncate_from_end(offset)
        self.producers.truncate_and_reload(self.log_start_offset, offset, now_ms)
        replay_producers(self)
        self._make_cut_durable()
        return True

    def _truncate_below_local_start(self, offset: int, now_ms: int) -> None:
        """Nothing local stays. What the remote tier has below `offset` is still this log's."""
        if not self.is_tiered or offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        epochs = self.epochs.entries_in_range(self.log_start_offset, offset)
        self._truncate_fully(offset, self.log_start_offset, epochs, now_ms)

    def truncate_fully_and_start_at(
        self, offset: int, log_start: int | None = None, now_ms: int = 0
    ) -> None:
        """Drop everything; the log goes on at `offset`, and may be read from `log_start` on."""
        self._truncate_fully(offset, offset if log_start is None else log_start, (), now_ms)

    def _truncate_fully(
        self, offset: int, log_start_offset: int, epochs: Sequence[tuple[int, int]], now_ms: int
    ) -> None:
        self._remove_all(offset)
        self.epochs.replace(epochs)
        self._flush_epochs(offset)  # else a crash leaves an empty log in an epoch that was dropped
        self._begin_anew(offset, log_start_offset, now_ms)
        self.producers.truncate_fully_and_start_at(offset)
        self._make_cut_durable()

    def restart_from_remote(
        self,
        offset: int,
        *,
        log_start: int,
        epochs: Sequence[tuple[int, int]],
        snapshot: bytes,
        now_ms: int = 0,
    ) -> None:
        """Drop everything local; the log goes on at `offset`, all before is in the remote tier.

        `epochs` (leader epoch, its start) and the producer snapshot are those of the remote segment
        that ends before `offset`; `log_start` is the leader's. KIP-405, auxiliary state.
        StorageError if the snapshot is none; nothing was changed then.

        What a crash leaves is the beginning of the old log, an empty log with nothing remote, or
        the new one whole: its first segment comes last, and nothing that is above a log's end
        outlives a crash.
        """
        self.producers.write_snapshot(offset, snapshot)
        log_start_offset = min(log_start, offset)
        self._remove_all(offset)
        self.epochs.replace(epochs)
        self.epochs.truncate_from_start(log_start_offset)
        self.epochs.truncate_from_end(offset)
        self._flush_epochs(offset)
        self._begin_anew(offset, log_start_offset, now_ms)
        self.producers.start_from_snapshot(offset, now_ms)
        self.highest_remote_offset = offset - 1 if self.is_tiered else -1
        self._make_cut_durable()

    def _begin_cut(self, offset: int) -> None:
        """Lower the recovery point, durably, before anything from `offset` on is removed.

        Otherwise a crash in the middle would leave a recovery point above the log end, and later
        appends would count as flushed.
        """
        self._reader.forget()
        self.truncations += 1
        if offset < max(self.recovery_point, self._noted_point):
            self.recovery_point = self._noted_point = min(offset, self.recovery_point)
            if self._context.on_recovery_point_lowered is not None:
                self._context.on_recovery_point_lowered(self.recovery_point)

    def _remove_all(self, offset: int) -> None:
        """Remove the files of all segments, newest first, so that a crash leaves no hole. The log
        continues at `offset`."""
        self._begin_cut(min(self.segments.first.base_offset, offset))
        for segment in reversed(list(self.segments)):
            segment.remove()
        self._files.fsync_dir(self.folder)

    def _begin_anew(self, offset: int, log_start_offset: int, now_ms: int) -> None:
        """Replace all segments, whose files are gone, by one empty segment."""
        self.id_file.sync()
        segment = self._new_segment(offset, now_ms)
        self.segments.clear()
        self.segments.add(segment)
        self._shrink_to(offset)
        self._start_at(log_start_offset)
        self.high_watermark = offset

    def _shrink_to(self, offset: int) -> None:
        """The log now ends here, and its next records differ from those that may be in the remote
        tier."""
        self._start_at(min(self.log_start_offset, offset))
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)

    def _make_cut_durable(self) -> None:
        """Make a truncation durable before the next append: else a power failure could restore
        removed segments after new batches."""
        self.segments.active.records.fsync()
        self._files.fsync_dir(self.folder)

    def delete_old_segments(self, now_ms: int) -> int:
        """Run one pass of retention; return the number of deleted segments. Their files are removed
        after a delay.

        While a remote tier takes copies, they stay readable there, and the log start where it is.
        """
        limits = Retention.of(self, now_ms)
        count, rolls = plan_deletion(self.segments, limits)
        if rolls:
            self.roll(now_ms)
        if not count:
            return 0
        start = list(self.segments)[count].base_offset
        if limits.deletable_to is None:
            self.maybe_increment_log_start(start, "segment deletion")
        if self.is_tiered:
            # Segments that the log start has passed were never copied: a crash must not restore an
            # older log start, which would send readers to the remote tier.
            self._flush_epochs()
            keep_producers(self, start)
        self._reader.forget()
        removed = self.segments.remove_first(count)
        self._start_at(self.log_start_offset)
        due_ms = now_ms + self._config.file_delete_delay_ms
        for segment in removed:
            self.removals.add(due_ms, segment.mark_deleted())
            self.producers.remove_snapshot(segment.base_offset)
        return count

    def replace_segments(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Replace sealed segments, or a missing one, by a compacted or repaired one, whose
        `.cleaned` files are in the folder. See `compaction/swap.py`."""
        self._reader.forget()
        deleted = swap_files(self._files, self.folder, new.base_offset, old)
        if old:
            self.segments.replace(old, new)
        else:
            self.segments.insert(new)
        self.removals.add(now_ms + self._config.file_delete_delay_ms, deleted)
        for segment in old[1:]:
            self.producers.remove_snapshot(segment.base_offset)

    def replace_damaged(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Swap in a repaired segment. Background work on the log must restart: positions have
        changed, and missing records may be back."""
        self.replace_segments(old, new, now_ms)
        self.truncations += 1

    def restore_start(self, new: Segment, epochs: Sequence[tuple[int, int]], now_ms: int) -> None:
        """Restore a lost segment before the first one, with the leader epochs of all."""
        assert new.base_offset < self.segments.first.base_offset
        self.replace_damaged([], new, now_ms)
        self.epochs.replace(epochs)
        self.lost_start = None
        self._start_at(new.base_offset)

    def correct_epochs(self, found: Sequence[tuple[int, int]], end_offset: int) -> None:
        """Replace the leader epochs from the first of these on, up to `end_offset`, by those of the
        records: the checkpoint was damaged. OSError."""
        self.epochs.correct(found, end_offset)
        self._flush_epochs()

    def sealed_files(self, segment: Segment) -> SealedFiles:
        """Return the files of a sealed segment; build missing ones. OSError if that fails."""
        return sealed_files(self, segment)

    # -- segments ----------------------------------------------------------------------------------

    def assign_epoch(self, epoch: int) -> None:
        """This broker leads in `epoch` from the log end on; see `LeaderEpochCache` for the file."""
        self.epochs.assign(epoch, self.log_end_offset)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seal the active segment and begin a new one at the log end (or above, for a follower)."""
        base_offset = max(self.log_end_offset, base_offset or 0)
        active = self.segments.active
        if not active.size and active.base_offset == base_offset:
            active.created_ms = now_ms
            return active
        try:
            active.write_indexes(seal=True)
            self._noted_point = max(self._noted_point, self.recovery_point)
            self.recovery_point = seal(active, self.recovery_point, base_offset)
            self.producers.map_end_offset = base_offset
            self.producers.take_snapshot()
            segment = self._new_segment(base_offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        segment.oldest_open = self.producers.first_undecided_offset
        if segment.oldest_open is None:
            segment.oldest_open = base_offset
        self.segments.add(segment)
        if self._context.on_roll is not None:
            self._context.on_roll(self)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment(
            self._files,
            self.folder,
            base_offset,
            size=0,
            options=SegmentOptions.of(self._config),
            created_ms=now_ms,
        ).begin()

    def _failed(self, error: OSError) -> StorageError:
        if error.filename is None and error.errno is not None:
            error.filename = self.folder
        return StorageError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}")

    # -- durability --------------------------------------------------------------------------------

    def prepare_flush(
        self, offset: int | None = None, *, closing: bool = False
    ) -> FlushTask | None:
        """What makes the log durable up to `offset` (the log end); None if it is.

        Run the task on any thread, then tell the log by `flushed(task)`. `closing` takes in the
        active segment's indexes, which are recovered after a crash but not after an orderly stop.
        """
        offset = self.log_end_offset if offset is None else min(offset, self.log_end_offset)
        if offset <= self.recovery_point:
            return None
        self._flush_epochs()
        return FlushTask(self, offset, closing=closing)

    def _flush_epochs(self, end_offset: int | None = None) -> None:
        """Write the epochs of records below `end_offset` (the log end). OSError.

        A lost file of a log with a remote part is left alone: another one would hide the damage.
        """
        if self._epochs_lost is None:
            self.epochs.flush(self.log_end_offset if end_offset is None else end_offset)

    def prepare_start(self) -> Callable[[], None] | None:
        """What has to be done, on any thread, before this log start may be checkpointed: see
        `LeaderEpochCache`. None if nothing has."""
        start = self.log_start_offset
        if not start or self._epochs_lost is not None or not self.epochs.has_below(start):
            return None
        return self.epochs.prepare(self.log_end_offset)

    def flushed(self, task: FlushTask) -> None:
        """Record that a task has succeeded."""
        offset = task.offset
        if task.indexed_offset < self.segments.active.base_offset:
            offset = min(offset, task.indexed_offset)  # the active segment was sealed meanwhile
        if task.truncations == self.truncations and offset > self.recovery_point:
            self.recovery_point = offset

    def flush(self, *, closing: bool = False) -> None:
        """Make everything durable now, blocking; `closing` as in `prepare_flush`."""
        task = self.prepare_flush(closing=closing)
        if task is not None:
            task()
            self.flushed(task)

    def close(self) -> None:
        """Close cleanly: write and sync everything. Unchanged files cost nothing."""
        self.producers.take_snapshot()
        for segment in self.segments:
            if segment.size:  # else nothing needs them: two files less for each empty log
                segment.write_indexes(seal=True)
        active = self.segments.active
        self.recovery_point = seal(active, self.recovery_point, self.log_end_offset)
        self.flush(closing=True)
        if self.log_end_offset:  # also if all is deleted: older epochs would say that it is not
            self._flush_epochs()
        self.release()

    def release(self) -> None:
        """Close all handles without writing: the folder or the process ends."""
        for segment in self.segments:
            segment.release()
