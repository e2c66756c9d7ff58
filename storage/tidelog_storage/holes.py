"""Offsets that are missing inside a log, as far as a start sees them.

Only compaction leaves gaps: in a log that was never compacted a segment ends where the next one
begins. Kafka does not check that, and its consumers pass over a segment that is gone without a
word. The broker calls this when it begins to use a log, as the topic's configuration is known then.
A scrub (`scrub.py`) finds the same and much more, later.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog_storage.epoch_checks import fits_at, newest_fits
from tidelog_storage.indexes import OFFSET_ENTRY
from tidelog_storage.scan import batch_places
from tidelog_storage.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog_storage.types import Damage, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_storage.checkpoints import EpochEntry
    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment

_BATCHES_MAX = 2000  # behind the last index entry; far more than `index.interval.bytes` allows


class Holes(NamedTuple):
    """What is missing between segments. `is_suspect`: a scrub is to look at the log."""

    damages: list[Damage]
    is_suspect: bool


def find_holes(log: Log) -> Holes:
    """Compare the end of each sealed segment with the beginning of the next one.

    For a log that was never compacted. What shows no clear end, as one that was cut inside of a
    batch, is suspect, and so is a last batch of another leader epoch than the log has there.
    """
    damages: list[Damage] = []
    epochs, start, active = log.epochs.entries, log.log_start_offset, log.segments.active
    is_suspect = active.index_fault is not None or not newest_fits(active, epochs, start)
    for segment, following in pairwise(log.segments):
        end, fits = _end_of(segment, epochs, start)
        is_suspect = is_suspect or end != following.base_offset or not fits
        if end is not None and end < following.base_offset:
            size, why = segment.size, f"missing behind segment {segment.base_offset}"
            hole = Damage(segment.base_offset, end, following.base_offset, size, size, why)
            damages.append(hole)
    return Holes(damages, is_suspect)


def _end_of(
    segment: Segment, epochs: Sequence[EpochEntry], log_start_offset: int
) -> tuple[int | None, bool]:
    """The offset after the last batch, None if that cannot be read cheaply; whether the batch is
    of the leader epoch that the log has there.

    Reads the last entry of the offset index and the few batches behind it; nothing stays open.
    """
    if not segment.size:
        return segment.base_offset, True
    try:
        with closing(segment.files.open(segment.path(INDEX_SUFFIX))) as index:
            entry = index.pread(max(index.size() - OFFSET_ENTRY.size, 0), OFFSET_ENTRY.size)
    except FileNotFoundError:
        return None, True
    position = OFFSET_ENTRY.unpack(entry)[1] if len(entry) == OFFSET_ENTRY.size else 0
    if not 0 <= position < segment.size:
        return None, True
    records = segment.files.open(segment.path(LOG_SUFFIX))
    try:
        places = list(islice(batch_places(records, position, segment.size), _BATCHES_MAX))
        if not places:
            return None, True  # the index is damaged, and leads to the segment's last bytes
        last = places[-1]
        is_last = last.position + last.size == segment.size
        fits = fits_at(records, last.position, epochs, log_start_offset)
        return last.last_offset + 1 if is_last else None, fits
    except StorageError:
        return None, True
    finally:
        records.close()


def cut_doubtful_end(log: Log, now_ms: int) -> int | None:
    """Drop the last batch of a recovered log if offsets are missing before it; the first of them.

    A base offset is not in its batch's checksum, and one that rotted upward looks like a gap. The
    next batch shows it (`scan.valid_batches`); the last one has none. For a log that was never
    compacted, and of which another replica in sync has all: a leader that was compacted once may
    have left the gap.
    """
    offset = log.doubtful_end
    log.doubtful_end = None
    if offset is None or offset >= log.log_end_offset:
        return None
    log.truncate_to(offset, now_ms)
    return offset
