"""Read an old segment and find damage by bit rot.

Every batch has a checksum (CRC-32C) over its records. Fields outside the checksum are checked by
their surroundings: the base offset by the batch before, the leader epoch by the log's epochs, the
length by the batch that must follow. The indexes are checked against the records. Kafka never reads
them again after writing, and serves a flipped bit to every consumer.

Sees frozen values and files; runs in steps on any thread. The log records the damages
(`Log.set_damages`), `scrub_repair.py` repairs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION, crc_is_valid, read_header
from tidelog_storage.epoch_checks import epoch_at
from tidelog_storage.indexes import CorruptIndexError, OffsetIndex, TimeIndex
from tidelog_storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from tidelog_storage.types import Damage

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.checkpoints import EpochEntry
    from tidelog_storage.log import Log
    from tidelog_storage.seams import File, FileSystem
    from tidelog_storage.segment import Segment

STEP_BYTES = 1 << 20  # of one step: about a millisecond
_WINDOW_BYTES = 1 << 20


class Extent(NamedTuple):
    """A segment to check: offsets [base_offset, end_offset) in `size` bytes.

    `has_gaps`: offsets may be missing between batches, because the log is compacted or was.
    `is_sealed`: the index files are complete. `epochs` are the log's; none if they are not known.
    """

    folder: str
    base_offset: int
    end_offset: int
    size: int
    has_gaps: bool
    is_sealed: bool
    epochs: tuple[EpochEntry, ...]

    @property
    def path(self) -> str:
        """The records file."""
        return f"{self.folder}/{file_name(self.base_offset, LOG_SUFFIX)}"

    def epoch_of(self, offset: int) -> int | None:
        """Return the leader epoch that a batch at this offset must have; None if unknown."""
        return epoch_at(self.epochs, offset)


def extent_of(log: Log, segment: Segment, *, has_gaps: bool) -> Extent:
    """Return the extent to check of one of the log's segments."""
    following = log.segments.after(segment.base_offset)
    return Extent(
        log.folder,
        segment.base_offset,
        log.log_end_offset if following is None else following.base_offset,
        segment.size,
        has_gaps,
        following is not None and following.base_offset <= log.recovery_point,
        tuple(log.epochs.entries),
    )


def bad_batch(extent: Extent, header: BatchHeader, batch: memoryview, next_offset: int) -> str:
    """Return what is wrong with a whole batch expected at `next_offset`; empty if nothing is."""
    if not crc_is_valid(batch, header):
        return f"the batch at {header.base_offset} has a bad checksum"
    base_offset = header.base_offset
    fits = base_offset == next_offset or (extent.has_gaps and base_offset > next_offset)
    if not fits or header.last_offset_delta < 0 or header.last_offset >= extent.end_offset:
        return f"a batch of {base_offset} to {header.last_offset} where {next_offset} should come"
    epoch = extent.epoch_of(base_offset)
    if epoch is not None and header.leader_epoch != epoch:
        return f"the batch at {base_offset} is of leader epoch {header.leader_epoch}, not {epoch}"
    return ""


class SegmentCheck:
    """Checks one segment. `damages` and `index_faults` are complete when `step` returned True."""

    def __init__(self, files: FileSystem, extent: Extent) -> None:
        self._files = files
        self.extent = extent
        self.damages: list[Damage] = []
        self.index_faults: list[str] = []
        self.read_bytes = 0
        self.end_offset = extent.base_offset  # after the last valid batch
        self._steps = self._run()

    def step(self) -> bool:
        """Read about STEP_BYTES; return whether that was all. OSError if the disk fails."""
        return next(self._steps, True)

    def run(self) -> None:
        """Run all steps, for tools."""
        while not self.step():
            pass

    def close(self) -> None:
        """Close the file; not while a step runs."""
        self._steps.close()

    def _run(self) -> Generator[bool, None, None]:
        extent = self.extent
        try:
            records = self._files.open(extent.path)
        except FileNotFoundError:
            why = f"{extent.path} is missing"
            self._note(extent.base_offset, extent.end_offset, 0, extent.size, why)
            return
        try:
            indexes = _IndexCheck(self._files, extent) if extent.is_sealed else None
            yield from self._check_batches(records, indexes)
        finally:
            records.close()
        if indexes is not None:
            self.index_faults += indexes.end()

    def _check_batches(self, records: File, indexes: _IndexCheck | None) -> Iterator[bool]:
        extent, position, next_offset, seen = self.extent, 0, self.extent.base_offset, 0
        end = min(extent.size, records.size())
        while position < end:
            header, batch = _batch_at(records, position, end)
            why = "no record batch" if batch is None else ""
            if batch is not None:
                why = bad_batch(extent, header, batch, next_offset)
                if why and self._is_gap(records, position, end, header, next_offset):
                    why = bad_batch(extent, header, batch, header.base_offset)
            if why:
                position, next_offset = self._skip(records, position, end, next_offset, why)
                if indexes is not None:
                    indexes.skip(position, next_offset)
            else:
                if indexes is not None:
                    indexes.on_batch(position, header)
                position += header.size_in_bytes
                next_offset = self.end_offset = header.next_offset
            self.read_bytes = position
            if position - seen >= STEP_BYTES:
                seen = position
                yield False
        is_short = end < extent.size
        if next_offset < extent.end_offset and (is_short or not extent.has_gaps):
            why = f"{extent.path} ends after {end} of {extent.size} bytes"
            self._note(next_offset, extent.end_offset, position, extent.size, why)
            if indexes is not None:
                indexes.skip(extent.size, extent.end_offset)

    def _is_gap(
        self, records: File, position: int, end: int, header: BatchHeader, next_offset: int
    ) -> bool:
        """Whether offsets are missing before a batch that is right: what follows it fits. Logs that
        were compacted once have gaps; a base offset that rotted does not fit at both its ends."""
        if header.base_offset <= next_offset:
            return False
        position += header.size_in_bytes
        if position >= end:
            return header.next_offset == self.extent.end_offset
        following, _ = _batch_at(records, position, end)
        return following.base_offset == header.next_offset

    def _skip(
        self, records: File, position: int, end: int, next_offset: int, why: str
    ) -> tuple[int, int]:
        """Record a damage at `position`; return position and offset of the next valid batch."""
        found = self._next_good(records, position + 1, end, next_offset)
        resume, offset = found or (self.extent.size, self.extent.end_offset)
        self._note(next_offset, offset, position, resume, why)
        return resume, offset

    def _next_good(
        self, records: File, position: int, end: int, next_offset: int
    ) -> tuple[int, int] | None:
        """Return position and offset of the next valid batch of this segment."""
        extent = self.extent._replace(has_gaps=True)
        while position < end - HEADER_BYTES:
            window = records.pread(position, min(_WINDOW_BYTES, end - position))
            at = window.find(MAGIC, MAGIC_POSITION)
            while at >= 0:
                start = position + at - MAGIC_POSITION
                header, batch = _batch_at(records, start, end, extent)
                if batch is not None and not bad_batch(extent, header, batch, next_offset):
                    return start, header.base_offset
                at = window.find(MAGIC, at + 1)
            position += max(len(window) - MAGIC_POSITION, 1)
        return None

    def _note(
        self, first_offset: int, end_offset: int, position: int, end_position: int, why: str
    ) -> None:
        base_offset = self.extent.base_offset
        self.damages.append(
            Damage(base_offset, first_offset, end_offset, position, end_position, why)
        )


def _batch_at(
    records: File, position: int, end: int, within: Extent | None = None
) -> tuple[BatchHeader, memoryview | None]:
    """The header at a position, and the batch if it can be one; `within` checks the offset before
    more than the header is read."""
    data = records.pread(position, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return read_header(bytes(HEADER_BYTES)), None
    header = read_header(data)
    size = header.size_in_bytes
    is_batch = header.magic == MAGIC and HEADER_BYTES <= size <= end - position
    if within is not None:
        is_batch = is_batch and within.base_offset <= header.base_offset < within.end_offset
    return header, records.view(position, size) if is_batch else None


class _IndexCheck:
    """Compares the files of the offset and the time index with the batches, in their order."""

    def __init__(self, files: FileSystem, extent: Extent) -> None:
        self._folder, self._base_offset = extent.folder, extent.base_offset
        self._faults: list[str] = []
        self._offsets: Sequence[tuple[int, int]] = ()
        self._times: Sequence[tuple[int, int]] = ()
        self._offset_slot = self._time_slot = 0
        self._newest = -1
        offsets = OffsetIndex(files, self._path(INDEX_SUFFIX), extent.base_offset)
        times = TimeIndex(files, self._path(TIME_INDEX_SUFFIX), extent.base_offset)
        try:
            offsets.load(extent.size)
            times.load()
        except FileNotFoundError:
            self._faults.append(f"an index of {extent.path} is missing")
        except CorruptIndexError as error:
            self._faults.append(str(error))
        else:
            self._offsets = list(zip(offsets.positions, offsets.offsets, strict=True))
            self._times = list(zip(times.offsets, times.timestamps, strict=True))

    def _path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self._base_offset, suffix)}"

    def on_batch(self, position: int, header: BatchHeader) -> None:
        """The next batch of the segment."""
        self._newest = max(self._newest, header.max_timestamp)
        last = header.last_offset - self._base_offset
        slot = self._offset_slot
        if slot < len(self._offsets) and self._offsets[slot][0] <= position:
            self._offset_slot += 1
            if self._offsets[slot] != (position, last):
                self._fault(INDEX_SUFFIX, f"entry {slot} is not of the batch at {position}")
        while self._time_slot < len(self._times) and self._times[self._time_slot][0] <= last:
            if self._times[self._time_slot] != (last, self._newest):
                self._fault(TIME_INDEX_SUFFIX, f"entry {self._time_slot} is of another timestamp")
            self._time_slot += 1

    def skip(self, position: int, next_offset: int) -> None:
        """Batches up to here are damaged: what is noted of them can't be compared."""
        offsets, times = self._offsets, self._times
        while self._offset_slot < len(offsets) and offsets[self._offset_slot][0] < position:
            self._offset_slot += 1
        end = next_offset - self._base_offset
        while self._time_slot < len(times) and times[self._time_slot][0] < end:
            self._newest = max(self._newest, times[self._time_slot][1])
            self._time_slot += 1

    def _fault(self, suffix: str, why: str) -> None:
        if len(self._faults) < 2:  # one or two are enough
            self._faults.append(f"{self._path(suffix)}: {why}")

    def end(self) -> list[str]:
        """What is wrong with them, after the last batch."""
        if self._faults:
            return self._faults
        if self._offset_slot < len(self._offsets) or self._time_slot < len(self._times):
            self._fault(INDEX_SUFFIX, "entries behind the last batch")
        elif self._newest >= 0 and (not self._times or self._times[-1][1] != self._newest):
            self._fault(TIME_INDEX_SUFFIX, "the newest timestamp is not there")
        return self._faults
