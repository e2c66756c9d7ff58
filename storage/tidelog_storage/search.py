"""Search the batches of one segment with its indexes. The records decide: an index that does not
lead to a batch is rebuilt."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from tidelog_storage.scan import BatchPlace, batch_headers, batch_places
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog_storage.indexes import OffsetIndex
    from tidelog_storage.segment import Segment

__all__ = ["offset_before", "places_from"]


def places_from(
    segment: Segment, entry_of: Callable[[OffsetIndex], tuple[int, int] | None], position: int = 0
) -> Iterator[BatchPlace]:
    """Yield the batches from an entry of the offset index on, or from `position` if that is
    later."""
    entry = entry_of(segment.offset_index)
    if entry is not None and entry[1] > position:
        places = batch_places(segment.records, entry[1], segment.size)
        with suppress(StorageError):
            first = next(places, None)
            if first is not None and segment.base_offset <= first.base_offset <= entry[0]:
                return chain((first,), places)
        segment.rebuild_indexes()
        entry = entry_of(segment.offset_index)
    position = position if entry is None else max(position, entry[1])
    return batch_places(segment.records, position, segment.size)


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
