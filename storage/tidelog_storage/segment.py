"""One segment of a log: a records file and its three indexes.

The log (`log.py`) decides what is written and when to roll; a segment appends whole batches, finds
positions of offsets and timestamps, cuts reads at batch boundaries, truncates, and scans itself.
The indexes of a sealed segment are loaded when first needed and built again if their files are
missing or cannot be right.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ErrorCode
from tidelog_storage.index_checks import check_opened
from tidelog_storage.indexes import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    CorruptIndexError,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from tidelog_storage.scan import (
    BatchPlace,
    batch_headers,
    batch_places,
    valid_batches,
    whole_batches,
)
from tidelog_storage.slices import Slice, read_batches, read_bytes
from tidelog_storage.types import StorageError, damage_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.config import LogConfig
    from tidelog_storage.seams import Buffer, File, FileSystem

_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
SHORT_INDEX_BYTES = 1 << 16  # without an entry, whatever `index.interval.bytes` was: one is missing
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class SegmentOptions(NamedTuple):
    """What a segment needs of the log's configuration."""

    index_interval_bytes: int
    index_bytes_max: int

    @classmethod
    def of(cls, config: LogConfig) -> SegmentOptions:
        """The options in a topic's configuration."""
        return cls(config.index_interval_bytes, config.segment_index_bytes)


def file_name(offset: int, suffix: str) -> str:
    """Name of a segment's or snapshot's file: 20 digits and a suffix."""
    return f"{offset:020d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """Offsets of the files with that suffix, rising."""
    length = 20 + len(suffix)
    return sorted(
        int(name[:20])
        for name in names
        if len(name) == length and name.endswith(suffix) and name[:20].isdecimal()
    )


class Segment:
    """Batches of offsets from `base_offset` on; `size` bytes.

    Invariant: batches lie in the order of their offsets, and every index entry points at the start
    of one of them. `bytes_since_index_entry` counts from the newest entry's batch on.
    """

    def __init__(
        self,
        files: FileSystem,
        folder: str,
        base_offset: int,
        *,
        size: int,
        options: SegmentOptions,
        created_ms: int,
    ) -> None:
        """Take an existing segment in `folder`, unopened. See `begin` for a new one."""
        self.files = files
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.max_timestamp = NO_TIMESTAMP  # valid after `know_timestamps`
        self.max_timestamp_offset = base_offset  # last offset of the batch that has it
        self.bytes_since_index_entry = 0
        self.is_idle = False  # not read since the log last looked
        self.index_fault: str | None = None  # what was wrong with index files that were there
        self.oldest_open: int | None = None  # see `Log.oldest_open_before`
        self.transactions_are_proven = False  # the transaction index matches the records
        self._records: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._timestamps_known = False
        self._first_timestamp: int | None = None
        self.use(options)

    def use(self, options: SegmentOptions) -> None:
        """Use these options from now on; a log is loaded before its topic's are known."""
        self._index_interval_bytes = options.index_interval_bytes
        self._offset_entries_max = options.index_bytes_max // OffsetIndex.ENTRY_BYTES
        # the last slot is kept for the entry made when the segment is sealed
        self._time_entries_max = options.index_bytes_max // TimeIndex.ENTRY_BYTES - 1
        self.index_is_full = self._time_entries_max <= 0  # then each batch gets its own segment
        if self._offset_index is not None:
            self._note_fullness()

    def begin(self) -> Self:
        """Create the files of a new segment; empty leftover files of that name."""
        records = self._records = self.files.open(self.path(LOG_SUFFIX), create=True)
        if records.size():
            records.truncate(0)
        self.reset_indexes()
        return self

    def __repr__(self) -> str:
        return f"Segment({self.folder}, {self.base_offset}, {self.size} bytes)"

    # -- files -------------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        """One of the segment's files."""
        return f"{self.folder}/{file_name(self.base_offset, suffix)}"

    @property
    def has_open_file(self) -> bool:
        """Whether its records file is open: `records` opens it, `release` closes it."""
        return self._records is not None

    @property
    def records(self) -> File:
        """The records file, opened when first needed."""
        records = self._records
        if records is None:
            records = self._records = self.files.open(self.path(LOG_SUFFIX))
        return records

    @property
    def has_unsynced_indexes(self) -> bool:
        """Return whether the index files have unsynced changes."""
        indexes = (self._offset_index, self._time_index)
        return any(index is not None and not index.is_synced for index in indexes)

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded or rebuilt when first needed."""
        if self._offset_index is None:
            self.load_indexes()
            assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded or rebuilt when first needed."""
        if self._time_index is None:
            self.load_indexes()
            assert self._time_index is not None
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transaction index, loaded when first needed, without unreadable entries.

        Its file may be gone or damaged: `Log.transactions_of` returns it checked.
        """
        index = self._transaction_index
        if index is None:
            index = TransactionIndex(self.files, self.path(TRANSACTION_INDEX_SUFFIX))
            with suppress(CorruptIndexError):
                index.load()
            self._transaction_index = index
        return index

    def _new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return (
            OffsetIndex(self.files, self.path(INDEX_SUFFIX), self.base_offset),
            TimeIndex(self.files, self.path(TIME_INDEX_SUFFIX), self.base_offset),
        )

    def reset_indexes(self) -> None:
        """Start all indexes empty, as before the first append or a rebuild."""
        self._offset_index, self._time_index = self._new_indexes()
        self._transaction_index = TransactionIndex(self.files, self.path(TRANSACTION_INDEX_SUFFIX))
        self._transaction_index.reset()
        self.transactions_are_proven = True
        self._forget()
        self._timestamps_known = True

    def _forget(self) -> None:
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index_entry = 0
        self.index_is_full = self._time_entries_max <= 0
        self._first_timestamp = None

    def load_indexes(self) -> None:
        """Read offset and time index; rebuild both from the records if they are invalid."""
        offset_index, time_index = self._new_indexes()
        try:
            offset_index.load(self.size)
            time_index.load()
            if self.size or len(time_index):
                interval = max(self._index_interval_bytes, SHORT_INDEX_BYTES)
                check_opened(self.records, self.size, offset_index, time_index, interval)
        except (CorruptIndexError, FileNotFoundError) as error:
            self.index_fault = str(error) if isinstance(error, CorruptIndexError) else None
            self.rebuild_indexes()
            return
        self._offset_index, self._time_index = offset_index, time_index
        if not self._timestamps_known:
            self.max_timestamp, self.max_timestamp_offset = time_index.last()
            self._timestamps_known = True
        self.bytes_since_index_entry = self.size - offset_index.last_position()
        self._note_fullness()

    def rebuild_indexes(self) -> None:
        """Build offset and time index from the records and write them.

        StorageError CORRUPT_MESSAGE if the records are damaged: existing indexes are then kept.
        """
        present = self._offset_index, self._time_index
        self._offset_index, self._time_index = self._new_indexes()
        self._forget()
        self._timestamps_known = True
        end, last_offset = 0, self.base_offset - 1
        for position, header in batch_headers(self.records, 0, self.size):
            # An offset is outside of its batch's checksum. One that rotted has no entry, nor has
            # what is behind it: reads go there batch by batch.
            if header.last_offset <= last_offset or not self.fits(header.last_offset):
                break
            last_offset = header.last_offset
            self._note_batch(header.last_offset, header.max_timestamp, position)
            self.bytes_since_index_entry += header.size_in_bytes
            end = position + header.size_in_bytes
        if end < self.size and present[0] is not None:
            self._offset_index, self._time_index = present
            raise StorageError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG_SUFFIX)}: no record batch at {end}"
            )
        self.write_indexes(seal=True)

    def write_indexes(self, *, seal: bool) -> None:
        """Bring the index files up to date, if the indexes are loaded.

        `seal`, at roll and close: add an entry of the largest timestamp.
        """
        if self._offset_index is None or self._time_index is None:
            return
        if seal:
            self._time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self._offset_index.write()
        self._time_index.write()

    def files_to_sync(self, *, with_indexes: bool) -> list[File]:
        """Return handles to fsync, and then to close, beside `records`."""
        private: list[File] = []
        if with_indexes:
            private += [self.offset_index.open_written(), self.time_index.open_written()]
        index = self._transaction_index  # an unloaded index has not changed
        if index is not None and (transactions := index.open_written()) is not None:
            private.append(transactions)
        return private

    def release(self) -> None:
        """Close the handle and drop a sealed segment's indexes; write nothing."""
        if self._records is not None:
            self._records.close()
            self._records = None
        self._offset_index = None
        self._time_index = None
        self._transaction_index = None

    def move_to(self, folder: str) -> None:
        """Follow the files to another folder; open them there when next needed."""
        self.folder = folder
        if self._records is not None:
            self._records.close()
            self._records = None
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.path = f"{folder}/{index.path.rpartition('/')[2]}"

    def mark_deleted(self) -> list[str]:
        """Rename the files so that the log no longer has them; return the new paths.

        They are removed later, because a reader may be about to open them (KIP-405 copies too).
        """
        self.release()
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if suffix != TRANSACTION_INDEX_SUFFIX or self.files.exists(path):
                with suppress(FileNotFoundError):  # index files appear at the first flush or roll
                    self.files.rename(path, path + DELETED_SUFFIX)
                    renamed.append(path + DELETED_SUFFIX)
        return renamed

    def remove(self) -> None:
        """Remove the files now."""
        self.release()
        for suffix in SEGMENT_SUFFIXES:
            self.files.remove(self.path(suffix))

    # -- appending ---------------------------------------------------------------------------------

    def append(self, buffer: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Append one whole batch. OSError: nothing was written."""
        position = self.size
        size = (self._records or self.records).append((buffer,))
        self.size = position + size
        self._note_batch(last_offset, max_timestamp, position)
        self.bytes_since_index_entry += size

    def append_all(self, buffer: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Append several whole batches, which fill `buffer`. OSError: nothing was written."""
        position = self.size
        self.size = position + self.records.append((buffer,))
        for header in headers:
            self._note_batch(header.last_offset, header.max_timestamp, position)
            size = header.size_in_bytes
            position += size
            self.bytes_since_index_entry += size

    def _note_batch(self, last_offset: int, max_timestamp: int, position: int) -> None:
        if not position:
            self._first_timestamp = max_timestamp
            if self._offset_index is None or self._time_index is None:  # found empty
                self._offset_index, self._time_index = self._new_indexes()
                self._timestamps_known = True
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
            self._note_fullness()

    def _note_fullness(self) -> None:
        self.index_is_full = (
            len(self.offset_index.offsets) >= self._offset_entries_max
            or len(self.time_index.offsets) >= self._time_entries_max
        )

    def fits(self, offset: int) -> bool:
        """Return whether the offset can be written relative to the base."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def waited_ms(self, now_ms: int, timestamp: int) -> int:
        """Return the segment's age for `segment.ms`: by its first batch, else by the clock."""
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def first_timestamp(self) -> int:
        """Largest timestamp of the first batch; -1 when there is none."""
        first = self._first_timestamp
        if first is None:
            batch = next(self.batches(), None)
            first = self._first_timestamp = batch[1].max_timestamp if batch else NO_TIMESTAMP
        return first

    def know_timestamps(self) -> int:
        """Return the largest timestamp, from the time index if needed; close what was not open."""
        if not self._timestamps_known:
            is_open = self._records or self._offset_index or self._transaction_index
            if self.size:
                self.load_indexes()
            self._timestamps_known = True
            if is_open is None:
                self.release()
        return self.max_timestamp

    def retention_timestamp(self) -> int:
        """Return the time for retention: the largest timestamp, or when the segment was opened."""
        timestamp = self.know_timestamps()
        return timestamp if timestamp >= 0 else self.created_ms

    # -- finding -----------------------------------------------------------------------------------

    def batches(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of whole batches from `position` on; see `whole_batches`."""
        return whole_batches(self.records, position, self.size if end is None else end)

    def find(self, offset: int, position: int = 0) -> BatchPlace | None:
        """The first batch from `position` on that ends at or after `offset`; None if none does."""
        for place in self.places_from(lambda index: index.floor(offset), position):
            if place.last_offset >= offset:
                return place
        return None

    def places_from(
        self, entry_of: Callable[[OffsetIndex], tuple[int, int] | None], position: int = 0
    ) -> Iterator[BatchPlace]:
        """Yield the batches from an entry of the offset index on, or from `position` if that is
        later. The records decide: an index that does not lead to a batch is rebuilt."""
        entry = entry_of(self.offset_index)
        if entry is not None and entry[1] > position:
            places = batch_places(self.records, entry[1], self.size)
            with suppress(StorageError):
                first = next(places, None)
                if first is not None and self.base_offset <= first.base_offset <= entry[0]:
                    return chain((first,), places)
            self.rebuild_indexes()
            entry = entry_of(self.offset_index)
        position = position if entry is None else max(position, entry[1])
        return batch_places(self.records, position, self.size)

    def next_offset(self) -> int:
        """Offset after the last batch; the base offset when empty."""
        next_offset = self.base_offset
        for place in self.places_from(OffsetIndex.last):
            next_offset = place.last_offset + 1
        return next_offset

    def read(self, position: int, max_bytes: int, limit: int, *, min_one_batch: bool) -> Slice:
        """Whole batches from a batch's `position` up to `limit` (a batch boundary) or `max_bytes`.

        A larger first batch is given whole if `min_one_batch`, else the slice is empty and marked.
        """
        available = limit - position
        if available <= max_bytes:  # without the index, which may not be loaded
            part = read_bytes(self.records, position, available)
            return _new(Slice, (part, available, -1, False))
        index = self.offset_index
        try:
            return read_batches(
                self.records, index, position, max_bytes, limit, min_one_batch=min_one_batch
            )
        except CorruptIndexError:
            self.rebuild_indexes()
        return read_batches(
            self.records, self.offset_index, position, max_bytes, limit, min_one_batch=min_one_batch
        )

    # -- cutting -----------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop the batches that end at or after `offset`."""
        place = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if place is not None:
            self.cut(place.position)
        if not self.size:
            self.created_ms = now_ms
            self._first_timestamp = None
        self.bytes_since_index_entry = self.size - self.offset_index.last_position()
        self._note_fullness()
        self._reread_timestamps()

    def cut(self, size: int) -> None:
        """Shorten the records file; the caller corrects the indexes."""
        self.records.truncate(size)
        self.size = size

    def _reread_timestamps(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        self._timestamps_known = True
        for _, header, _ in self.batches(self.offset_index.lookup(self.max_timestamp_offset)):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def recover(
        self,
        on_batch: Callable[[BatchHeader, memoryview], None],
        before_cut: Callable[[int], None],
        keep: int = 0,
    ) -> tuple[int, int | None]:
        """Recover after an unclean stop: keep valid batches (for `on_batch`), rebuild indexes.

        `before_cut` gets the base offset. Returns the bytes cut off, and the first offset missing
        before the last batch. StorageError, and nothing changed, if `keep` needs what would go.
        """
        self.reset_indexes()
        valid, next_offset = 0, self.base_offset
        doubtful: int | None = None
        whole = valid_batches(self.records, self.size, self.base_offset)
        for position, header, data, has_gap_before in whole:
            if not self.fits(header.last_offset):  # it rotted, and no batch behind it shows it
                break
            self._note_batch(header.last_offset, header.max_timestamp, position)
            self.bytes_since_index_entry += header.size_in_bytes
            doubtful = next_offset if has_gap_before else None
            next_offset = header.next_offset
            valid = position + header.size_in_bytes
            on_batch(header, data)
        if cut := self.size - valid:
            if next_offset < keep:
                raise damage_below(self.path(LOG_SUFFIX), next_offset, keep)
            before_cut(self.base_offset)
            self.cut(valid)
        self.write_indexes(seal=True)
        return cut, doubtful
