"""Comparing a log's leader epochs with its batches, each of which names its own.

The epochs are in one small file, and the batches' are outside of their checksums: either may rot.
Kafka believes the file. Asked when a log is loaded (`recovery.py`), when it comes into use
(`holes.py`) and by the scrubber, off the loop.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import HEADER_BYTES, read_header
from tidelog_storage.checkpoints import EpochEntry
from tidelog_storage.indexes import OffsetIndex
from tidelog_storage.scan import batch_headers
from tidelog_storage.segment import LOG_SUFFIX
from tidelog_storage.types import UNDEFINED_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.seams import File, FileSystem
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments

MISFITS_OF_ROT = 1  # more batches than this do not rot alike: it is the file


class RecordedEpochs(NamedTuple):
    """The epochs that batches name, none if they do not rise. `misfits`: how many batches name
    another than the log has there."""

    entries: list[EpochEntry]
    misfits: int

    def are_proven(self, newest_epoch: int | None = None) -> bool:
        """Whether it is the log's epochs that are wrong. `newest_epoch`: none is above this one."""
        return (
            self.misfits > MISFITS_OF_ROT
            and bool(self.entries)
            and (newest_epoch is None or self.entries[-1].epoch <= newest_epoch)
        )


def epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """The leader epoch of a batch at this offset; None if that is not known."""
    slot = bisect_right(epochs, offset, key=lambda entry: entry[1])
    return epochs[slot - 1][0] if slot else None


def note_epoch(found: list[EpochEntry], header: BatchHeader) -> None:
    """Add a batch's leader epoch to those of the batches before, if it is a newer one."""
    epoch = header.leader_epoch
    if epoch >= 0 and (not found or epoch > found[-1].epoch):
        found.append(EpochEntry(epoch, header.base_offset))


class RecoveredEpochs:
    """The leader epochs that the batches of a recovered log name, in their order.

    They never fall in a log. If one does, the batch before it rotted: its epoch is left out.
    """

    def __init__(self) -> None:
        self.entries: list[EpochEntry] = []
        self._batches = 0  # that name the newest epoch

    def add(self, header: BatchHeader, _: memoryview) -> None:
        """Note the epoch of the next batch."""
        epoch, entries = header.leader_epoch, self.entries
        falls = self._batches == 1 and 0 <= epoch < entries[-1].epoch
        if falls and (len(entries) == 1 or entries[-2].epoch <= epoch):
            entries.pop()
        note_epoch(entries, header)
        newest = entries[-1] if entries else None
        if newest is not None and epoch == newest.epoch:
            self._batches = 1 if newest.start_offset == header.base_offset else self._batches + 1


def recorded_epochs(
    files: FileSystem,
    places: Iterable[tuple[str, int]],
    epochs: Sequence[EpochEntry],
    log_start_offset: int = 0,
) -> RecordedEpochs:
    """What the batches of records files, each with the size to be read, name. On any thread."""
    found: list[EpochEntry] = []
    misfits, is_rising = 0, True
    for path, size in places:
        try:
            records = files.open(path)
        except FileNotFoundError:
            continue
        try:
            for _, header in batch_headers(records, 0, size):
                epoch = header.leader_epoch
                if epoch == UNDEFINED_EPOCH:
                    continue
                if header.base_offset >= log_start_offset:
                    misfits += epoch != epoch_at(epochs, header.base_offset)
                note_epoch(found, header)
                is_rising = is_rising and epoch == (found[-1].epoch if found else None)
        finally:
            records.close()
    return RecordedEpochs(found if is_rising else [], misfits)


def newest_fits(segment: Segment, epochs: Sequence[EpochEntry], log_start_offset: int) -> bool:
    """Whether the last batch of a segment is of the epoch that the log has there."""
    position: int | None = None
    for place in segment.places_from(OffsetIndex.last) if segment.size else ():
        position = place.position
    return position is None or fits_at(segment.records, position, epochs, log_start_offset)


def fits_at(
    records: File, position: int, epochs: Sequence[EpochEntry], log_start_offset: int
) -> bool:
    """Whether the batch at a position is of the epoch that the log has there. Below the log start
    it has none."""
    header = read_header(records.pread(position, HEADER_BYTES))
    if header.base_offset < log_start_offset:
        return True
    return header.leader_epoch in (epoch_at(epochs, header.base_offset), UNDEFINED_EPOCH)


def places_of(segments: Segments) -> list[tuple[str, int]]:
    """Where the batches of a log lie, as `recorded_epochs` takes it."""
    return [(segment.path(LOG_SUFFIX), segment.size) for segment in segments]


def proven_epochs(
    files: FileSystem,
    segments: Segments,
    expected: Sequence[EpochEntry],
    read: Sequence[EpochEntry] | None,
    log_start_offset: int,
) -> list[EpochEntry]:
    """The epochs of the records, if these prove that the `expected` ones are another log's or
    damaged, else none: with wrong ones a follower finds no common end with its leader.

    `read` is what recovery has found; None after an orderly stop: the newest batch is looked at.
    Records that do not fit their indexes either are the ones that are damaged, or another log's.
    """
    active = segments.active
    if read is None:
        is_right = bool(active.index_fault) or newest_fits(active, expected, log_start_offset)
    else:
        known = (entry for entry in read if entry.start_offset >= log_start_offset)
        is_right = all(epoch_at(expected, start) == epoch for epoch, start in known)
    if is_right:
        return []
    recorded = recorded_epochs(files, places_of(segments), expected, log_start_offset)
    return recorded.entries if recorded.are_proven() else []
