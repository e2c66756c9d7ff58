"""From the files of a partition's folder to a `Log`, after a clean or an unclean stop.

After a clean stop nothing is read but the newest index, the last
batches, the epoch checkpoint and the newest producer snapshot; sealed segments stay closed. After
an unclean one the segments from the recovery point on are read whole, cut at the first bad batch,
and their indexes, the leader epochs and the producer state are built again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CheckpointError,
    EpochEntry,
    LeaderEpochCheckpoint,
    read_partition_metadata,
)
from tidelog_storage.compaction.swap import CLEANED_SUFFIX, SWAP_SUFFIX, finish_swaps
from tidelog_storage.epoch_checks import RecoveredEpochs, proven_epochs
from tidelog_storage.epochs import LeaderEpochCache
from tidelog_storage.loading import Checkpointed, Loaded
from tidelog_storage.log import Log
from tidelog_storage.producer_state import ProducerStateManager
from tidelog_storage.replay import replay_producers
from tidelog_storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    SegmentOptions,
    file_name,
    offsets_of,
)
from tidelog_storage.segments import Segments
from tidelog_storage.types import StorageError, damage_below

if TYPE_CHECKING:
    from tidelog_storage.config import LogConfig
    from tidelog_storage.loading import LogContext

TEMPORARY_SUFFIX = ".tmp"
SNAPSHOT_SUFFIX = ".snapshot"
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def load_log(
    context: LogContext,
    config: LogConfig,
    checkpointed: Checkpointed = Checkpointed(),  # noqa: B008 - immutable
    *,
    is_provisional: bool = False,
) -> Log:
    """Load the log in the context's folder; create it if it is missing.

    `is_provisional`: the topic's own configuration is not known yet, so the log may have a remote
    part. CheckpointError for an invalid file, OSError for an unreadable one, StorageError for
    damage below `keep_below`."""
    loader = _Loader(context, config, checkpointed)
    is_plain = not (is_provisional or config.remote_storage_enable)
    loaded = loader.load(is_plain=is_plain, is_provisional=is_provisional)
    if context.topic_id is None:
        context = context._replace(topic_id=loader.topic_id())
    log = Log(context, config, loaded)
    loader.note_losses(log)
    log.producers.truncate_and_reload(log.log_start_offset, log.log_end_offset, context.now_ms)
    replay_producers(log, {segment.base_offset for segment in loader.recovered})
    if loader.recovered:
        context.files.fsync_dir(
            context.folder
        )  # what was removed must not return beside new batches
    return log


class _Loader:
    """The steps of loading one folder."""

    def __init__(self, context: LogContext, config: LogConfig, checkpointed: Checkpointed) -> None:
        self._context = context
        self._files = context.files
        self._folder = context.folder
        self._options = SegmentOptions.of(config)
        self._checkpointed = checkpointed
        self.recovered: list[Segment] = []
        self._recovered_from: int | None = None  # the offset; None without recovery
        self._recovered_epochs = RecoveredEpochs()
        self._start_is_known = True  # else the log begins with its first segment, as most do
        self._oldest: int | None = None  # where the oldest leader epoch began
        self._doubtful_end: int | None = None  # offsets are missing before the last batch
        self._epochs_lost: str | None = None  # why the epochs below the first segment aren't known

    def load(self, *, is_plain: bool, is_provisional: bool) -> Loaded:
        """Load everything but the producers' state. `is_plain`: the log has no remote part."""
        checkpointed = self._checkpointed
        names = self._list_files()
        segments = self._open_segments(names, checkpointed.log_start_offset or 0)
        if is_provisional:
            checkpointed = self.with_start_of_epochs(checkpointed, segments)
        known_start, is_orderly = checkpointed.log_start_offset, checkpointed.had_clean_shutdown
        self._start_is_known = known_start is not None
        if not is_orderly:
            self.recovered = self.recover(segments, checkpointed)
        log_end_offset = self._end_offset(segments)
        if log_end_offset < (known_start or 0):
            log_end_offset = self._start_anew(segments, known_start or 0)
        log_start_offset = segments.first.base_offset
        if self._start_is_known or not is_orderly:
            first_offset = log_start_offset if is_plain else 0
            log_start_offset = max(known_start or 0, first_offset)
        producers = self._producers(names, segments)
        epochs, log_start_offset = self._load_epochs(segments, log_start_offset, log_end_offset)
        recovery_point = log_end_offset if is_orderly else checkpointed.recovery_point
        self._lower_recovery_point(log_end_offset)  # else what is appended would count as flushed
        return Loaded(
            segments,
            epochs,
            producers,
            log_start_offset,
            log_end_offset,
            checkpointed.high_watermark,
            recovery_point,
            self._epochs_lost,
        )

    def _lower_recovery_point(self, offset: int) -> None:
        """Have a recovery point that is noted above an offset noted as that offset."""
        note = self._context.on_recovery_point_lowered
        if offset < self._checkpointed.recovery_point and note is not None:
            note(offset)

    def _report(self, text: str) -> None:
        if self._context.report is not None:
            self._context.report(f"{self._context.topic_partition}: {text}")

    def topic_id(self) -> bytes | None:
        """The id in `partition.metadata`; None if it is missing."""
        return read_partition_metadata(self._files, self._folder)

    # -- files -------------------------------------------------------------------------------------

    def _list_files(self) -> dict[str, int]:
        """Names and sizes, after what an interrupted deletion or compaction left was settled."""
        try:
            names = self._files.sizes(self._folder)
        except FileNotFoundError:
            self._files.make_dirs(self._folder)
            return {}
        suffixes = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
        if not any(name.endswith(suffixes) for name in names):
            return names
        finish_swaps(self._files, self._folder, names, self._report)
        for name in names:
            if name.endswith(suffixes):
                self._files.remove(f"{self._folder}/{name}")
        return self._files.sizes(self._folder)

    def _open_segments(self, names: dict[str, int], log_start_offset: int) -> Segments:
        """The segments as they lie there, or an empty one at the log start."""
        bases = offsets_of(names, LOG_SUFFIX)
        known = set(bases)
        for suffix in _INDEX_SUFFIXES:
            for orphan in set(offsets_of(names, suffix)) - known:
                self._files.remove(f"{self._folder}/{file_name(orphan, suffix)}")
        if not bases:
            return Segments([self._new_segment(log_start_offset)])
        return Segments(
            self._segment(base_offset, names[file_name(base_offset, LOG_SUFFIX)])
            for base_offset in bases
        )

    def _segment(self, base_offset: int, size: int) -> Segment:
        return Segment(
            self._files,
            self._folder,
            base_offset,
            size=size,
            options=self._options,
            created_ms=self._context.now_ms,
        )

    def _new_segment(self, base_offset: int) -> Segment:
        return self._segment(base_offset, 0).begin()

    # -- records -----------------------------------------------------------------------------------

    def recover(self, segments: Segments, checkpointed: Checkpointed) -> list[Segment]:
        """Read the segments from the recovery point on; what follows a bad batch is removed.

        So is what follows a gap between segments: a power failure may take the unsynced end of a
        sealed one, at a batch's boundary, and leave the next. Kafka keeps what is behind such a
        gap. Gaps that compaction has left lie below the recovery point (`compaction/cleaner.py`),
        unless Kafka wrote the folder: then its checkpoint counts. If the recovery points are lost,
        all gaps stay, and `holes.py` looks at them.
        """
        keep_below = checkpointed.keep_below
        self._recovered_from = max(checkpointed.recovery_point, segments.first.base_offset)
        recovered: list[Segment] = []
        for segment in segments.from_floor(checkpointed.recovery_point):
            # Until a cut is synced its segment counts as not flushed: if this start is killed, the
            # next one finds nothing to cut.
            cut, self._doubtful_end = segment.recover(
                self._recovered_epochs.add, self._lower_recovery_point, keep_below
            )
            recovered.append(segment)
            if cut:
                self._report(
                    f"cut {cut} bytes off segment {segment.base_offset}: the records from offset"
                    f" {segment.next_offset()} on are not whole, and lost on this disk"
                )
                segment.records.fsync()  # else the next crash may bring them back, sealed
            following = segments.after(segment.base_offset)
            if following is None:
                break
            may_have_gap = following.base_offset <= checkpointed.compacted_to
            if cut or (not may_have_gap and segment.next_offset() < following.base_offset):
                if segment.next_offset() < keep_below:
                    raise damage_below(self._folder, segment.next_offset(), keep_below)
                for removed in reversed(segments.remove_above(segment.base_offset)):
                    self._report(f"removed segment {removed.base_offset}, which lay behind that")
                    removed.remove()
                break
        return recovered

    def _end_offset(self, segments: Segments) -> int:
        """Offset after the last batch; an active segment that turns out torn is recovered."""
        active = segments.active
        if not active.size:
            return active.base_offset  # its indexes need not be loaded
        try:
            end_offset = active.next_offset()
            if active.index_fault is not None:
                # All was written at the orderly stop: these files are no leftovers.
                self._report(
                    f"{active.index_fault}; the indexes were built again, but it may be the records"
                    " that are damaged"
                )
            return end_offset
        except StorageError as error:
            self._report(f"segment {active.base_offset} is torn after a clean stop: {error}")
            torn = Checkpointed(recovery_point=active.base_offset)
            self.recovered += self.recover(segments, torn)
            return active.next_offset()

    def _start_anew(self, segments: Segments, log_start_offset: int) -> int:
        """The log ends below its log start: nothing in it may be read any more."""
        self._report(f"all records lie below the log start {log_start_offset}: removed")
        for segment in reversed(segments.clear()):
            segment.remove()
        self._files.fsync_dir(self._folder)  # else they could come back below the new segment
        segments.add(self._new_segment(log_start_offset))
        return log_start_offset

    def _producers(self, names: dict[str, int], segments: Segments) -> ProducerStateManager:
        """The producer state with the snapshots that may be trusted, not loaded yet."""
        producers = ProducerStateManager(
            self._files,
            self._folder,
            self._context.topic_partition,
            expiration_ms=self._context.producer_expiration_ms,
            snapshot_offsets=offsets_of(names, SNAPSHOT_SUFFIX),
        )
        producers.remove_stray_snapshots(segments.base_offsets)
        if self.recovered:
            for snapshot in list(producers.snapshots):
                if snapshot > self.recovered[0].base_offset:
                    producers.remove_snapshot(snapshot)
        return producers

    # -- epochs ------------------------------------------------------------------------------------

    def with_start_of_epochs(self, checkpointed: Checkpointed, segments: Segments) -> Checkpointed:
        """The same, with a log start that the leader epochs do not contradict.

        No log start is checkpointed before the epochs on disk begin there or above: one above the
        oldest of them is damaged. So is one of a log of which nothing was ever flushed and that has
        no epochs on disk. After an orderly stop a log begins where the oldest epoch does, if its
        checkpoint is lost. Kafka then begins with the first local segment, and deletes what is
        remote below it.
        """
        known, first_offset = checkpointed.log_start_offset, segments.first.base_offset
        is_orderly = checkpointed.had_clean_shutdown
        checkpoint = LeaderEpochCheckpoint(self._files, self._folder)
        if not (is_orderly or known):
            return checkpointed
        try:
            entries = checkpoint.read()
        except CheckpointError:
            return checkpointed
        if entries:
            oldest = entries[0].start_offset
        elif is_orderly or checkpointed.recovery_point or entries is not None:
            return checkpointed
        else:
            oldest = first_offset
        if known is None:
            is_missing = checkpointed.log_starts_are_lost or oldest < first_offset
        else:
            is_missing = known > oldest
        if known is not None and is_missing:
            self._report(
                f"{LOG_START_OFFSET_CHECKPOINT} says that the log begins at {known}, its leader"
                f" epochs say {oldest}: it begins there"
            )
        return checkpointed._replace(log_start_offset=oldest) if is_missing else checkpointed

    def _load_epochs(
        self, segments: Segments, log_start_offset: int, log_end_offset: int
    ) -> tuple[LeaderEpochCache, int]:
        """The epochs of the log, and where it starts, which is not below the oldest of them.

        What was cut off the epochs was cut off the log, though its checkpoint may be older.
        """
        epochs = self._epochs_found(segments, log_start_offset)
        first_offset = segments.first.base_offset
        oldest = epochs.earliest_entry
        self._oldest = None if oldest is None else oldest.start_offset
        if log_start_offset >= first_offset and (self._start_is_known or not first_offset):
            self._epochs_lost = None
        elif self._epochs_lost is None:
            start = first_offset if oldest is None else min(oldest.start_offset, first_offset)
            log_start_offset = max(log_start_offset, start)
        epochs.truncate_from_start(log_start_offset)
        epochs.truncate_from_end(log_end_offset)
        if len(epochs) and self._recovered_from is None and self._epochs_lost is None:
            epochs.flush(log_end_offset)  # after a crash the next flush of the log will do
        return epochs, log_start_offset

    def note_losses(self, log: Log) -> None:
        """Note in the log, and write to the broker's log, what was durable and is not there."""
        checkpointed = self._checkpointed
        first_offset, end, oldest = log.segments.first.base_offset, log.log_end_offset, self._oldest
        known_start = checkpointed.log_start_offset  # of a log that begins remotely, its first
        is_local = known_start is None or known_start >= first_offset
        if is_local and oldest is not None and oldest < first_offset:
            log.lost_start = oldest  # unless it turns out to have a remote part
        log.doubtful_end = self._doubtful_end
        if checkpointed.recovery_point > end:
            log.lost_end = checkpointed.recovery_point
            self._report(
                f"offsets {end} to {log.lost_end - 1} are lost: they were on disk when it stopped"
            )

    def _epochs_found(self, segments: Segments, log_start_offset: int) -> LeaderEpochCache:
        """The checkpoint up to where recovery began, and what that found; from the records if the
        checkpoint is lost.

        Kafka refuses to load then, and so does a log with a remote part. After a crash it may also
        begin above the log start, or hold no entries: the newest log start is forgotten then, but
        not what was cut off the epochs for its sake.
        """
        checkpoint = LeaderEpochCheckpoint(self._files, self._folder)
        try:
            epochs = LeaderEpochCache.load(checkpoint)
        except CheckpointError as error:
            self._report(f"{error}; rebuilt from the records")
            self._epochs_lost = str(error)
            epochs = LeaderEpochCache(checkpoint)
        found, begun = self._recovered_epochs.entries, self._recovered_from
        oldest = epochs.earliest_entry
        older: list[EpochEntry] = []
        if oldest is None:
            older = self._epochs_before(segments, begun)
            first_offset, has_file = segments.first.base_offset, epochs.has_file
            is_gone = first_offset > 0 and (not has_file or log_start_offset < first_offset)
            may_be_lost = begun is None or not has_file
            if (older or found or is_gone) and may_be_lost and self._epochs_lost is None:
                self._epochs_lost = f"{checkpoint.path} is missing or empty"
        elif begun is not None and log_start_offset < oldest.start_offset:
            older = self._epochs_before(segments, min(begun, oldest.start_offset))
        if begun is not None:
            epochs.truncate_from_end(begun)  # above, the file may be old
        if older:
            newer = [entry for entry in epochs.entries if entry.epoch > older[-1].epoch]
            epochs.replace([*older, *newer])
        self._add_found(epochs, found, segments, log_start_offset)
        return epochs

    def _add_found(
        self,
        epochs: LeaderEpochCache,
        found: list[EpochEntry],
        segments: Segments,
        log_start_offset: int,
    ) -> None:
        """Add what recovery has found, above the checkpoint's; the records correct these."""
        expected, begun = epochs.entries, self._recovered_from
        if begun is not None:
            newest = epochs.latest_epoch
            expected += [one for one in found if one.start_offset >= begun and one.epoch > newest]
        for entry in found:
            if entry.epoch > epochs.latest_epoch:
                epochs.assign(entry.epoch, entry.start_offset)
        read = None if begun is None else found
        proven = proven_epochs(self._files, segments, expected, read, log_start_offset)
        if proven:
            why = f"{self._folder}/{LEADER_EPOCH_CHECKPOINT} does not fit the records"
            self._report(f"{why}: rebuilt from them")
            self._epochs_lost = self._epochs_lost or why
            epochs.replace(proven)

    def _epochs_before(self, segments: Segments, offset: int | None) -> list[EpochEntry]:
        """The epochs of the records below an offset, or of all."""
        found = RecoveredEpochs()
        for segment in segments:
            for _, header, batch in segment.batches():
                if offset is not None and header.base_offset >= offset:
                    return found.entries
                found.add(header, batch)
        return found.entries
