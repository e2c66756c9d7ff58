"""Writes a damaged segment anew from its good batches and those of another copy.

The good bytes stay as they are; what is damaged or missing comes from another replica or from the
remote tier, and is checked batch by batch before it is written: checksum, offsets without a gap
that the log does not have, the log's own leader epochs. The new files are `.cleaned` and durable
when `write` returns; the log swaps them in as it does after a compaction (`compaction/swap.py`), so
a crash leaves the old segment or the new one. A missing index is built on the way.

Sees frozen values and files; `write` runs off the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_protocol.records import ControlType, control_type, iter_records
from tidelog_storage.compaction.rewriting import CleanedSegment, make_durable
from tidelog_storage.indexes import AbortedEntry, CorruptIndexError, TransactionIndex
from tidelog_storage.scan import whole_batches
from tidelog_storage.scrub import bad_batch
from tidelog_storage.segment import TRANSACTION_INDEX_SUFFIX, file_name
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.scrub import Extent
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segment import SegmentOptions
    from tidelog_storage.types import AbortedTransaction, Damage


class Copy(NamedTuple):
    """What another copy has for a damage: whole batches, and the aborted transactions in them."""

    records: memoryview
    aborted: Sequence[AbortedTransaction]


def check_copy(extent: Extent, damage: Damage, records: memoryview) -> str:
    """Why these records can't take the place of the damage; empty if they can."""
    next_offset = damage.first_offset
    end = 0
    try:
        for position, header in iter_batches(records):
            batch = records[position : position + header.size_in_bytes]
            why = bad_batch(extent, header, batch, next_offset)
            if why:
                return why
            next_offset = header.next_offset
            end = position + header.size_in_bytes
    except ProtocolError as error:
        return str(error)
    if end != len(records):
        return "it ends inside of a batch"
    is_whole = next_offset == damage.end_offset
    if not is_whole and not (extent.has_gaps and next_offset < damage.end_offset):
        return f"it ends at offset {next_offset}, not at {damage.end_offset}"
    return ""


class SegmentRepair:
    """The `.cleaned` files of one segment; `size` is known after `write`."""

    def __init__(
        self,
        files: FileSystem,
        extent: Extent,
        copies: Sequence[tuple[Damage, Copy]],
        options: SegmentOptions,
    ) -> None:
        """`copies` have one for every damage of the segment, in order, each checked."""
        self._files = files
        self._extent = extent
        self._copies = copies
        self._options = options
        self.size = 0

    def write(self) -> None:
        """Write all files and sync them. OSError; StorageError if the good part has changed."""
        extent = self._extent
        segment = CleanedSegment.create(
            self._files, extent.folder, extent.base_offset, options=self._options, created_ms=0
        )
        try:
            entries = _Entries(self._known_entries())
            for header, batch in self._batches():
                segment.append(batch, header.last_offset, header.max_timestamp)
                entries.on_batch(header, batch)
            entries.add_copied([each for _, copy in self._copies for each in copy.aborted])
            for entry in entries.sorted():
                segment.transaction_index.append(entry)
            make_durable(segment)
            self.size = segment.size
        finally:
            segment.release()
        self._files.fsync_dir(extent.folder)

    def _known_entries(self) -> list[AbortedEntry]:
        name = file_name(self._extent.base_offset, TRANSACTION_INDEX_SUFFIX)
        index = TransactionIndex(self._files, f"{self._extent.folder}/{name}")
        try:
            index.load()
        except CorruptIndexError:
            return []
        return index.entries

    def _batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of the new segment."""
        position = 0
        next_offset = self._extent.base_offset
        for damage, copy in self._copies:
            for header, batch in self._good(position, damage.position, next_offset):
                yield header, batch
            for at, header in iter_batches(copy.records):
                yield header, copy.records[at : at + header.size_in_bytes]
            position, next_offset = damage.end_position, damage.end_offset
        yield from self._good(position, self._extent.size, next_offset)

    def _good(
        self, position: int, end: int, next_offset: int
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The segment's own batches, checked again: the disk may have gone on rotting."""
        if position >= end:
            return
        extent = self._extent
        records = self._files.open(extent.path)
        try:
            for at, header, batch in whole_batches(records, position, end):
                why = bad_batch(extent, header, batch, next_offset)
                if why:
                    raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"{extent.path}: {why}")
                yield header, batch
                next_offset = header.next_offset
                position = at + header.size_in_bytes
        finally:
            records.close()
        if position != end:
            raise StorageError(
                ErrorCode.CORRUPT_MESSAGE, f"{extent.path}: no record batch at {position}"
            )


class _Entries:
    """The transaction index of the new segment: what the old one has, and the aborted transactions
    of the copied batches, whose markers lie there."""

    def __init__(self, known: Iterable[AbortedEntry]) -> None:
        self._known = {entry.last_offset: entry for entry in known}
        self._markers: list[tuple[int, int]] = []  # producer id and offset of every abort marker

    def on_batch(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            for record in iter_records(batch):
                if control_type(record) == ControlType.ABORT:
                    self._markers.append((header.producer_id, record.offset))

    def add_copied(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Markers without an entry get one, with the transaction's first offset by the copy.

        Its last stable offset is not known: the first offset is below it, so that a look-up goes
        on to later segments, which is always right.
        """
        for producer_id, offset in self._markers:
            firsts = [
                each.first_offset
                for each in aborted
                if each.producer_id == producer_id and each.first_offset <= offset
            ]
            if offset not in self._known and firsts:
                first = max(firsts)
                self._known[offset] = AbortedEntry(producer_id, first, offset, first)

    def sorted(self) -> list[AbortedEntry]:
        """All, in the order of their markers; those whose marker is gone are not of this log."""
        offsets = {offset for _, offset in self._markers}
        return [self._known[offset] for offset in sorted(offsets & self._known.keys())]
