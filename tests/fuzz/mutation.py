"""Changes bytes: the usual ways, and those that checksums and lengths would hide."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from fuzz.oracles import INPUT_BYTES_MAX
from tidelog_protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER_BYTES = 61  # of a record batch
_EDGES = (0, 1, -1, 2, 127, 128, 255, 1 << 15, (1 << 15) - 1, 1 << 31, (1 << 31) - 1, (1 << 63) - 1)
_TEXTS = (b"-1", b"0", b"9" * 40, b"\n", b" ", b"nan", b"\xff", b"\xd9\xa3", b"1e400", b"[" * 5000)


def mutated(data: bytes, seed: int) -> bytes:
    """Return a changed input, of at most `INPUT_BYTES_MAX`."""
    rng = random.Random(seed)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        rng.choice(_WAYS)(changed, rng)
    return bytes(changed[:INPUT_BYTES_MAX])


def _place(data: bytearray, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _number(data: bytearray, rng: random.Random) -> None:
    """Write a number at the edge of a type, in its width."""
    width = rng.choice((1, 2, 4, 8))
    value = (rng.choice(_EDGES) + rng.choice((0, 0, 1, -1))) & ((1 << 8 * width) - 1)
    at = _place(data, rng)
    data[at : at + width] = value.to_bytes(width, "big")


def _count(data: bytearray, rng: random.Random) -> None:
    """Add a little to a number that is there."""
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        (value,) = struct.unpack_from(">i", data, at)
        value += rng.choice((-1, 1, 1000))
        data[at : at + 4] = struct.pack(">I", value & 0xFFFFFFFF)


def _varint(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at : at + 1] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff" * 12))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 2, 4, 8, 61))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = rng.choice((rng.randbytes(rng.randrange(1, 9)), bytes(8), *_TEXTS))


def _copy(data: bytearray, rng: random.Random) -> None:
    first, last = sorted((_place(data, rng), _place(data, rng)))
    at = _place(data, rng)
    data[at:at] = data[first : min(last, first + 4096)]


_WAYS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_flip, _flip, _set, _set, _number, _number, _count),
    *(_varint, _cut, _remove, _insert, _copy),
)


def with_checksums(data: bytes) -> bytes:
    """Give the record batches of a file right checksums, so that changes get behind them."""
    changed, position = bytearray(data), 0
    while position + HEADER_BYTES <= len(changed):
        (length,) = struct.unpack_from(">i", changed, position + 8)
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(changed):
            break
        struct.pack_into(">I", changed, position + 17, crc32c(changed[position + 21 : end], 0))
        position = end
    return bytes(changed)
