"""Bring a log's producer state up to the log's end from the batches.

After a truncation, and on loading when the newest snapshot is older than the log end. Also build
the state at an older offset, for a lost snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from tidelog_storage.log import Log


def replay_producers(log: Log, rebuilt: Container[int] = ()) -> None:
    """Feed batches from the state's end offset on.

    `rebuilt` names (by base offset) the segments whose transaction index is being rebuilt: aborted
    transactions are noted there and nowhere else, since the other indexes have them already.
    """
    producers = log.producers
    start = producers.map_end_offset
    if start < log.log_end_offset:
        for segment in log.segments.from_floor(start):
            place = segment.find(start) if segment.base_offset < start else None
            is_rebuilt = segment.base_offset in rebuilt
            for _, header, batch in segment.batches(place.position if place else 0):
                if header.producer_id >= 0 and header.last_offset >= start:
                    completed = producers.update(header, batch)
                    if completed is None:
                        continue
                    if is_rebuilt:
                        log.complete_transaction(completed, segment)
                    else:
                        producers.complete_transaction(completed)
        producers.map_end_offset = log.log_end_offset
    producers.on_high_watermark_updated(log.high_watermark)


def snapshot_at(log: Log, offset: int) -> bytes:
    """The producer snapshot of a segment's base `offset`, from an older one and the batches since.

    Without an older one it covers only the local batches, like a start without snapshots.
    """
    producers = log.producers.before(offset, log.segments.first.base_offset)
    start = producers.map_end_offset
    for segment in log.segments.from_floor(start):
        if segment.base_offset >= offset:
            break
        for _, header, batch in segment.batches():
            if header.producer_id >= 0 and header.base_offset >= start:
                completed = producers.update(header, batch)
                if completed is not None:
                    producers.complete_transaction(completed)
    return producers.snapshot_content()
