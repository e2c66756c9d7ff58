"""Check that a segment's index files match its records, and compute what they should hold.

The records are the truth: their batches carry checksums, the indexes carry none. `Segment` asks
`check_opened` when it opens its indexes, `Log` asks `find_aborted` when a
transaction index is first used: both are cheap enough for that. `scrub.py` compares every entry.
All read files and change nothing; any thread may call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.records import ControlType, control_type, iter_records
from tidelog_storage.indexes import NO_TIMESTAMP, AbortedEntry, CorruptIndexError
from tidelog_storage.scan import batch_headers, control_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_storage.indexes import OffsetIndex, TimeIndex
    from tidelog_storage.producer_state import ProducerStateManager
    from tidelog_storage.seams import Buffer, File


# -- when a segment opens its indexes --------------------------------------------------------------


def check_opened(
    records: File, size: int, offsets: OffsetIndex, times: TimeIndex, interval: int
) -> None:
    """Raise CorruptIndexError for an invalid index; `interval` is `index.interval.bytes`."""
    why = _offsets_damage(records, size, offsets, interval)
    if why is not None:
        raise CorruptIndexError(f"{offsets.path}: {why}")
    why = _times_damage(records, size, offsets, times)
    if why is not None:
        raise CorruptIndexError(f"{times.path}: {why}")


def _offsets_damage(records: File, size: int, index: OffsetIndex, interval: int) -> str | None:
    """Return why an offset index is invalid; None if its last entry is right and none is missing
    after it.

    The entries before are checked as they are used (`search.py`).
    """
    last = index.last()
    position = 0 if last is None else last[1]
    headers = batch_headers(records, position, size)
    if last is not None:
        first = next(headers, None)
        if first is None or not index.base_offset <= first[1].base_offset <= last[0]:
            return f"no batch of offset {last[0]} at {position}"
    for at, _ in headers:
        if at - position > interval:
            return f"no entry behind {position}"
    return None


def _times_damage(records: File, size: int, offsets: OffsetIndex, times: TimeIndex) -> str | None:
    """Return why a time index is invalid; None if its last entry is right and has the newest
    record, as written when the segment was sealed or closed."""
    timestamp, offset = times.last()
    start = offsets.lookup(offset)
    seen = timestamp == NO_TIMESTAMP
    for _, header in batch_headers(records, start, size):
        if header.base_offset <= offset <= header.last_offset:
            seen = seen or header.max_timestamp == timestamp
        if header.last_offset >= offset and header.max_timestamp > timestamp:
            return f"a record behind {offset} is newer than its last entry"
    return None if seen else f"no batch of offset {offset} has the timestamp {timestamp}"


# -- aborted transactions --------------------------------------------------------------------------


def has_abort_marker(records: File, end: int) -> bool:
    """Return whether the segment's first `end` bytes contain an abort marker."""
    return any(_is_abort(batch) for batch in control_batches(records, end))


def _is_abort(batch: Buffer) -> bool:
    record = next(iter_records(batch), None)
    return record is not None and control_type(record) == ControlType.ABORT


def find_aborted(
    producers: ProducerStateManager,
    batches: Iterable[tuple[BatchHeader, Buffer]],
    base_offset: int,
    known: Sequence[AbortedEntry] = (),
) -> list[AbortedEntry]:
    """Return the right entries of the transaction index of the segment at `base_offset`.

    `producers` is the state at or below that offset, `batches` are those from its end offset on, to
    the segment's end. `known` are the index's present entries if `producers` may lack the beginning
    of a transaction, because that was deleted: of such a one, the entry is taken from there.
    """
    by_marker = {(entry.producer_id, entry.last_offset): entry for entry in known}
    found: list[AbortedEntry] = []
    for header, batch in batches:
        if header.producer_id < 0 or header.base_offset < producers.map_end_offset:
            continue
        completed = producers.update(header, batch)
        entry = by_marker.get((header.producer_id, header.base_offset))
        if completed is None:
            if entry is not None and header.is_control and _is_abort(batch):
                found.append(entry)
            continue
        if completed.is_aborted and completed.last_offset >= base_offset:
            made = AbortedEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset(completed),
            )
            if entry is not None and entry.first_offset < made.first_offset:
                made = entry  # it began in the deleted part
            found.append(made)
        producers.complete_transaction(completed)
    return found
