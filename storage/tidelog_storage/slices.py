"""Reads of a segment's records that end at a batch's end, for Fetch responses.

They use the file and the offset index of a `Segment`, and read only the lengths of batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import HEADER_BYTES, LENGTH_OVERHEAD, SHORT_HEADER
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.indexes import CorruptIndexError
from tidelog_storage.scan import batch_places
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog_storage.indexes import OffsetIndex
    from tidelog_storage.seams import File

VIEW_BYTES_MIN = 65536  # larger reads are views: below, one pread is as cheap and holds no mapping
FIRST_BYTES = 4096  # read at least: it probably contains the first batch, which is returned whole
_SHORT_BYTES = SHORT_HEADER.size
_LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD
_unpack_short = SHORT_HEADER.unpack_from
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class Slice(NamedTuple):
    """Whole batches of a segment, as `read_batches` cuts them."""

    part: bytes | memoryview
    size: int
    next_offset: int  # -1: the slice ends where the caller's limit is
    first_batch_incomplete: bool = False


_TOO_LARGE = Slice(b"", 0, -1, first_batch_incomplete=True)


def read_batches(
    records: File,
    index: OffsetIndex,
    position: int,
    max_bytes: int,
    limit: int,
    *,
    min_one_batch: bool,
) -> Slice:
    """Read as many whole batches from a batch's `position` on as fit `max_bytes`, fewer than all.

    More than `max_bytes` lie before `limit` (a batch boundary). A larger first batch is returned
    whole if `min_one_batch`, else the slice is empty and marked. CorruptIndexError if the index
    points at no batch.
    """
    if max_bytes < _SHORT_BYTES and not min_one_batch:
        return _TOO_LARGE
    data = read_bytes(records, position, max(max_bytes, FIRST_BYTES))
    if max_bytes >= _SHORT_BYTES:
        # From the last index entry that leaves room for a header, few batches are left to walk.
        near = index.before(position + max_bytes - _SHORT_BYTES)
        cut = 0 if near is None else max(near[1] - position, 0)
        if cut and near is not None and not _is_batch_of(data, cut, index.base_offset, near[0]):
            raise CorruptIndexError(f"{index.path}: no batch of offset {near[0]} at {near[1]}")
        next_offset = -1
        while max_bytes - cut >= _SHORT_BYTES:
            base_offset, length, delta = _header_at(data, cut)
            next_offset = base_offset
            if length + LENGTH_OVERHEAD > max_bytes - cut:
                break
            cut += length + LENGTH_OVERHEAD
            next_offset = base_offset + delta + 1
        if cut:
            return _new(Slice, (memoryview(data)[:cut], cut, next_offset, False))
    if not min_one_batch:
        return _TOO_LARGE
    if len(data) >= _SHORT_BYTES:
        base_offset, length, delta = _unpack_short(data)
        size = length + LENGTH_OVERHEAD
        if HEADER_BYTES <= size <= min(len(data), limit - position):
            return _new(Slice, (memoryview(data)[:size], size, base_offset + delta + 1, False))
    first = next(batch_places(records, position, limit))
    return Slice(read_bytes(records, position, first.size), first.size, first.last_offset + 1)


def _header_at(data: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """Read base offset, length and last offset delta; StorageError if there is no batch."""
    if len(data) - position >= _SHORT_BYTES:
        base_offset, length, delta = _unpack_short(data, position)
        if length >= _LENGTH_MIN:
            return base_offset, length, delta
    raise StorageError(
        ErrorCode.CORRUPT_MESSAGE, f"no record batch at byte {position} of the slice"
    )


def is_plausible(part: bytes | memoryview, size: int, offset: int, next_offset: int) -> bool:
    """Return whether a slice begins with the batch of `offset` and contains its end.

    A flipped bit of a header's first bytes, which its checksum leaves out, may show here; reading
    the checksum's bytes would cost as much as the whole read.
    """
    if len(part) != size or size < HEADER_BYTES:
        return False  # another program truncated the file
    base_offset, length, delta = _unpack_short(part)
    last_offset: int = base_offset + delta
    return offset <= last_offset < next_offset and _LENGTH_MIN <= length <= size - LENGTH_OVERHEAD


def _is_batch_of(data: bytes | memoryview, position: int, first: int, last: int) -> bool:
    """Return whether a batch that begins with one of these offsets may be there."""
    base_offset: int = _unpack_short(data, position)[0]
    return first <= base_offset <= last


def read_bytes(records: File, position: int, length: int) -> bytes | memoryview:
    """Read bytes of the file: copied if few, else a view."""
    if length < VIEW_BYTES_MIN:
        return records.pread(position, length)
    return records.view(position, length)
