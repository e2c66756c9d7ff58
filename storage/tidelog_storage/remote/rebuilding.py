"""Rebuilds the files of a remote segment from its records, to copy it again.

The records come from another replica, or from the remote segment itself if only an index is
damaged. Offset and time index follow from them. The transaction index and the producer snapshot
also need the producers' state before the segment: it comes from the snapshot of an earlier remote
segment and the records in between. Without that, the segment's own indexes are used.

Uses frozen values and files; blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tidelog_protocol.batch import iter_batches
from tidelog_storage.checkpoints import EpochEntry
from tidelog_storage.indexes import TRANSACTION_ENTRY, AbortedEntry
from tidelog_storage.producer_snapshot import CorruptSnapshotError, parse_snapshot
from tidelog_storage.producer_state import ProducerStateManager
from tidelog_storage.remote.api import (
    IndexKind,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentFiles,
)
from tidelog_storage.scrub import Extent
from tidelog_storage.scrub_repair import check_copy
from tidelog_storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from tidelog_storage.transaction_proof import find_aborted
from tidelog_storage.types import Damage, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage
    from tidelog_storage.seams import FileSystem
    from tidelog_storage.segment import SegmentOptions

__all__ = [
    "ProducersKnown",
    "SegmentContent",
    "check_range",
    "check_records",
    "clean",
    "producers_known",
    "rebuild",
    "whole",
]

_SNAPSHOT_SUFFIX = ".snapshot"
_NOTHING = memoryview(b"")


def whole(segment: RemoteSegment) -> Damage:
    """Return all of a remote segment as a range to ask a replica for."""
    after = segment.end_offset + 1
    return Damage(segment.start_offset, segment.start_offset, after, 0, segment.size, "")


def check_records(segment: RemoteSegment, records: memoryview) -> str:
    """Return why these can't be the segment's records; empty if they are."""
    if len(records) != segment.size:  # a missing batch shows here
        return f"{len(records)} bytes, not {segment.size}"
    return check_range(whole(segment), segment.epochs, records)


def check_range(wanted: Damage, epochs: Sequence[tuple[int, int]], records: memoryview) -> str:
    """Return why these can't be the records of a range of offsets; empty if they can. Gaps are
    allowed, because the log may have been compacted once."""
    entries = tuple(EpochEntry(*entry) for entry in epochs)
    size = len(records)
    extent = Extent("", wanted.first_offset, wanted.end_offset, size, True, False, entries)
    return check_copy(extent, wanted, records)


@dataclass(frozen=True, slots=True)
class ProducersKnown:
    """The state of a segment's producers, from the remote tier.

    `snapshot` and `aborted` are the segment's own; None and empty if they are lost or damaged.
    """

    before: bytes | None  # a producer snapshot at or below the segment's start; None if none is
    before_offset: int
    lead_in: memoryview  # the records from `before_offset` to the segment's start
    snapshot: bytes | None
    aborted: tuple[AbortedEntry, ...]


def producers_known(
    store: RemoteStorage,
    segment: RemoteSegment,
    earlier: RemoteSegment | None,
    lead_in: memoryview = _NOTHING,
) -> ProducersKnown:
    """Read the producers' state; `lead_in` has the records between `earlier` and the segment.
    RetriableRemoteStorageError."""
    before = None if earlier is None else _snapshot(store, earlier)
    return ProducersKnown(
        before,
        segment.start_offset if before is None or earlier is None else earlier.end_offset + 1,
        _NOTHING if before is None else lead_in,
        _snapshot(store, segment),
        _aborted(store, segment),
    )


def _snapshot(store: RemoteStorage, segment: RemoteSegment) -> bytes | None:
    content = _index(store, segment, IndexKind.PRODUCER_SNAPSHOT)
    try:
        if content is not None:
            parse_snapshot(content)
    except CorruptSnapshotError:
        return None
    return content


def _aborted(store: RemoteStorage, segment: RemoteSegment) -> tuple[AbortedEntry, ...]:
    content = _index(store, segment, IndexKind.TRANSACTION) or b""
    if len(content) % TRANSACTION_ENTRY.size:
        return ()
    return tuple(AbortedEntry(*fields) for _, *fields in TRANSACTION_ENTRY.iter_unpack(content))


def _index(store: RemoteStorage, segment: RemoteSegment, kind: IndexKind) -> bytes | None:
    try:
        with store.fetch_index(segment, kind) as stream:
            return stream.read()
    except RetriableRemoteStorageError:
        raise  # it may be there
    except RemoteStorageError:
        return None


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """What a segment is rebuilt from: checked records, producers, and the epoch checkpoint."""

    records: memoryview
    known: ProducersKnown
    epochs: bytes


def rebuild(
    files: FileSystem,
    folder: str,
    segment: RemoteSegment,
    content: SegmentContent,
    options: SegmentOptions,
) -> SegmentFiles:
    """Write all files to `folder`. OSError."""
    files.make_dirs(folder)
    built = Segment(
        files, folder, segment.start_offset, size=0, options=options, created_ms=0
    ).begin()
    try:
        for header, batch in _batches(content.records):
            built.append(batch, header.last_offset, header.max_timestamp)
        built.write_indexes(seal=True)
        snapshot = _note_producers(built, segment, content.known)
        aborted = built.transaction_index.entries
    finally:
        built.release()
    return SegmentFiles(
        built.path(LOG_SUFFIX),
        built.path(INDEX_SUFFIX),
        built.path(TIME_INDEX_SUFFIX),
        built.path(TRANSACTION_INDEX_SUFFIX) if aborted else None,
        snapshot,
        content.epochs,
    )


def _note_producers(built: Segment, segment: RemoteSegment, known: ProducersKnown) -> str:
    """Write the transaction index and the snapshot; return the snapshot's path."""
    start, after = segment.start_offset, segment.end_offset + 1
    partition = TopicPartition(segment.topic, segment.partition)
    producers = ProducerStateManager(built.files, built.folder, partition, snapshot_offsets=())
    if known.before is not None:
        producers.write_snapshot(known.before_offset, known.before)
    producers.start_from_snapshot(known.before_offset, 0)
    is_known = known.before is not None or start == 0
    batches = chain(_batches(known.lead_in), ((one, batch) for _, one, batch in built.batches()))
    aborted = find_aborted(producers, batches, start, () if is_known else known.aborted)
    built.transaction_index.replace(aborted)
    own = None if is_known else known.snapshot
    producers.write_snapshot(after, producers.snapshot_content() if own is None else own)
    return producers.snapshot_path(after)


def _batches(records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    for position, header in iter_batches(records):
        yield header, records[position : position + header.size_in_bytes]


def clean(files: FileSystem, folder: str) -> None:
    """Remove the files of `rebuild`, and the folder. OSError."""
    if not files.exists(folder):
        return
    for name in files.list(folder):
        if name.endswith((*SEGMENT_SUFFIXES, _SNAPSHOT_SUFFIX)):
            files.remove(f"{folder}/{name}")
    files.remove_empty_dir(folder)
