"""XXH3, the hash of 64 bits with which Kafka 4.1 and later tells that a group's topics changed.

Pure Python with the default secret and seed 0, for inputs of 8 bytes and more: a group's topics
change seldom, so its speed matters little and a dependency would not pay. The names are those of
the algorithm's specification.
"""

from __future__ import annotations

from struct import unpack_from

__all__ = ["xxh3_64"]

_MASK = (1 << 64) - 1
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_STRIPES_OF_BLOCK = 16


def xxh3_64(data: bytes) -> int:
    """Hash at least 8 bytes to an unsigned number of 64 bits."""
    size = len(data)
    assert size >= 8, "shorter inputs have other rules, and Kafka has none"
    if size == 8:
        return _hash_8(data)
    if size <= 16:
        low = _read(data, 0) ^ _read(_SECRET, 24) ^ _read(_SECRET, 32)
        high = _read(data, size - 8) ^ _read(_SECRET, 40) ^ _read(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high))
    if size <= 128:
        total = size * _PRIME64[0]
        for n in range((size - 1) // 32 + 1):
            total += _mix(data, 16 * n, 32 * n) + _mix(data, size - 16 * (n + 1), 32 * n + 16)
        return _avalanche(total)
    if size <= 240:
        total = size * _PRIME64[0] + sum(_mix(data, 16 * n, 16 * n) for n in range(8))
        total = _avalanche(total)
        total += sum(_mix(data, 16 * n, 16 * (n - 8) + 3) for n in range(8, size // 16))
        return _avalanche(total + _mix(data, size - 16, 119))
    return _hash_long(data)


def _hash_8(data: bytes) -> int:
    first: int
    last: int
    first, last = unpack_from("<2I", data)
    value = (last + (first << 32)) ^ _read(_SECRET, 8) ^ _read(_SECRET, 16)
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * 0x9FB21C651E98DF25 & _MASK
    value ^= (value >> 35) + 8
    value = value * 0x9FB21C651E98DF25 & _MASK
    return value ^ (value >> 28)


def _hash_long(data: bytes) -> int:
    size = len(data)
    lanes = [_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]]
    for stripe in range((size - 1) // _STRIPE):
        place = stripe % _STRIPES_OF_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, place * 8)
        if place == _STRIPES_OF_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - _STRIPE, 121)
    total = size * _PRIME64[0]
    for n in range(4):
        low = lanes[2 * n] ^ _read(_SECRET, 11 + 16 * n)
        total += _fold(low, lanes[2 * n + 1] ^ _read(_SECRET, 19 + 16 * n))
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    words = unpack_from("<8Q", data, at)
    secret = unpack_from("<8Q", _SECRET, secret_at)
    for n in range(8):
        key = words[n] ^ secret[n]
        lanes[n ^ 1] = (lanes[n ^ 1] + words[n]) & _MASK
        lanes[n] = (lanes[n] + (key & 0xFFFFFFFF) * (key >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for n, secret in enumerate(unpack_from("<8Q", _SECRET, 128)):
        lane = lanes[n] ^ (lanes[n] >> 47) ^ secret
        lanes[n] = lane * _PRIME32[0] & _MASK


def _mix(data: bytes, at: int, secret_at: int) -> int:
    return _fold(
        _read(data, at) ^ _read(_SECRET, secret_at),
        _read(data, at + 8) ^ _read(_SECRET, secret_at + 8),
    )


def _fold(one: int, other: int) -> int:
    product = one * other
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * 0x165667919E3779F9 & _MASK
    return value ^ (value >> 32)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _read(data: bytes, at: int) -> int:
    number: int = unpack_from("<Q", data, at)[0]
    return number
