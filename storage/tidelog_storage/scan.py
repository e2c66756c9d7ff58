"""Walking over the batches of a records file.

`whole_batches` reads everything, for recovery and rebuilding; `batch_places` reads as little as it
can, for look-ups. Both take a file and know nothing of segments. The caller checks CRCs, except in
`valid_batches`, which recovery uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_MAGIC_AND_ATTRIBUTES,
    LENGTH_OVERHEAD,
    MAGIC,
    SHORT_HEADER,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.indexes import RELATIVE_OFFSET_MAX
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_storage.seams import File

_SCAN_BYTES = 1 << 20
_WALK_BYTES = 8192
_VIEW_BYTES = 1 << 24
_unpack_short = SHORT_HEADER.unpack_from
_unpack_attributes = LENGTH_MAGIC_AND_ATTRIBUTES.unpack_from


class BatchPlace(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def whole_batches(
    records: File, position: int, end: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of the whole batches in [position, end).

    Stops before anything that cannot be a whole batch. The caller may keep the bytes.
    """
    chunk = b""
    start = position
    while end - position >= HEADER_BYTES:
        offset = position - start
        if len(chunk) - offset < HEADER_BYTES:
            chunk = records.pread(position, min(_SCAN_BYTES, end - position))
            start, offset = position, 0
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, offset)
        size = header.batch_length + LENGTH_OVERHEAD
        if header.magic != MAGIC or size < HEADER_BYTES or size > end - position:
            return
        if len(chunk) - offset < size:
            chunk = records.pread(position, max(size, min(_SCAN_BYTES, end - position)))
            start, offset = position, 0
            if len(chunk) < size:
                return
        yield position, header, memoryview(chunk)[offset : offset + size]
        position += size


class ValidBatch(NamedTuple):
    """A batch that recovery keeps. `has_gap_before`: offsets are missing before it."""

    position: int
    header: BatchHeader
    data: memoryview
    has_gap_before: bool


def valid_batches(records: File, end: int, base_offset: int) -> Iterator[ValidBatch]:
    """Yield the valid batches of a segment, in the order of their offsets, up to the first invalid
    one.

    A batch's checksum does not cover its base offset. Compaction leaves gaps, but the batch after a
    gap must end at or before the start of the next one; otherwise its base offset is damaged, and
    it is left out as well.
    """
    held: ValidBatch | None = None
    next_offset = base_offset
    for position, header, data in whole_batches(records, 0, end):
        is_valid = (
            header.last_offset_delta >= 0
            and header.last_offset - base_offset <= RELATIVE_OFFSET_MAX
            and crc_is_valid(data, header)
        )
        if not is_valid or header.base_offset < next_offset:
            if is_valid:
                held = None
            break
        if held is not None:
            yield held
        held = ValidBatch(position, header, data, header.base_offset > next_offset)
        if not held.has_gap_before:
            yield held
            held = None
        next_offset = header.next_offset
    if held is not None:
        yield held


def batch_places(records: File, position: int, end: int) -> Iterator[BatchPlace]:
    """Yield the places of the batches from a batch's `position` up to `end`, the end of one.

    StorageError CORRUPT_MESSAGE if there is none: another program changed the file.
    """
    chunk = b""
    start = position
    while end - position >= HEADER_BYTES:
        offset = position - start
        if len(chunk) - offset < SHORT_HEADER.size:
            chunk = records.pread(position, _WALK_BYTES)
            start, offset = position, 0
            if len(chunk) < SHORT_HEADER.size:
                raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"the file ends before {position}")
        base_offset, length, delta = _unpack_short(chunk, offset)
        size = length + LENGTH_OVERHEAD
        if not HEADER_BYTES <= size <= end - position:
            raise StorageError(ErrorCode.CORRUPT_MESSAGE, f"no record batch at {position}")
        yield BatchPlace(position, size, base_offset, base_offset + delta)
        position += size


def batch_headers(records: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches in [position, end), without reading their records.

    Stops before anything that cannot be a whole batch.
    """
    chunk = b""
    start = position
    while end - position >= HEADER_BYTES:
        offset = position - start
        if len(chunk) - offset < HEADER_BYTES:
            chunk = records.pread(position, _WALK_BYTES)
            start, offset = position, 0
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, offset)
        size = header.size_in_bytes
        if header.magic != MAGIC or not HEADER_BYTES <= size <= end - position:
            return
        yield position, header
        position += size


def control_batches(records: File, end: int) -> Iterator[memoryview]:
    """Yield the whole control batches below `end`.

    A tight loop: it passes over every batch of a segment. Stops before anything that cannot be a
    whole batch.
    """
    position = 0
    while end - position >= HEADER_BYTES:
        window = records.view(position, min(_VIEW_BYTES, end - position))
        at, last = 0, len(window) - HEADER_BYTES
        while at <= last:
            length, magic, attributes = _unpack_attributes(window, at)
            size = length + LENGTH_OVERHEAD
            if magic != MAGIC or not HEADER_BYTES <= size <= end - position - at:
                return
            if attributes & CONTROL_BIT:
                if at + size > len(window):
                    break  # the next window begins with it
                yield window[at : at + size]
            at += size
        if not at:
            return
        position += at
