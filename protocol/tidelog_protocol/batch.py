"""Record batch headers, format version 2 (KIP-98): view, iteration, checksum, changes in place.

The hot path (Produce, Fetch, followers) uses only these functions. They work in place on a
memoryview over the receive buffer or a segment, cost well under a microsecond, and never look at
records (`records.py` does, and re-exports these names). The caller owns the buffer; nothing here
keeps a reference to it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.checksum import crc32c
from tidelog_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Buffer = bytes | bytearray | memoryview
    HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

HEADER_BYTES = 61
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

LENGTH_OVERHEAD = 12  # base offset and length itself, which the length does not count
LENGTH_FIELD = slice(8, LENGTH_OVERHEAD)
_EPOCH_POSITION = 12
MAGIC_POSITION = 16
_CRC_POSITION = 17
CRC_START = 21  # the checksum covers everything from the attributes on
ATTRIBUTES_LOW_POSITION = 22  # of the low byte, which has all the bits below
_MAX_TIMESTAMP_POSITION = 35
_AFTER_EPOCH = 3  # index in BatchHeader of the first field after the leader epoch
_AFTER_CRC = 5  # of the first one after the CRC

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_UNCHECKED_HEADER = Struct(">qiibI")  # up to the CRC
_CHECKED_HEADER = Struct(">hiqqqhii")  # the rest, which it covers
SHORT_HEADER = Struct(">qi11xi")  # base offset, batch length, last offset delta
LENGTH_MAGIC_AND_ATTRIBUTES = Struct(">8xi4xb4xh")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_UINT32 = Struct(">I")

_PLACE = Struct(">qii")

_unpack_header = _HEADER.unpack_from
_pack_int64 = _INT64.pack_into
_pack_int32 = _INT32.pack_into
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class BatchHeader(NamedTuple):
    """The fields of a batch's 61-byte header, in wire order."""

    base_offset: int
    batch_length: int  # bytes after this field
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int  # ms; the delete horizon where that bit is set
    max_timestamp: int  # ms
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record, also when compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2147483647 to 0. -1 if there is none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """Attribute bits 0-2: a `Codec`, or a number Kafka does not know."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction (its markers included)."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Holds a marker for brokers and consumers, no application records."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """`base_timestamp` is the time from which compaction may drop tombstones and markers."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Written by an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID


# -- headers: the hot path -----------------------------------------------------------------------


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the only check is that its 61 bytes are there."""
    if len(buffer) - position < HEADER_BYTES:
        raise ProtocolError(f"{len(buffer) - position} bytes are too few for a record batch header")
    return _new(BatchHeader, _unpack_header(buffer, position))


def read_magic(buffer: Buffer, position: int = 0) -> int:
    """Read the format version, in the same place in every format; -1 if the buffer is shorter."""
    if len(buffer) - position <= MAGIC_POSITION:
        return -1
    magic = buffer[position + MAGIC_POSITION]
    return magic if magic < 128 else magic - 256


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; stop before a torn one at the end.

    ProtocolError at something that cannot be the start of a version 2 batch. CRCs are not checked.
    """
    position = 0
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header: BatchHeader = _new(BatchHeader, _unpack_header(buffer, position))
        if header.magic != MAGIC:
            raise ProtocolError(f"record batch magic {header.magic} at {position}")
        size = header.batch_length + LENGTH_OVERHEAD
        if size < HEADER_BYTES:
            raise ProtocolError(f"record batch of {size} bytes at {position}")
        if size > end - position:
            return
        yield position, header
        position += size


def crc_is_valid(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Return whether the whole batch at `position` matches its CRC-32C. Copies nothing."""
    end = position + header.batch_length + LENGTH_OVERHEAD
    return crc32c(memoryview(buffer)[position + CRC_START : end], 0) == header.crc


def set_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write both in place; the CRC does not cover them, so it stays valid."""
    _pack_int64(buffer, position, base_offset)
    _pack_int32(buffer, position + _EPOCH_POSITION, leader_epoch)


header_fields: Callable[[Buffer], HeaderFields] = _HEADER.unpack_from
"""The fields of `BatchHeader` as a bare tuple; 61 bytes must be there."""

write_place: Callable[[bytearray | memoryview, int, int, int, int], None] = _PLACE.pack_into
"""`set_offset_and_epoch` in one: buffer, position, base offset, the batch's own length, epoch."""


def placed(header: BatchHeader, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Return the header as `set_offset_and_epoch` leaves it; `_replace` is four times slower."""
    return _new(
        BatchHeader, (base_offset, header.batch_length, leader_epoch, *header[_AFTER_EPOCH:])
    )


def set_timestamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    timestamp_type: int,
    max_timestamp: int,
) -> BatchHeader:
    """Stamp a whole batch in place: timestamp type bit, max timestamp and a new CRC.

    With LOG_APPEND_TIME readers give each record the max timestamp; base timestamp and deltas stay
    as they came.
    """
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buffer, position + CRC_START, attributes)
    _pack_int64(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    end = position + header.batch_length + LENGTH_OVERHEAD
    crc = crc32c(memoryview(buffer)[position + CRC_START : end], 0)
    _UINT32.pack_into(buffer, position + _CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def assemble(header: BatchHeader, compressed_payload: Buffer) -> bytes:
    """Build a batch of `header` and payload, with the right length and CRC."""
    length = HEADER_BYTES - LENGTH_OVERHEAD + len(compressed_payload)
    checked = _CHECKED_HEADER.pack(*header[_AFTER_CRC:])
    crc = crc32c(compressed_payload, crc32c(checked, 0))
    start = _UNCHECKED_HEADER.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc)
    return b"".join((start, checked, compressed_payload))
