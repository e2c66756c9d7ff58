"""One compaction pass over a log, in steps that may run on any thread, one after the other.

First the keys of the dirty part are put into a map (as many as fit: the rest is for the next pass),
then every segment from the log's beginning up to there is rewritten, group by group, to `.cleaned`
files, which are durable when the step that returns the group ends. Between two steps the log swaps
such a group in (`swap.py`).

Sees frozen values and files only. The files it reads are sealed and durable; if they are truncated,
removed or replaced meanwhile, its owner discards the result.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import crc_is_valid
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.record_spans import record_spans
from tidelog_protocol.records import records_payload
from tidelog_storage.compaction.batch_filter import BatchFilter
from tidelog_storage.compaction.plan import group
from tidelog_storage.compaction.swap import CLEANED_SUFFIX
from tidelog_storage.compaction.transactions import CleanedTransactions
from tidelog_storage.flush import sync_all
from tidelog_storage.scan import whole_batches
from tidelog_storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.compaction.batch_filter import Rules
    from tidelog_storage.compaction.offset_map import OffsetMap
    from tidelog_storage.compaction.plan import Source
    from tidelog_storage.indexes import AbortedEntry
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segment import SegmentOptions

STEP_WORK = 64 * 1024  # of one step: bytes, and RECORD_WORK for each record: some milliseconds
RECORD_WORK = 40


class Limits(NamedTuple):
    """Size limits of a new segment, and the settings that it needs."""

    segment_bytes: int
    options: SegmentOptions


class Work(NamedTuple):
    """What a pass reads: all segments of the log below the end of the pass, and all aborted
    transactions of the log."""

    sources: Sequence[Source]
    first_dirty_offset: int
    aborted: Sequence[AbortedEntry]


class CleanedGroup(NamedTuple):
    """Segments merged into one, whose `.cleaned` files are whole and durable."""

    base_offsets: tuple[int, ...]  # of the old segments; the new one has the first
    size: int


class Progress(NamedTuple):
    """The result of a step. `group` must be swapped in before the next step."""

    read_bytes: int = 0
    written_bytes: int = 0
    group: CleanedGroup | None = None
    is_done: bool = False


class CleanedSegment(Segment):
    """A new segment with the file names it has until the swap."""

    def path(self, suffix: str) -> str:
        """One of the segment's files."""
        return super().path(suffix) + CLEANED_SUFFIX


class Rewriting:
    """The pass. `compacted_to`, known when it is done: the offset the next pass starts from."""

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        work: Work,
        rules: Rules,
        limits: Limits,
        *,
        offset_map: OffsetMap,
    ) -> None:
        self._files = files
        self._folder = folder
        self._sources, self._first_dirty_offset, self._aborted = work
        self._rules = rules
        self._limits = limits
        self._map = offset_map
        self._work = 0
        self._read = 0
        self._written = 0
        self._is_given_up = False
        self._steps = self._run()
        self.compacted_to = work.first_dirty_offset
        self.read_bytes = 0
        self.written_bytes = 0

    def step(self) -> Progress:
        """Run the next part. OSError, StorageError, ProtocolError end the pass."""
        self._work = self._read = self._written = 0
        finished = next(self._steps, Progress(is_done=True))
        if self._is_given_up:
            self._steps.close()
        self.read_bytes += self._read
        self.written_bytes += self._written
        return finished._replace(read_bytes=self._read, written_bytes=self._written)

    def give_up(self) -> None:
        """Close all files; a step running on another thread does so at its end."""
        self._is_given_up = True
        try:
            self._steps.close()
        except ValueError:
            return  # a step is running

    def _run(self) -> Generator[Progress, None, None]:
        sizes = self._files.sizes(self._folder)
        for name in sizes:
            # After a crash, leftovers must not look like an interrupted pass.
            if name.endswith(CLEANED_SUFFIX):
                self._files.remove(f"{self._folder}/{name}")
        yield from self._fill_map()
        self.compacted_to = self._map.latest_offset + 1
        index_sizes = {
            source.base_offset: (
                sizes.get(file_name(source.base_offset, INDEX_SUFFIX), 0),
                sizes.get(file_name(source.base_offset, TIME_INDEX_SUFFIX), 0),
            )
            for source in self._sources
        }
        sources = [source for source in self._sources if source.base_offset < self.compacted_to]
        limits = self._limits
        groups = group(sources, index_sizes, limits.segment_bytes, limits.options.index_bytes_max)
        transactions = CleanedTransactions(self._aborted)
        for one in groups:
            yield from self._rewrite(one, transactions)
            self._files.fsync_dir(self._folder)  # the state after the swap
        yield Progress(is_done=True)

    def _did(self, read: int, written: int = 0, records: int = 0) -> bool:
        """Count work; return whether it is enough for one step."""
        self._read += read
        self._written += written
        self._work += read + records * RECORD_WORK
        return self._work >= STEP_WORK

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches of a segment; StorageError if its file has changed."""
        path = f"{self._folder}/{file_name(source.base_offset, LOG_SUFFIX)}"
        with closing(self._files.open(path)) as records:
            end = 0
            for position, header, batch in whole_batches(records, 0, source.size):
                if not crc_is_valid(batch, header):
                    break  # a new CRC would hide the damage
                end = position + header.size_in_bytes
                yield header, batch
            if end != source.size:
                raise StorageError(
                    ErrorCode.CORRUPT_MESSAGE, f"{path}: no valid record batch at {end}"
                )

    # -- the map -----------------------------------------------------------------------------------

    def _fill_map(self) -> Iterator[Progress]:
        """Map the newest offset of each key from the first dirty offset on, until the map is
        full."""
        start = self._first_dirty_offset
        transactions = CleanedTransactions(
            entry for entry in self._aborted if entry.last_offset >= start
        )
        for source in self._sources:
            if source.end_offset <= start:
                continue
            for header, batch in self._batches(source):
                if header.last_offset < start:
                    continue
                if header.is_control:
                    transactions.on_control_batch(header, batch)
                elif not transactions.on_batch(header) and not self._note_keys(header, batch):
                    return
                self._map.latest_offset = header.last_offset
                if self._did(header.size_in_bytes, 0, header.records_count):
                    yield Progress()
            self._map.latest_offset = source.end_offset - 1

    def _note_keys(self, header: BatchHeader, batch: memoryview) -> bool:
        """Put a batch's keys into the map; False if it got full."""
        put = self._map.put
        base_offset = header.base_offset
        start_delta = self._first_dirty_offset - base_offset
        for span in record_spans(records_payload(batch, header), header.records_count):
            key = span.key
            if (
                key is not None
                and span.offset_delta >= start_delta
                and not put(key, base_offset + span.offset_delta)
            ):
                return False
        return True

    # -- the segments ------------------------------------------------------------------------------

    def _rewrite(
        self, sources: Sequence[Source], transactions: CleanedTransactions
    ) -> Iterator[Progress]:
        """Write a group of segments as one; yield the group at the end."""
        cleaned = CleanedSegment(
            self._files,
            self._folder,
            sources[0].base_offset,
            size=0,
            options=self._limits.options,
            created_ms=0,
        ).begin()
        try:
            transactions.on_kept = cleaned.transaction_index.append
            batches = BatchFilter(self._rules, self._map, transactions)
            for source in sources:
                for header, batch in self._batches(source):
                    kept = batches.keep(header, batch)
                    written = 0
                    if kept is not None:
                        written = len(kept.buffer)
                        cleaned.append(kept.buffer, header.last_offset, kept.max_timestamp)
                    if self._did(header.size_in_bytes, written, header.records_count):
                        yield Progress()
            make_durable(cleaned)
        finally:
            cleaned.release()
        bases = tuple([source.base_offset for source in sources])
        yield Progress(group=CleanedGroup(bases, cleaned.size))


def make_durable(segment: Segment) -> None:
    """Write and sync all files of a segment that nothing else has open. OSError."""
    segment.write_indexes(seal=True)
    sync_all((segment.records,), segment.files_to_sync(with_indexes=True))
