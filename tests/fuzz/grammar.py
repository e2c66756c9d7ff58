"""Messages from the tables, with lies in them: lengths, counts, tags, strings.

It has its own writer of Kafka's wire format, as a codec writes no lies.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tidelog_protocol.compiler import is_flexible
from tidelog_protocol.records import Record, build_batch
from tidelog_protocol.schema import Field

if TYPE_CHECKING:
    import random

    from tidelog_protocol.schema import Message, Struct

LIES = 0.02  # how often a length, count or tag lies
_WIDTHS = {
    "boolean": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
}
_NUMBERS = (0, 0, 0, 1, 1, 2, 3, 5, 10, 100, 1000, 30_000, -1, -1, -2)
_FEW = frozenset({"num_partitions", "count"})  # partitions: each takes files
_NAMES = ("t", "t", "t", "u", "g", "g", "tx", "m", "", "a" * 249, "é", "\0", "__consumer_offsets")
_RESERVED = ("t-0", ".", "..", "a/b", "consumer", "range", "uniform", "1", "-1", "9" * 30)
_TEXTS = (b"", b"x", bytes(32), b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff")


class Writer:
    """Writes one message of a version; `rng` decides on values and lies."""

    def __init__(self, table: type[Message], version: int, rng: random.Random) -> None:
        self._rng = rng
        self._version = version
        self._flexible = is_flexible(table, version)
        self._out = bytearray()
        self._table = table
        self._is_liar = rng.random() < 0.7  # else all is as the tables say

    def write(self) -> bytes:
        """Return the body."""
        self._struct(self._table)
        return bytes(self._out)

    def _lies(self) -> bool:
        return self._is_liar and self._rng.random() < LIES

    def _struct(self, table: type[Struct]) -> None:
        fields = [field for field in table.FIELDS if field.in_version(self._version)]
        for field in fields:
            if field.tag is None:
                self._field(field)
        if self._flexible:
            self._tags([field for field in fields if field.tag is not None])

    def _tags(self, fields: list[Field]) -> None:
        rng = self._rng
        chosen = [(field.tag, self._apart(field)) for field in fields if rng.random() < 0.5]
        if self._lies():
            chosen.append((rng.choice((0, 1, 99, 1 << 20)), rng.randbytes(rng.randrange(6))))
        if self._lies():
            rng.shuffle(chosen)
        self._unsigned(len(chosen) + (rng.choice((1, 1 << 20)) if self._lies() else 0))
        for tag, value in chosen:
            self._unsigned(tag)
            self._unsigned(self._length(len(value)))
            self._out += value

    def _apart(self, field: Field) -> bytes:
        """A tagged field's own bytes."""
        out, self._out = self._out, bytearray()
        self._field(field)
        value, self._out = bytes(self._out), out
        return value

    def _length(self, length: int) -> int:
        if not self._lies():
            return length
        return self._rng.choice((0, 1, length + 1, max(length - 1, 0), 1 << 20, (1 << 31) - 1))

    def _field(self, field: Field) -> None:
        kind, rng = field.kind, self._rng
        is_null = field.nullable_in(self._version) and rng.random() < 0.2
        if kind == "array":
            self._array(field, is_null=is_null)
        elif kind == "struct":
            if field.nullable_in(self._version):
                self._out.append(0xFF if is_null else 1)
            if not is_null:
                assert isinstance(field.element, type)
                self._struct(field.element)
        elif kind in ("string", "bytes", "records"):
            value = None if is_null or self._lies() else self._bytes(field)
            self._sized(kind, value)
        elif kind == "uuid":
            self._out += rng.choice((bytes(16), bytes(16), b"\xff" * 16, rng.randbytes(16)))
        else:
            self._number(kind, field.name)

    def _array(self, field: Field, *, is_null: bool) -> None:
        rng = self._rng
        count = rng.choice((0, 1, 1, 1, 2, 3))
        if self._lies():
            count = rng.choice((50, 300))
        self._count(-1 if is_null else self._length(count))
        for _ in range(0 if is_null else count):
            if isinstance(field.element, str):
                inner = Field(field.element, "0+", None)
                inner.name = field.name
                self._field(inner)
            else:
                assert field.element is not None
                self._struct(field.element)

    def _bytes(self, field: Field) -> bytes:
        rng = self._rng
        if field.kind == "string":
            text = rng.choice(_RESERVED if rng.random() < 0.1 else _NAMES)
            return b"\xff\xfe" if self._lies() else text.encode()
        if field.kind == "records" or (field.kind == "bytes" and rng.random() < 0.1):
            return _records(rng)
        return rng.choice(_TEXTS)

    def _sized(self, kind: str, value: bytes | None) -> None:
        length = -1 if value is None else self._length(len(value))
        if self._flexible:
            self._unsigned(length + 1)
        elif kind == "string":
            self._out += struct.pack(">H", length & 0xFFFF)
        else:
            self._out += struct.pack(">I", length & 0xFFFFFFFF)
        self._out += value or b""

    def _count(self, count: int) -> None:
        if self._flexible:
            self._unsigned(count + 1)
        else:
            self._out += struct.pack(">I", count & 0xFFFFFFFF)

    def _number(self, kind: str, name: str) -> None:
        rng, width = self._rng, _WIDTHS[kind]
        value: Any = rng.choice(_NUMBERS)
        if name in _FEW:
            value = rng.choice((1, 1, 2, 0, -1))
        elif self._lies():
            value = rng.choice(((1 << 8 * width - 1) - 1, 1 << 8 * width - 1, rng.getrandbits(63)))
        if kind == "float64" and value < 1 << 20:
            self._out += struct.pack(">d", value)
            return
        self._out += (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")

    def _unsigned(self, value: int) -> None:
        value &= 0xFFFFFFFF
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)


def _records(rng: random.Random) -> bytes:
    """A batch, mostly a good one."""
    records = [
        Record(n, 1_700_000_000_000, b"k%d" % n, b"v" * 9) for n in range(rng.randrange(1, 4))
    ]
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options = {"producer_id": 1000, "producer_epoch": 0, "base_sequence": 0}
        options["transactional"] = rng.random() < 0.5
    batch = bytearray(build_batch(records, codec=rng.choice((0, 0, 1, 2, 3, 4)), **options))
    if rng.random() < 0.2:
        batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
    return bytes(batch)
