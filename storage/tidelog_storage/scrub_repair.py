"""Rewrite a damaged segment from its valid batches and those of another copy.

Valid bytes are kept; damaged or missing ones come from another replica or from the remote tier, and
are checked batch by batch before they are written: checksum, offsets without a gap that the log
does not have, the log's own leader epochs. The new files are `.cleaned` and durable when `write`
returns; the log swaps them in as after a compaction (`compaction/swap.py`), so a crash leaves the
old segment or the new one. Its transaction index is built when it is first used
(`Log.transactions_of`).

It sees frozen values and files; `write` runs off the loop.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.compaction.rewriting import CleanedSegment, make_durable
from tidelog_storage.epoch_checks import note_epoch
from tidelog_storage.scan import whole_batches
from tidelog_storage.scrub import bad_batch
from tidelog_storage.segment import Segment
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.checkpoints import EpochEntry
    from tidelog_storage.scrub import Extent
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segment import SegmentOptions
    from tidelog_storage.types import Damage


def check_copy(extent: Extent, damage: Damage, records: memoryview) -> str:
    """Return why these records cannot replace the damage; empty if they can."""
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
        copies: Sequence[tuple[Damage, memoryview]],
        options: SegmentOptions,
    ) -> None:
        """`copies` have one for every damage of the segment, in order, each checked."""
        self._files = files
        self._extent = extent
        self._copies = copies
        self._options = options
        self.size = 0

    def write(self) -> None:
        """Write all files and sync them. OSError; StorageError if the valid part has changed."""
        extent = self._extent
        segment = CleanedSegment(
            self._files,
            extent.folder,
            extent.base_offset,
            size=0,
            options=self._options,
            created_ms=0,
        ).begin()
        try:
            for header, batch in self._batches():
                segment.append(batch, header.last_offset, header.max_timestamp)
            make_durable(segment)
            self.size = segment.size
        finally:
            segment.release()
        self._files.fsync_dir(extent.folder)

    def _batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of the new segment."""
        position = 0
        next_offset = self._extent.base_offset
        for damage, copy in self._copies:
            for header, batch in self._good(position, damage.position, next_offset):
                yield header, batch
            for at, header in iter_batches(copy):
                yield header, copy[at : at + header.size_in_bytes]
            position, next_offset = damage.end_position, damage.end_offset
        yield from self._good(position, self._extent.size, next_offset)

    def _good(
        self, position: int, end: int, next_offset: int
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the segment's own batches, checked again: more may be damaged by now."""
        if position >= end:
            return
        extent = self._extent
        with closing(self._files.open(extent.path)) as records:
            for at, header, batch in whole_batches(records, position, end):
                why = bad_batch(extent, header, batch, next_offset)
                if why:
                    raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"{extent.path}: {why}")
                yield header, batch
                next_offset = header.next_offset
                position = at + header.size_in_bytes
        if position != end:
            raise StorageError(
                ErrorCode.CORRUPT_MESSAGE, f"{extent.path}: no record batch at {position}"
            )


def epochs_with(copy: memoryview, entries: Sequence[EpochEntry]) -> list[EpochEntry]:
    """Return the leader epochs of a log after a copy is put before its beginning."""
    found: list[EpochEntry] = []
    for _, header in iter_batches(copy):
        note_epoch(found, header)
    newest = found[-1].epoch if found else -1
    return found + [entry for entry in entries if entry.epoch > newest]


def is_same(files: FileSystem, extent: Extent, records: memoryview) -> bool:
    """Return whether a segment's file has exactly these bytes. Runs on a thread."""
    with closing(files.open(extent.path)) as file:
        return file.view(0, extent.size) == records


def rebuild_indexes(files: FileSystem, extent: Extent, options: SegmentOptions) -> None:
    """Rewrite the offset and the time index of a sealed segment. Runs on a thread: the log's
    segment may read a correct prefix meanwhile."""
    segment = Segment(
        files, extent.folder, extent.base_offset, size=extent.size, options=options, created_ms=0
    )
    try:
        segment.rebuild_indexes()
    finally:
        segment.release()
