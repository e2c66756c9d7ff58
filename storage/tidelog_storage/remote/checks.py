"""Reads a remote segment back and checks all that can be checked of it.

Its records against their own checksums and the metadata; every object against the manifest, where
the store keeps one; and, as most of Kafka's formats have no checksum of their own and most stores
no manifest, indexes, snapshot and epochs against the records and the metadata. Blocks.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.checksum import crc32c
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import (
    ControlType,
    control_type,
    crc_is_valid,
    iter_batches,
    iter_records,
)
from tidelog_storage.checkpoints import CheckpointError, parse_epochs
from tidelog_storage.indexes import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY
from tidelog_storage.producer_snapshot import CorruptSnapshotError, parse_snapshot
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound, RemoteStorageError
from tidelog_storage.remote.chunks import CorruptRemoteDataError
from tidelog_storage.remote.layout import (
    INDEX_ENDINGS,
    LOG_ENDING,
    facts_of,
    manifest,
    object_name,
)
from tidelog_storage.remote.lineage import clipped, without_empty

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.remote.api import RemoteSegment, RemoteStorage
    from tidelog_storage.remote.layout import ObjectFacts

__all__ = ["UnreadableStoreError", "check_segment"]

Facts = dict[str, "ObjectFacts"]


class UnreadableStoreError(Exception):
    """The store gives nothing of a segment at all; the text says why, and names no object.

    More likely than of the segment that is the trouble of the whole store: credentials, a bucket
    that there is not, a server that is away.
    """


class _Manifest(NamedTuple):
    """What a segment's manifest says of its objects, and what is wrong with it."""

    faults: list[str]
    facts: Facts | None = None  # if it can be read
    is_missing: bool = False  # where the store should have one


class _Records(NamedTuple):
    """What the `.log` holds."""

    segment: RemoteSegment
    batches: list[tuple[int, BatchHeader]]  # with their positions; not empty
    aborts: set[tuple[int, int]]  # producer id and offset of every abort marker

    def has(self, offset: int) -> bool:
        """Whether there is a batch with an offset: compaction leaves gaps."""
        slot = bisect_right(self.batches, offset, key=lambda each: each[1].base_offset) - 1
        return slot >= 0 and offset <= self.batches[slot][1].last_offset


def check_segment(store: RemoteStorage, segment: RemoteSegment) -> list[str]:
    """What is wrong with a finished segment, in words; nothing if all is well.

    UnreadableStoreError if nothing can be said of it.
    """
    faults, facts, has_lost_manifest = _read_manifest(store, segment)
    try:
        with store.fetch_segment(segment, 0) as stream:
            data = stream.read()
    except RemoteStorageError as error:
        if facts is None and _is_refused(error) and _refuses_all(store, segment):
            raise UnreadableStoreError(str(error.__cause__ or error)) from error
        if isinstance(error, RemoteResourceNotFound) and has_lost_manifest:
            return [f"is not there: {error}"]
        return [*faults, f"can't be read: {error}"]
    if len(data) != segment.size:
        faults.append(f"{len(data)} bytes, not {segment.size}")
    faults += _check_facts(LOG_ENDING, data, facts)
    records = _Records(segment, [], set())
    try:
        for position, header in iter_batches(data):
            records.batches.append((position, header))
            if not crc_is_valid(data, header, position):
                faults.append(f"the batch at {header.base_offset} has a bad checksum")
            elif header.is_control:
                _note_aborts(records, data, position)
    except ProtocolError as error:
        return [*faults, f"no records after {len(records.batches)} batches: {error}"]
    if not records.batches:
        return [*faults, "no records"]
    return [*faults, *_check_offsets(records), *_check_indexes(store, records, facts)]


def _is_refused(error: RemoteStorageError) -> bool:
    """Whether it may be there, and be what it was."""
    return not isinstance(error, (RemoteResourceNotFound, CorruptRemoteDataError))


def _refuses_all(store: RemoteStorage, segment: RemoteSegment) -> bool:
    """Whether another object of the segment is not given either."""
    try:
        store.fetch_index(segment, IndexKind.LEADER_EPOCH).close()
    except RemoteStorageError as error:
        return _is_refused(error)
    return False


def _note_aborts(records: _Records, data: bytes, position: int) -> None:
    for record in iter_records(data, position):
        if control_type(record) == ControlType.ABORT:
            producer_id = records.batches[-1][1].producer_id
            records.aborts.add((producer_id, record.offset))


# ---- against the manifest ------------------------------------------------------------------------


def _read_manifest(store: RemoteStorage, segment: RemoteSegment) -> _Manifest:
    fetch = _manifest_fetcher(store)
    if fetch is None:
        return _Manifest([])
    try:
        with fetch(segment) as stream:
            content = stream.read()
        said = json.loads(content)
        found = {
            ending: facts_of(content, object_name(segment, ending))
            for ending in (LOG_ENDING, *INDEX_ENDINGS.values())
        }
    except RemoteResourceNotFound as error:
        return _Manifest([f"the manifest is not there: {error}"], is_missing=True)
    except (RemoteStorageError, ValueError, RecursionError) as error:
        return _Manifest([f"the manifest can't be read: {error}"])
    facts = {ending: each for ending, each in found.items() if each is not None}
    excused = {INDEX_ENDINGS[IndexKind.TRANSACTION]} if segment.txn_index_empty else set()
    missing = found.keys() - facts.keys() - excused
    faults = [f"the manifest does not name the {ending}" for ending in sorted(missing)]
    meant = json.loads(manifest(segment, facts))
    others = [key for key, value in meant.items() if said.get(key) != value]
    if others:
        faults.append(f"the manifest tells another {', '.join(others)}")
    return _Manifest(faults, facts)


def _manifest_fetcher(store: RemoteStorage) -> Callable[[RemoteSegment], BinaryIO] | None:
    """A store's `fetch_manifest`, if it is a `DescribedRemoteStorage`.

    None also where a subclass has its own way to read: what it reads may not be what lies there.
    """
    given: Any = store
    for kind in type(store).__mro__:
        if "fetch_manifest" in vars(kind):
            return given.fetch_manifest  # type: ignore[no-any-return]
        if not vars(kind).keys().isdisjoint(("fetch_segment", "fetch_index")):
            break
    return None


def _check_facts(ending: str, content: bytes, facts: Facts | None) -> list[str]:
    if facts is None or ending not in facts:
        return []
    size, crc = facts[ending]
    if len(content) != size:
        return [f"the {ending} has {len(content)} bytes, not {size} as its manifest says"]
    if crc32c(content, 0) != crc:
        return [f"the {ending} has another checksum than its manifest says"]
    return []


# ---- against metadata and records ----------------------------------------------------------------


def _check_offsets(records: _Records) -> list[str]:
    segment, batches = records.segment, records.batches
    first, last = batches[0][1], batches[-1][1]
    faults = []
    if first.base_offset < segment.start_offset or last.last_offset > segment.end_offset:
        faults.append(
            f"holds {first.base_offset}..{last.last_offset}, "
            f"not {segment.start_offset}..{segment.end_offset}"
        )
    newest = max(header.max_timestamp for _, header in batches)
    if newest > segment.max_timestamp:
        faults.append(f"has a timestamp {newest}, newer than {segment.max_timestamp}")
    starts = dict(segment.epochs)
    log_start = segment.epochs[0][1]  # of when it was copied: there is no epoch below
    for _, header in batches:
        start = starts.get(header.leader_epoch, segment.end_offset + 1)
        if log_start <= header.last_offset < start:
            faults.append(
                f"the batch at {header.base_offset} is of epoch {header.leader_epoch}, "
                f"which is not in the metadata there"
            )
    return faults


def _check_indexes(store: RemoteStorage, records: _Records, facts: Facts | None) -> list[str]:
    faults = []
    for kind, ending in INDEX_ENDINGS.items():
        try:
            with store.fetch_index(records.segment, kind) as stream:
                content = stream.read()
        except RemoteResourceNotFound:
            if kind is not IndexKind.TRANSACTION or _has_transactions(records, facts):
                faults.append(f"the {kind.name} index is not there")
        except RemoteStorageError as error:
            faults.append(f"the {kind.name} index can't be read: {error}")
        else:
            faults += _check_facts(ending, content, facts) or _CHECKS[kind](records, content)
    return faults


def _has_transactions(records: _Records, facts: Facts | None) -> bool:
    """Whether there has to be a transaction index. Metadata of before KIP-1058 never says that
    there is none: the records tell whether any transaction was aborted."""
    if facts is not None and INDEX_ENDINGS[IndexKind.TRANSACTION] in facts:
        return True
    return bool(records.aborts) and not records.segment.txn_index_empty


def _check_offset_index(records: _Records, content: bytes) -> list[str]:
    """Every entry points at the batch that holds its offset."""
    if len(content) % OFFSET_ENTRY.size:
        return ["the OFFSET index has a torn entry"]
    at = dict(records.batches)
    entries = list(OFFSET_ENTRY.iter_unpack(content))
    for delta, position in entries:
        offset = records.segment.start_offset + delta
        header = at.get(position)
        if header is None or not header.base_offset <= offset <= header.last_offset:
            return [f"the OFFSET index sends {offset} to byte {position}, where it is not"]
    if any(after <= before for before, after in pairwise(entries)):
        return ["the OFFSET index does not rise"]
    return []


def _check_time_index(records: _Records, content: bytes) -> list[str]:
    """Every entry has the largest timestamp up to its offset, and of the batch there; the last one
    has that of all."""
    if len(content) % TIME_ENTRY.size:
        return ["the TIMESTAMP index has a torn entry"]
    segment = records.segment
    headers = [header for _, header in records.batches]
    bases = [header.base_offset for header in headers]
    newest = list(accumulate((header.max_timestamp for header in headers), max))
    entries = list(TIME_ENTRY.iter_unpack(content))
    for timestamp, delta in entries:
        offset = segment.start_offset + delta
        slot = bisect_right(bases, offset) - 1
        is_inside = slot >= 0 and offset <= segment.end_offset
        if not is_inside or not headers[slot].max_timestamp == newest[slot] == timestamp:
            return [f"the TIMESTAMP index has {timestamp} at {offset}, which is not so"]
    if any(after <= before for before, after in pairwise(entries)):
        return ["the TIMESTAMP index does not rise"]
    if newest[-1] >= 0 and (not entries or entries[-1][0] != newest[-1]):
        return ["the TIMESTAMP index ends early"]  # sealing a segment notes its newest one
    return []


def _check_transactions(records: _Records, content: bytes) -> list[str]:
    """Every entry has its abort marker in this segment, or had it before a compaction."""
    if len(content) % TRANSACTION_ENTRY.size:
        return ["the TRANSACTION index has a torn entry"]
    if content and records.segment.txn_index_empty:
        return ["the TRANSACTION index is not empty, but the metadata says it is"]
    if not content and _has_transactions(records, None):
        return ["the TRANSACTION index is empty"]
    segment, last = records.segment, -1
    for version, producer_id, first, marker, _ in TRANSACTION_ENTRY.iter_unpack(content):
        is_inside = segment.start_offset <= marker <= segment.end_offset and marker > last
        is_marker = (producer_id, marker) in records.aborts or not records.has(marker)
        if version or not is_inside or not is_marker or not 0 <= first <= marker:
            aborted = f"{first}..{marker} of producer {producer_id}"
            return [f"the TRANSACTION index has {aborted} aborted, which is not so"]
        last = marker
    return []


def _check_snapshot(records: _Records, content: bytes) -> list[str]:
    try:
        entries = parse_snapshot(content)
    except CorruptSnapshotError as error:
        return [f"the PRODUCER_SNAPSHOT can't be used: {error}"]
    newest = max((each.batches[-1].last_offset for each in entries if each.batches), default=-1)
    if newest > records.segment.end_offset:
        return [f"the PRODUCER_SNAPSHOT knows of offset {newest}, behind the segment"]
    return []


def _check_epochs(records: _Records, content: bytes) -> list[str]:
    """The part of it that is the segment's is what the metadata says."""
    segment = records.segment
    try:
        entries = parse_epochs(content)
    except CheckpointError as error:
        return [f"the LEADER_EPOCH checkpoint can't be used: {error}"]
    rises = all(
        after.epoch > before.epoch and after.start_offset >= before.start_offset
        for before, after in pairwise(entries)
    )
    own = clipped(entries, segment.start_offset, segment.end_offset + 1) if rises else ()
    if without_empty(own) != without_empty(segment.epochs):
        return ["the LEADER_EPOCH checkpoint has other epochs than the metadata"]
    return []


_CHECKS: dict[IndexKind, Callable[[_Records, bytes], list[str]]] = {
    IndexKind.OFFSET: _check_offset_index,
    IndexKind.TIMESTAMP: _check_time_index,
    IndexKind.TRANSACTION: _check_transactions,
    IndexKind.PRODUCER_SNAPSHOT: _check_snapshot,
    IndexKind.LEADER_EPOCH: _check_epochs,
}
