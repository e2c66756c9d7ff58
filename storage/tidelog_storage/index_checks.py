"""Check that a segment's index files match its records, when it opens them.

The records are the truth: their batches carry checksums, the indexes carry none. `scrub.py`
compares every entry, and `transaction_proof.py` the transaction index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_storage.indexes import NO_TIMESTAMP, CorruptIndexError
from tidelog_storage.scan import batch_headers

if TYPE_CHECKING:
    from tidelog_storage.indexes import OffsetIndex, TimeIndex
    from tidelog_storage.seams import File


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
