"""The compaction of all logs of a manager: choose the next log, run its pass, record the result.

The broker's maintenance calls `begin`, runs the steps of the pass off the loop, calls `advance`
after each, and then `end`. All methods are plain and run on the loop.

A pass changes a log only in `advance`, and only while the log still has the segments that were
read: a truncation, retention, a deletion, a move to another directory or another life of the topic
ends it (Kafka's LogCleaningAbortedException). Two files are written around it: before the first
swap `recovery-point-offset-checkpoint`, so that recovery never meets the gaps that compaction
leaves, and at the end `cleaner-offset-checkpoint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.compaction.batch_filter import LastRecord, Rules
from tidelog_storage.compaction.offset_map import OffsetMap
from tidelog_storage.compaction.plan import Source, find_dirt
from tidelog_storage.compaction.rewriting import Limits, Rewriting, Work
from tidelog_storage.segment import Segment, SegmentOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog_storage.compaction.plan import Dirt
    from tidelog_storage.compaction.rewriting import CleanedGroup, Progress
    from tidelog_storage.flush import FlushTask
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager
    from tidelog_storage.types import TopicPartition


class CleanerLimits(NamedTuple):
    """`log.cleaner.dedupe.buffer.size` of one pass, and `log.cleaner.io.buffer.load.factor`."""

    map_bytes: int
    map_load_factor: float


class Cleaning:
    """One pass over one log: the broker runs `rewriting.step` until it is done."""

    def __init__(self, log: Log, dirt: Dirt, rewriting: Rewriting, old: list[Segment]) -> None:
        self.log = log
        self.dirt = dirt
        self.rewriting = rewriting
        self._old = {segment.base_offset: segment for segment in old}  # not replaced yet
        self._truncations = log.truncations

    def __str__(self) -> str:
        made = self.rewriting
        return (
            f"{self.log.topic_partition} up to offset {made.compacted_to}:"
            f" {made.read_bytes} bytes read, {made.written_bytes} written"
        )

    def is_valid(self) -> bool:
        """Return whether the log still has the segments of the pass: it only loses them at its
        ends."""
        log = self.log
        first = next(iter(self._old.values()), None)
        return (
            log.config.is_compacted
            and log.truncations == self._truncations
            and (first is None or log.segments.floor(first.base_offset) is first)
        )

    def prepare_flush(self) -> FlushTask | None:
        """Return the flush that must come first, because only durable segments are compacted.

        It includes everything after them, with the markers of their transactions: otherwise a power
        failure could undo a commit because of which older records were dropped.
        """
        return self.log.prepare_flush()

    def swap_in(self, group: CleanedGroup, now_ms: int) -> None:
        """Swap in a group's new segment. OSError: the folder needs a restart."""
        old = [self._old.pop(base_offset) for base_offset in group.base_offsets]
        new = Segment(
            old[0].files,
            old[0].folder,
            old[0].base_offset,
            size=group.size,
            options=SegmentOptions.of(self.log.config),
            created_ms=old[-1].created_ms,
        )
        new.transactions_are_proven = True  # this pass has just written its index
        self.log.replace_segments(old, new, now_ms)


class LogCleaner:
    """Invariant: of each partition at most one pass runs."""

    def __init__(self, logs: LogManager, limits: CleanerLimits) -> None:
        self._logs = logs
        self.limits = limits
        self._running: dict[TopicPartition, Cleaning] = {}
        self._uncleanable: dict[TopicPartition, Log] = {}

    def begin(self, now_ms: int, only: Log | None = None) -> Cleaning | None:
        """Begin a pass over the dirtiest log; None if none is dirty enough.

        With `only`, over that log if it is dirty at all.
        """
        chosen: tuple[Log, Dirt] | None = None
        for log, dirt in self._dirty(now_ms, only):
            if chosen is None or dirt.ratio > chosen[1].ratio:
                chosen = (log, dirt)
        if chosen is None:
            return None
        log, dirt = chosen
        segments = [segment for segment in log.segments if segment.base_offset < dirt.end_offset]
        cleaning = Cleaning(log, dirt, self._rewriting(log, dirt, segments, now_ms), segments)
        self._running[log.topic_partition] = cleaning
        return cleaning

    def is_running(self, log: Log) -> bool:
        """Return whether a pass over that log has begun and not ended."""
        return log.topic_partition in self._running

    def _dirty(self, now_ms: int, only: Log | None) -> Iterator[tuple[Log, Dirt]]:
        for log in self._logs.loaded() if only is None else (only,):
            partition = log.topic_partition
            if (
                log.config.is_compacted
                and len(log.segments) > 1
                and partition not in self._running
                and self._uncleanable.get(partition) is not log
                and self._logs.is_cleanable(log)
            ):
                dirt = find_dirt(log, self._logs.compacted_to(partition), now_ms)
                if dirt.is_enough(log.config.min_cleanable_dirty_ratio if only is None else 0):
                    yield log, dirt

    def _rewriting(self, log: Log, dirt: Dirt, segments: list[Segment], now_ms: int) -> Rewriting:
        """Create the pass, with copies of all that it needs of the log."""
        bases = [segment.base_offset for segment in segments]
        ends = [*bases[1:], dirt.end_offset]
        producers = log.producers.producers.items()
        sources = [
            Source(base, end, segment.size)
            for base, end, segment in zip(bases, ends, segments, strict=True)
        ]
        aborted = [
            entry
            for segment in log.segments
            for entry in log.transactions_of(segment).entries
            if entry.last_offset >= bases[0]
        ]
        return Rewriting(
            segments[0].files,
            log.folder,
            Work(sources, dirt.first_dirty_offset, aborted),
            Rules(
                now_ms,
                log.config.delete_retention_ms,
                dirt.end_offset,
                {
                    producer_id: LastRecord(
                        entry.batches[-1].last_offset if entry.batches else -1,
                        entry.producer_epoch,
                    )
                    for producer_id, entry in producers
                },
            ),
            Limits(log.config.segment_size, SegmentOptions.of(log.config)),
            offset_map=OffsetMap(self.limits.map_bytes, self.limits.map_load_factor),
        )

    def prepare_checkpoint(self, cleaning: Cleaning) -> Callable[[], None] | None:
        """Return the write of the recovery points, for the Executor, after the flush and before the
        first step. None if the pass is no longer valid."""
        if not self.is_alive(cleaning) or cleaning.log.recovery_point < cleaning.dirt.end_offset:
            return None
        return self._logs.prepare_recovery_points(cleaning.log.topic_partition)

    def advance(self, cleaning: Cleaning, progress: Progress, now_ms: int) -> bool:
        """Swap in the result of a step. False if the pass is over, complete or not.

        OSError if the swap failed midway: the folder needs a restart.
        """
        if not self.is_alive(cleaning):
            return False
        if progress.group is not None:
            cleaning.swap_in(progress.group, now_ms)
        return not progress.is_done

    def is_alive(self, cleaning: Cleaning) -> bool:
        """Return whether the pass is still valid."""
        return self._logs.is_cleanable(cleaning.log) and cleaning.is_valid()

    def finish(self, cleaning: Cleaning) -> Callable[[], None] | None:
        """Return the write of the checkpoint, for the Executor, after all steps. None if the log
        has changed meanwhile."""
        if not self.is_alive(cleaning):
            return None
        return self._logs.prepare_compacted(
            cleaning.log.topic_partition, cleaning.rewriting.compacted_to
        )

    def leave_alone(self, cleaning: Cleaning) -> None:
        """Do not compact an unreadable log again until a restart."""
        self._uncleanable[cleaning.log.topic_partition] = cleaning.log

    def end(self, cleaning: Cleaning) -> None:
        """End the pass in any case; another may use the partition now."""
        cleaning.rewriting.give_up()
        del self._running[cleaning.log.topic_partition]
