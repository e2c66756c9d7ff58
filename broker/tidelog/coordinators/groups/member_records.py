"""Records of consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) in
`__consumer_offsets`, from and to Kafka's bytes.

A key is an int16 record type and its body, a value an int16 version and its body.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import (
    consumer_records,
    share_group_records,
    streams_group_records,
)

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Record", "decode", "encode", "group_type", "removes_group"]

_VERSION = Struct(">h")
_KINDS = {
    "consumer": consumer_records.TABLES,
    "share": share_group_records.TABLES,
    "streams": streams_group_records.TABLES,
}
_TABLES = {number: table for tables in _KINDS.values() for number, table in tables.items()}
_TYPES = {key: number for number, (key, _) in _TABLES.items()}
_KIND_OF = {key: kind for kind, tables in _KINDS.items() for key, _ in tables.values()}


class Record(NamedTuple):
    """A key and a value of the tables of group records; None removes."""

    key: Any
    value: Any | None = None


_GROUP_KEYS = (
    consumer_records.ConsumerGroupMetadataKey,
    share_group_records.ShareGroupMetadataKey,
    streams_group_records.StreamsGroupMetadataKey,
)


def group_type(record: Record) -> str:
    """Return the type of a record's group."""
    return _KIND_OF[type(record.key)]


def removes_group(record: Record) -> bool:
    """Return whether a record is the tombstone of a whole group."""
    return record.value is None and isinstance(record.key, _GROUP_KEYS)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return the bytes of a record."""
    key = _VERSION.pack(_TYPES[type(record.key)]) + codec(type(record.key), 0).encode(record.key)
    if record.value is None:
        return key, None
    return key, _VERSION.pack(0) + codec(type(record.value), 0).encode(record.value)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Return a record, None for one of another type; ProtocolError if it is corrupt."""
    tables = _TABLES.get(int.from_bytes(key[:2], "big", signed=True)) if len(key) > 1 else None
    if tables is None:
        return None
    decoded_key = codec(tables[0], 0).decode(key, _VERSION.size)
    if value is None:
        return Record(decoded_key)
    if value[: _VERSION.size] != _VERSION.pack(0):
        raise ProtocolError(f"a {tables[1].__name__} with an unknown version")
    return Record(decoded_key, codec(tables[1], 0).decode(value, _VERSION.size))
