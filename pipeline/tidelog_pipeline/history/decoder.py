"""Record batches to Arrow columns, in the schema of Spark's Kafka source.

`heads.py` finds where records begin. Everything else is done by numpy for all records of many
batches at once, and keys and values are gathered by Arrow out of one buffer. The headers of
batches tell offsets without gaps: a read of no more than offsets looks at no record. Pure
functions.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog_pipeline.history.heads import PADDING, heads_of, varints
from tidelog_protocol.batch import HEADER_BYTES, LOG_APPEND_TIME
from tidelog_protocol.compression import decompressed
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import read_varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tidelog_protocol.batch import BatchHeader

    Int64s = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

__all__ = [
    "COLUMNS",
    "HEADERS",
    "ROWS_MAX",
    "Group",
    "Kept",
    "RawBatch",
    "decode",
    "is_known_by_header",
    "needs_records",
    "opened",
    "raw_batch",
]

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = "headers"
COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(_HEADER),
}
"""Arrow types by name, in the order of the Kafka source (KafkaRecordToRowConverter)."""

ROWS_MAX = 1 << 18
"""About so many records become one Arrow batch at most."""

_PARTS = frozenset({"key", "value", HEADERS})  # columns that are read out of the records' parts
_RECORDS = _PARTS | {"timestamp"}  # columns that are read out of the records
_GROUP_BYTES_MAX = (1 << 31) - 1  # what Arrow's offsets of 32 bits reach
_MS_MAX = (1 << 63) // 1000 - 1


class RawBatch(NamedTuple):
    """A batch whose CRC was right, with its records: as they are stored, or `opened`."""

    header: BatchHeader
    payload: bytes | bytearray | memoryview


class Kept(NamedTuple):
    """Records that count: those with offsets in [start, end)."""

    start: int
    end: int


class Group(NamedTuple):
    """Batches of one partition that become one Arrow batch."""

    topic: str
    partition: int
    batches: Sequence[RawBatch]
    kept: Kept
    is_opened: bool = True  # else the headers are enough, for all batches and columns


class _Parts(NamedTuple):
    """Where keys, values and headers are in the joined payloads; lengths are -1 for null."""

    key_start: Int64s
    key_length: Int64s
    value_start: Int64s
    value_length: Int64s
    tail: Int64s  # of the headers' count
    end: Int64s


class _Fields(NamedTuple):
    """The joined payloads, and the fields of each record in them."""

    data: bytes
    timestamp_delta: Int64s
    offset_delta: Int64s
    known_parts: _Parts | None  # None if no column needs them

    @property
    def parts(self) -> _Parts:
        assert self.known_parts is not None
        return self.known_parts


class _Rows(NamedTuple):
    """The records of a group: their fields, and those of their batches."""

    group: Group
    known_fields: _Fields | None  # None if the headers are enough
    batch: Int64s  # which of the batches each record is of
    offsets: Int64s
    chosen: Int64s | None  # slots of the records that count; None: all do

    @property
    def fields(self) -> _Fields:
        assert self.known_fields is not None
        return self.known_fields

    def pick(self, values: Int64s) -> Int64s:
        return values if self.chosen is None else values[self.chosen]

    def of_batches(self, values: Sequence[int]) -> Int64s:
        """One value for each record, from one for each batch."""
        return np.array(values, dtype=np.int64)[self.batch]

    def __len__(self) -> int:
        return len(self.offsets) if self.chosen is None else len(self.chosen)


def decode(group: Group, columns: Sequence[str]) -> Any:
    """The Arrow batch of a group's records in these columns (of `COLUMNS`), in this order.

    ProtocolError if a record does not fit its batch.
    """
    rows = _rows(group, has_parts=not _PARTS.isdisjoint(columns))
    arrays = [_BUILDERS[name](rows) for name in columns]
    schema = pa.schema([pa.field(name, COLUMNS[name]) for name in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# ---- records -------------------------------------------------------------------------------------


def needs_records(columns: Sequence[str]) -> bool:
    """Whether the headers of batches are not enough for these columns."""
    return not _RECORDS.isdisjoint(columns)


def is_known_by_header(header: BatchHeader) -> bool:
    """Whether the header tells all offsets of the batch: compaction left no gaps in it."""
    return 0 < header.records_count == header.last_offset_delta + 1 <= ROWS_MAX


def raw_batch(buffer: bytes | memoryview, position: int, header: BatchHeader) -> RawBatch:
    """The batch at `position`, as it is stored: nothing is copied."""
    end = position + header.size_in_bytes
    return RawBatch(header, memoryview(buffer)[position + HEADER_BYTES : end])


def opened(raw: RawBatch) -> RawBatch:
    """The batch with its records decompressed. ProtocolError if they can't be."""
    return RawBatch(raw.header, decompressed(raw.header.codec, raw.payload))


def _rows(group: Group, *, has_parts: bool) -> _Rows:
    fields = _fields(group, has_parts=has_parts) if group.is_opened else None
    counts = np.array([header.records_count for header, _ in group.batches], dtype=np.int64)
    batch = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    bases = np.array([header.base_offset for header, _ in group.batches], dtype=np.int64)
    if fields is None:
        firsts = np.cumsum(counts) - counts
        offsets = (bases - firsts)[batch] + np.arange(len(batch), dtype=np.int64)
    else:
        offsets = bases[batch] + fields.offset_delta
    return _Rows(group, fields, batch, offsets, _chosen(group, offsets))


def _fields(group: Group, *, has_parts: bool) -> _Fields:
    data = b"".join([*(payload for _, payload in group.batches), PADDING])
    if len(data) > _GROUP_BYTES_MAX:
        raise ProtocolError(f"a record batch of {len(data)} bytes is too large for Arrow")
    edges = [0, *accumulate(len(payload) for _, payload in group.batches)]
    counts = np.array([header.records_count for header, _ in group.batches], dtype=np.int64)
    gapless = [is_known_by_header(header) for header, _ in group.batches]
    heads = heads_of(data, edges, counts, gapless)
    try:
        return _fields_at(data, heads, has_parts=has_parts)
    except IndexError:
        raise ProtocolError("a record does not fit its batch") from None


def _chosen(group: Group, offsets: Int64s) -> Int64s | None:
    start, end = group.kept
    headers = [header for header, _ in group.batches]
    if not headers or (headers[0].base_offset >= start and headers[-1].next_offset <= end):
        return None
    return np.flatnonzero((offsets >= start) & (offsets < end))


def _fields_at(data: bytes, heads: Int64s, *, has_parts: bool) -> _Fields:
    view = np.frombuffer(data, dtype=np.uint8)
    length, start = varints(view, heads)
    if (length < 0).any():
        raise ProtocolError("a record of negative length")
    timestamp_delta, position = varints(view, start + 1)  # the byte of attributes is unused
    offset_delta, position = varints(view, position)
    parts = _parts(view, position, start + length) if has_parts else None
    return _Fields(data, timestamp_delta, offset_delta, parts)


def _parts(view: Bytes, position: Int64s, end: Int64s) -> _Parts:
    key_length, key_start = varints(view, position)
    value_length, value_start = varints(view, key_start + np.maximum(key_length, 0))
    tail = value_start + np.maximum(value_length, 0)
    # Each part is at least as long as nothing, and the count of headers is a byte or more.
    if (key_length < -1).any() or (value_length < -1).any() or (tail >= end).any():
        raise ProtocolError("a record's key or value does not fit the record")
    return _Parts(key_start, key_length, value_start, value_length, tail, end)


# ---- columns -------------------------------------------------------------------------------------


def _gathered(rows: _Rows, starts: Int64s, lengths: Int64s) -> Any:
    """The byte strings at these places, out of one binary array over all the data: each second of
    its elements is what lies between two of them."""
    bounds = np.empty(2 * len(starts) + 1, dtype=np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    bounds[-1] = len(rows.fields.data)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(rows.fields.data)]
    whole = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
    slots = np.arange(len(starts), dtype=np.int64) if rows.chosen is None else rows.chosen
    return whole.take(_fixed(2 * slots, pa.int64(), rows.pick(lengths) >= 0))


def _fixed(values: Any, kind: Any, is_valid: Any = None) -> Any:
    """The numbers as an Arrow array of a type of their size.

    `pa.array` and `pa.scalar` would import pandas: a second or two of each fresh worker.
    """
    bits = None
    if is_valid is not None and not is_valid.all():
        bits = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def _keys(rows: _Rows) -> Any:
    return _gathered(rows, rows.fields.parts.key_start, rows.fields.parts.key_length)


def _values(rows: _Rows) -> Any:
    return _gathered(rows, rows.fields.parts.value_start, rows.fields.parts.value_length)


def _topics(rows: _Rows) -> Any:
    name = rows.group.topic.encode()
    bounds = np.array([0, len(name)], dtype=np.int32)
    one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bounds), pa.py_buffer(name)])
    return one.take(_fixed(np.zeros(len(rows), dtype=np.int64), pa.int64()))


def _partitions(rows: _Rows) -> Any:
    return _fixed(np.full(len(rows), rows.group.partition, dtype=np.int32), pa.int32())


def _offsets(rows: _Rows) -> Any:
    return _fixed(rows.pick(rows.offsets), pa.int64())


def _timestamps(rows: _Rows) -> Any:
    headers = [header for header, _ in rows.group.batches]
    base = rows.of_batches([header.base_timestamp for header in headers])
    times = base + rows.fields.timestamp_delta
    appended = [header.timestamp_type == LOG_APPEND_TIME for header in headers]
    if any(appended):
        largest = rows.of_batches([header.max_timestamp for header in headers])
        times = np.where(np.array(appended)[rows.batch], largest, times)
    if len(times) and max(int(times.max()), -int(times.min())) > _MS_MAX:
        raise OverflowError("a timestamp is beyond what Spark can hold (long overflow)")
    return _fixed(rows.pick(times) * 1000, COLUMNS["timestamp"])


def _timestamp_types(rows: _Rows) -> Any:
    types = rows.of_batches([header.timestamp_type for header, _ in rows.group.batches])
    return _fixed(rows.pick(types).astype(np.int32), pa.int32())


def _headers(rows: _Rows) -> Any:
    """Headers, null for a record without any, as in the Kafka source."""
    fields = rows.fields
    tails, ends = rows.pick(fields.parts.tail), rows.pick(fields.parts.end)
    data = np.frombuffer(fields.data, dtype=np.uint8)
    some = np.flatnonzero((data[tails] != 0) | (tails + 1 != ends))
    if not len(some):
        return pa.nulls(len(tails), type=COLUMNS[HEADERS])
    found: list[list[dict[str, Any]] | None] = [None] * len(tails)
    try:
        for slot, tail, end in zip(
            some.tolist(), tails[some].tolist(), ends[some].tolist(), strict=True
        ):
            found[slot] = _record_headers(fields.data, tail, end)
    except IndexError as error:
        raise ProtocolError(f"a record's headers: {error}") from None
    return pa.array(found, type=COLUMNS[HEADERS])


def _record_headers(data: bytes, position: int, end: int) -> list[dict[str, Any]] | None:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise ProtocolError(f"a record with {count} headers")
    found = []
    for _ in range(count):
        key, position = _part(data, position, end)
        value, position = _part(data, position, end)
        if key is None:
            raise ProtocolError("a header without a key")
        found.append({"key": key.decode(errors="replace"), "value": value})  # as Utils.utf8
    if position != end:
        raise ProtocolError("a record's headers do not fill it")
    return found or None


def _part(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise ProtocolError("a part of a header does not fit its record")
    return data[position : position + length], position + length


_BUILDERS: dict[str, Callable[[_Rows], Any]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    HEADERS: _headers,
}
