"""Look-ups by time over the segments of a log (ListOffsets, KIP-79, KIP-734)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.records import iter_records
from tidelog_storage.search import offset_before
from tidelog_storage.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.segment import Segment
    from tidelog_storage.segments import Segments


def offset_for_timestamp(
    segments: Segments, timestamp: int, start_offset: int
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


def max_timestamp_offset(segments: Segments) -> OffsetAndTimestamp | None:
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
