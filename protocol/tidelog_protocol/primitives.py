"""Variable-length integers, tagged fields and topic ids, which `struct` lacks.

Readers take a buffer and a position and return the value and the next position. They raise
ProtocolError for an integer that is too long and IndexError at the buffer's end; compiled decoders
turn the latter into ProtocolError.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

from tidelog_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from tidelog_protocol.schema import Buffer

__all__ = [
    "SAFE_STRING_BYTES",
    "STRING_BYTES_MAX",
    "UNLIMITED",
    "UVARINTS",
    "ZERO_UUID",
    "continue_uvarint",
    "long_string",
    "read_uvarint",
    "read_varint",
    "skip_tagged_fields",
    "uuid_from_str",
    "uuid_to_str",
    "write_uvarint",
    "write_varint",
]

ZERO_UUID = bytes(16)
"""Kafka's "no id"."""

UVARINTS = tuple(bytes((value,)) for value in range(128))
"""Encodings of 0 to 127, the unsigned varints of one byte."""

STRING_BYTES_MAX = 32767
"""Limit of a string in all versions: Kafka refuses longer ones in compact fields too."""

SAFE_STRING_BYTES = STRING_BYTES_MAX // 3
"""A string read from fewer bytes can be written again: an invalid UTF-8 byte grows to three."""

UNLIMITED = (1 << 30) - 1  # of one digit in CPython, which is subtracted fastest
"""A budget of elements that no message uses up: each takes a byte at least."""

UVARINT_BITS_MAX = 32
VARINT_BITS_MAX = 64


def uuid_to_str(uuid: bytes) -> str:
    """Format 16 bytes as Kafka does: 22 characters of URL-safe base64."""
    return b2a_base64(uuid, newline=False)[:22].translate(_TO_URL).decode("ascii")


def uuid_from_str(text: str) -> bytes:
    """Parse the format of `uuid_to_str`; ValueError for anything else."""
    raw = text.encode("ascii", "replace")
    if len(raw) != 22:
        raise ValueError(f"not an id of 22 characters: {text!r}")
    if raw.translate(None, _URL_ALPHABET):
        raise ValueError(f"not URL-safe base64: {text!r}")
    uuid = a2b_base64(raw.translate(_FROM_URL) + b"==")
    if len(uuid) != 16:
        raise ValueError(f"not an id of 16 bytes: {text!r}")
    return uuid


_URL_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


def long_string(data: Buffer) -> str:
    """Read a string of `SAFE_STRING_BYTES` or more; ProtocolError if too long to write again."""
    text = str(data, "utf-8", "replace")
    if len(text.encode()) > STRING_BYTES_MAX:
        raise ProtocolError(f"a string of more than {STRING_BYTES_MAX} bytes")
    return text


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return continue_uvarint(buffer, position + 1, first)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Continue an unsigned varint whose first byte, 128 or more, stands before `position`."""
    value = first & 127
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= UVARINT_BITS_MAX:
            raise ProtocolError("unsigned varint of more than five bytes")
    if value >> UVARINT_BITS_MAX:
        raise ProtocolError("unsigned varint of more than 32 bits")
    return value, position


def write_uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return UVARINTS[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag varint of at most 64 bits: the varint and varlong of records."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift >= VARINT_BITS_MAX:
            raise ProtocolError("varint of more than ten bytes")
    if value >> VARINT_BITS_MAX:
        raise ProtocolError("varint of more than 64 bits")
    return (value >> 1) ^ -(value & 1), position


def write_varint(value: int) -> bytes:
    """Encode a zigzag varint (64 bits)."""
    return write_uvarint((value << 1) ^ (value >> 63))


def skip_tagged_fields(
    buffer: Buffer, position: int, count: int, left: int = UNLIMITED
) -> tuple[int, int]:
    """Skip unknown tagged fields; `count` is the first byte of their number.

    `position` is after that byte. Returns the position after the last field, and what is left of
    the budget; ProtocolError for more fields than `left`.
    """
    if count > 127:
        count, position = continue_uvarint(buffer, position, count)
    left -= count
    if left < 0:
        raise ProtocolError("too many tagged fields")
    size = len(buffer)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise ProtocolError("tagged field extends past the end")
    return position, left
