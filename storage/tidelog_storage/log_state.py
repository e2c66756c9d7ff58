"""The state of one log: its offsets, segments, epochs and producers, and their consistency.

It owns the offsets and the rules between them (log start <= local log start <= high watermark <=
log end, last stable <= high watermark), the sealing of the active segment, and durability. `log.py`
adds the operations on records: append, read, truncate.

A log with a remote tier (KIP-405) has records below its first segment: it knows from where on they
are local and up to where they were copied, and nothing else of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.checkpoints import CheckpointError
from tidelog_storage.flush import FlushTask, seal
from tidelog_storage.index_checks import find_aborted, has_abort_marker
from tidelog_storage.indexes import AbortedEntry
from tidelog_storage.open_files import lacks_descriptors
from tidelog_storage.reader import Reader
from tidelog_storage.removals import Removals
from tidelog_storage.roll import RollPolicy
from tidelog_storage.segment import LOG_SUFFIX, Segment, SegmentOptions
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog_storage.config import LogConfig
    from tidelog_storage.epochs import LeaderEpochCache
    from tidelog_storage.indexes import TransactionIndex
    from tidelog_storage.producer_state import CompletedTransaction, ProducerStateManager
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segments import Segments
    from tidelog_storage.types import TopicPartition

_UNLIMITED = 1 << 62
NEVER_TIERED = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)
"""Topics that stay local whatever their configuration says."""


class LogState:
    """One partition's log without the operations on records; everything below `recovery_point` is
    durable.

    `log_start_offset`: first offset that may be read. `log_end_offset`: offset of the next record.
    `high_watermark`: first offset not known to be on all replicas that count; moved from outside.
    `local_log_start_offset`: first offset that may be read here; above the log start only if what
    is between is in the remote tier. `is_tiered`: whether there is one. `highest_remote_offset`:
    last offset known to be there, -1 if none is. `kept_from`: local retention deletes nothing from
    this offset on, as its remote copy is damaged. `lost_start`, `lost_end`: offsets from the one to
    the first segment, and from the log end to the other, were on disk when the log was last open
    and are not there any more; None if nothing is known to be lost. `doubtful_end`: after a crash,
    the first of the offsets that are missing before the last batch; see `holes.py`.
    """

    __slots__ = (
        "_config",
        "_epochs_lost",
        "_files",
        "_flush_messages",
        "_noted_point",
        "_on_recovery_point_lowered",
        "_on_roll",
        "_reader",
        "_remote_storage_system_enable",
        "_rolls",
        "_truncations",
        "doubtful_end",
        "epochs",
        "folder",
        "high_watermark",
        "highest_remote_offset",
        "is_tiered",
        "kept_from",
        "last_flushed_ms",
        "local_log_start_offset",
        "log_end_offset",
        "log_start_offset",
        "lost_end",
        "lost_start",
        "producers",
        "recovery_point",
        "removals",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: bytes | None,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        recovery_point: int,
        epochs_lost: str | None = None,
        remote_storage_system_enable: bool = False,
        on_roll: Callable[[LogState], None] | None = None,
        on_recovery_point_lowered: Callable[[int], None] | None = None,
    ) -> None:
        """A loaded log; use `recovery.load_log`.

        `on_roll` is called with a log whose sealed segment must be flushed;
        `on_recovery_point_lowered` makes the lowered point durable before a cut, else a crash would
        trust bytes written after. `remote_storage_system_enable`: whether the broker has a remote
        tier at all. `epochs_lost` says why the epochs of a remote part, if it has one, are not
        known.
        """
        assert 0 <= log_start_offset <= log_end_offset
        self._files = files
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self._start_at(log_start_offset)
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, self.local_log_start_offset), log_end_offset)
        self.highest_remote_offset = -1
        self.kept_from: int | None = None
        self.recovery_point = min(recovery_point, log_end_offset)
        self._noted_point = 0  # its checkpoint may say so much, if that is more
        self.lost_start: int | None = None
        self.lost_end: int | None = None
        self.doubtful_end: int | None = None
        self.last_flushed_ms = 0
        self.removals = Removals(files.remove)
        self._on_roll = on_roll
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._truncations = 0
        self._reader = Reader(segments)
        self._epochs_lost = epochs_lost
        self._remote_storage_system_enable = remote_storage_system_enable
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
            self._remote_storage_system_enable
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

    @property
    def truncations(self) -> int:
        """Number of truncations; background work compares it to detect a cut."""
        return self._truncations

    def move_to(self, folder: str) -> None:
        """The folder was renamed to `folder`. Flushes under way count for nothing: they may find
        their files closed."""
        assert not self.removals, "their files would be looked for in the old folder"
        self.folder = self.producers.folder = folder
        for segment in self.segments:
            segment.move_to(folder)
        self.epochs.move_to(folder)
        self._truncations += 1

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

    # -- segments ----------------------------------------------------------------------------------

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
        index = segment.transaction_index
        if not segment.transactions_are_proven:
            try:
                aborted = self._aborted_in(segment, index.entries)
                if index.entries != aborted or not index.is_whole:
                    index.replace(aborted)
            except ProtocolError as error:
                path = segment.path(LOG_SUFFIX)
                raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"{path}: {error}") from error
            except OSError as error:
                raise self._failed(error) from error
            segment.transactions_are_proven = True
        return index

    def _aborted_in(self, segment: Segment, known: Sequence[AbortedEntry]) -> list[AbortedEntry]:
        if not has_abort_marker(segment.records, segment.size):
            return []
        first = self.segments.first.base_offset
        producers = self.producers.before(segment.base_offset + 1, first)
        batches = (
            (header, batch)
            for each in self.segments.from_floor(producers.map_end_offset)
            if each.base_offset <= segment.base_offset
            for _, header, batch in each.batches()
        )
        lacks_beginnings = first > 0 and producers.latest_snapshot_offset is None
        return find_aborted(
            producers, batches, segment.base_offset, known if lacks_beginnings else ()
        )

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
        if self._on_roll is not None:
            self._on_roll(self)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment.create(
            self._files,
            self.folder,
            base_offset,
            options=SegmentOptions.of(self._config),
            created_ms=now_ms,
        )

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
        return FlushTask.of(self, offset, closing=closing)

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
        if task.truncations == self._truncations and offset > self.recovery_point:
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
