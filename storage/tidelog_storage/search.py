"""Search batches by time with the indexes (KIP-79, KIP-734).

The records decide: an index that does not lead to a batch is rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.records import iter_records
from tidelog_storage.scan import batch_headers
from tidelog_storage.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.segment import Segment


def offset_before(segment: Segment, timestamp: int) -> int:
    """Return an offset at or below that of the first record as new as `timestamp`."""
    entry = segment.time_index.floor(timestamp)
    if entry is not None and not _has_timestamp(segment, *entry):
        segment.rebuild_indexes()
        entry = segment.time_index.floor(timestamp)
    return segment.base_offset if entry is None else entry[1]


def _has_timestamp(segment: Segment, timestamp: int, offset: int) -> bool:
    place = segment.find(offset)
    if place is None:
        return False
    header = next(batch_headers(segment.records, place.position, segment.size), None)
    return header is not None and header[1].max_timestamp == timestamp


def offset_for_timestamp(
    segments: Iterable[Segment], timestamp: int, start_offset: int
) -> OffsetAndTimestamp | None:
    """The first record from `start_offset` on that is as new as `timestamp` or newer."""
    for segment in segments:
        if segment.size and segment.know_timestamps() >= timestamp:
            found = _in_segment(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _in_segment(segment: Segment, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    from_offset = max(offset_before(segment, timestamp), start_offset)
    place = segment.find(from_offset)
    for _, header, batch in segment.batches(segment.size if place is None else place.position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            found = _in_batch(header, batch, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _in_batch(
    header: BatchHeader, batch: memoryview, timestamp: int, start_offset: int
) -> OffsetAndTimestamp | None:
    for record in iter_records(batch):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return OffsetAndTimestamp(record.offset, record.timestamp, header.leader_epoch)
    return None


def max_timestamp_offset(segments: Iterable[Segment]) -> OffsetAndTimestamp | None:
    """The first record that has the largest timestamp of the log; None for an empty log."""
    newest: Segment | None = None
    for segment in segments:
        if segment.size and (newest is None or segment.know_timestamps() > newest.max_timestamp):
            segment.know_timestamps()
            newest = segment
    if newest is None:
        return None
    place = newest.find(newest.max_timestamp_offset)
    if place is None:
        return None
    _, header, batch = next(newest.batches(place.position))
    return _in_batch(header, batch, newest.max_timestamp, 0)
