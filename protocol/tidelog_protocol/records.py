"""Record batches with their records: iteration, builder, recompression, control records.

For the broker's own topics, compacted topics, recompression and tests; the data path needs only the
header functions of `batch.py`, which this module re-exports.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble,
    crc_is_valid,
    iter_batches,
    placed,
    read_header,
    read_magic,
    set_offset_and_epoch,
    set_timestamp,
)
from tidelog_protocol.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Buffer = bytes | bytearray | memoryview

__all__ = [
    "CREATE_TIME",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Codec",
    "ControlType",
    "Record",
    "assemble",
    "build_batch",
    "build_end_transaction_marker",
    "build_own_batch",
    "control_type",
    "coordinator_epoch",
    "crc_is_valid",
    "iter_batches",
    "iter_payload",
    "iter_records",
    "placed",
    "read_header",
    "read_magic",
    "records_payload",
    "set_offset_and_epoch",
    "set_timestamp",
    "with_codec",
]

_CONTROL_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")
_new = tuple.__new__  # see batch.py


class Record(NamedTuple):
    """One record. `key`, `value` and header values are None where Kafka writes length -1."""

    offset: int
    timestamp: int  # ms
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ControlType(IntEnum):
    """Second int16 of a control record's key; other values exist in Raft logs."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


# -- records ---------------------------------------------------------------------------------------


def records_payload(
    batch: Buffer, header: BatchHeader, position: int = 0, size_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Return the uncompressed records of a whole batch, without its header."""
    end = position + header.batch_length + LENGTH_OVERHEAD
    payload = memoryview(batch)[position + HEADER_BYTES : end]
    if not header.records_count and not payload:
        return b""  # compaction keeps empty batches, with their codec bits, for the last sequence
    return decompress(header.codec, payload, size_max)


def iter_records(
    batch: Buffer, position: int = 0, size_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of the one batch at `position`, decompressed within `size_max` bytes.

    ProtocolError if anything does not fit: lengths, varints, the count, bytes left over.
    """
    header = read_header(batch, position)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_in_bytes <= len(batch) - position:
        raise ProtocolError(
            f"no whole record batch (magic {header.magic}, {header.size_in_bytes} bytes)"
        )
    yield from iter_payload(header, records_payload(batch, header, position, size_max))


def iter_payload(
    header: BatchHeader, payload: Any, headers_max: int = UNLIMITED
) -> Iterator[Record]:
    """Yield the records in `payload`, which `records_payload` returned for `header`.

    Keys and values are slices of it: bytes of bytes, views of a memoryview.

    ProtocolError for a record with more than `headers_max` headers, before any of them is read.
    """
    position = 0
    base_offset = header.base_offset
    log_append = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    for _ in range(header.records_count):
        length, position = _read_varint(payload, position)
        end = position + length
        if length < 0 or end > len(payload):
            raise ProtocolError(f"record of {length} bytes, {len(payload) - position} left")
        delta, offset_delta, key, value, headers, stop = _read_record(
            payload, position, headers_max
        )
        if stop != end:
            raise ProtocolError(f"record of {length} bytes ends {stop - end:+} bytes from there")
        timestamp = header.base_timestamp + delta if log_append is None else log_append
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
        position = end
    if position != len(payload):
        raise ProtocolError(
            f"{len(payload) - position} bytes left after {header.records_count} records"
        )


_RecordFields = tuple[
    int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int
]


def _read_record(data: bytes, position: int, headers_max: int) -> _RecordFields:
    """Read timestamp delta, offset delta, key, value, headers, and the next position."""
    delta, position = _read_varint(data, position + 1, 64)  # +1: attributes, unused
    offset_delta, position = _read_varint(data, position)
    key, position = _read_nullable(data, position)
    value, position = _read_nullable(data, position)
    count, position = _read_varint(data, position)
    if not count:
        return delta, offset_delta, key, value, (), position
    if not 0 < count <= len(data) - position:  # a header takes two bytes at least
        raise ProtocolError(f"record with {count} headers")
    if count > headers_max:
        raise ProtocolError(f"record with {count} headers, at most {headers_max} are allowed")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_nullable(data, position)
        if name is None:
            raise ProtocolError("record header without a key")
        header_value, position = _read_nullable(data, position)
        headers.append((str(name, "utf-8", "surrogateescape"), header_value))
    return delta, offset_delta, key, value, tuple(headers), position


def _read_nullable(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"field of {length} bytes")
        return None, position
    end = position + length
    if end > len(data):
        raise ProtocolError(f"field of {length} bytes, {len(data) - position} left")
    return data[position:end], end


def _read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """Read a zigzag varint of at most `bits` bits, and the position after it."""
    try:
        byte = data[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        value = byte & 0x7F
        shift = 7
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise ProtocolError(f"varint longer than {bits} bits")
    except IndexError:
        raise ProtocolError("varint ends early") from None
    if value >> bits:
        raise ProtocolError(f"varint longer than {bits} bits")
    return (value >> 1) ^ -(value & 1), position


def _append_varint(out: bytearray, value: int) -> None:
    if 0 <= value < 64:  # most of them
        out.append(value << 1)
        return
    value = (value << 1) if value >= 0 else ((-value << 1) - 1)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _append_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
    else:
        _append_varint(out, len(value))
        out += value


def _append_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)  # attributes, unused
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_nullable(body, record.key)
    _append_nullable(body, record.value)
    _append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_nullable(body, name.encode("utf-8", "surrogateescape"))
        _append_nullable(body, value)
    _append_varint(out, len(body))
    out += body


# -- building --------------------------------------------------------------------------------------


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Build a batch of at least one record, byte for byte as Kafka's own builder writes it.

    Offsets ascend from `base_offset` or more. With LOG_APPEND_TIME the largest timestamp applies to
    all records.
    """
    listed = list(records)
    assert listed, "a batch has at least one record"
    assert listed[0].offset >= base_offset
    base_timestamp = listed[0].timestamp
    payload = bytearray()
    for record in listed:
        _append_record(
            payload, record, record.timestamp - base_timestamp, record.offset - base_offset
        )
    attributes = int(codec)
    attributes |= TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    header = _new(
        BatchHeader,
        (
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            listed[-1].offset - base_offset,
            base_timestamp,
            max([record.timestamp for record in listed]),
            producer_id,
            producer_epoch,
            base_sequence,
            len(listed),
        ),
    )
    return assemble(header, compress(codec, payload) if codec else payload)


def build_own_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    base_offset: int,
    leader_epoch: int,
    codec: int,
) -> tuple[BatchHeader, bytes]:
    """Build a batch of a broker's own keys and values, all of one time: the same bytes as by
    `build_batch`, in less time. Return its header, too, without length and CRC."""
    parts: list[bytes] = []  # joined once: each of thousands would copy what is before it
    for delta, (key, value) in enumerate(records):
        # attributes and the delta of the timestamp are 0, and so is the number of headers
        record = b"\0\0" + _varint(delta) + _nullable(key) + _nullable(value) + b"\0"
        parts += (_varint(len(record)), record)
    payload = b"".join(parts)
    count = len(records)
    header = _new(
        BatchHeader,
        (
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            codec,
            count - 1,
            timestamp,
            timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            count,
        ),
    )
    return header, assemble(header, compress(codec, payload) if codec else payload)


@lru_cache(maxsize=1024)
def _varint(value: int) -> bytes:
    out = bytearray()
    _append_varint(out, value)
    return bytes(out)


def _nullable(value: bytes | None) -> bytes:
    return b"\1" if value is None else _varint(len(value)) + value


def with_codec(header: BatchHeader, codec: int, payload: Buffer, level: int | None = None) -> bytes:
    """Build the batch of `header` and the uncompressed `payload`, compressed by another codec."""
    changed = header._replace(attributes=(header.attributes & ~CODEC_MASK) | codec)
    return assemble(changed, compress(codec, payload, level))


# -- control records -------------------------------------------------------------------------------


def build_end_transaction_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
) -> bytes:
    """Build a batch with the COMMIT or ABORT marker of a transaction."""
    key = _CONTROL_KEY.pack(0, control_type)
    value = _END_TXN_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: Record) -> int:
    """Read the type in a control record's key: a `ControlType`, or an unknown number."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise ProtocolError("control record without a type")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise ProtocolError(f"control record key version {version}")
    return int(kind)


def coordinator_epoch(record: Record) -> int:
    """Read the coordinator epoch in the value of a COMMIT or ABORT marker."""
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise ProtocolError("end transaction marker without a coordinator epoch")
    version, epoch = _END_TXN_VALUE.unpack_from(record.value)
    if version < 0:
        raise ProtocolError(f"end transaction marker version {version}")
    return int(epoch)
