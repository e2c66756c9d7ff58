"""The files of a sealed segment to copy to the remote tier (KIP-405).

`Log.sealed_files` calls it on the loop; the copy reads the paths on another thread. A roll writes
all of these files. A crash before they were synced, or another broker's software, may leave files
missing: then they are built here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.replay import snapshot_at
from tidelog_storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from tidelog_storage.types import SealedFiles

if TYPE_CHECKING:
    from tidelog_storage.log import Log
    from tidelog_storage.segment import Segment


def keep_producers(log: Log, offset: int) -> None:
    """Make the producers' state at `offset` durable, before the records below are deleted:
    afterwards it could not be rebuilt. OSError on failure."""
    if not log.producers.sync_snapshot(offset):
        log.producers.write_snapshot(offset, snapshot_at(log, offset))


def sealed_files(log: Log, segment: Segment) -> SealedFiles:
    """See `Log.sealed_files`."""
    following = log.segments.after(segment.base_offset)
    assert following is not None, "the active segment is not sealed"
    next_base_offset = following.base_offset
    exists = segment.files.exists
    if not (exists(segment.path(INDEX_SUFFIX)) and exists(segment.path(TIME_INDEX_SUFFIX))):
        segment.rebuild_indexes()
    producers = log.producers
    if not producers.has_snapshot(next_base_offset):
        producers.write_snapshot(next_base_offset, snapshot_at(log, next_base_offset))
    transactions = segment.path(TRANSACTION_INDEX_SUFFIX)
    return SealedFiles(
        segment.base_offset,
        next_base_offset,
        segment.size,
        segment.know_timestamps(),
        segment.path(LOG_SUFFIX),
        segment.path(INDEX_SUFFIX),
        segment.path(TIME_INDEX_SUFFIX),
        transactions if log.transactions_of(segment).entries else None,
        producers.snapshot_path(next_base_offset),
    )
