"""Writes OpenTelemetry's MetricsData v1 as clients do, for tests of the receiver."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """A number in protobuf's base 128."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | float) -> bytes:
    """One field: bytes and texts with their length, ints as varints, floats as doubles."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attributes(number: int, labels: dict[str, str]) -> bytes:
    """KeyValues with texts."""
    return b"".join(
        field(number, field(1, key) + field(2, field(1, text))) for key, text in labels.items()
    )


def gauge(name: str, value: float, **labels: str) -> bytes:
    """A gauge with one point."""
    point = field(3, 1) + field(4, value) + attributes(7, labels)
    return field(1, name) + field(3, "ms") + field(5, field(1, point))


def counter(name: str, value: float, *, delta: bool = True, **labels: str) -> bytes:
    """A monotonic sum with one point."""
    point = field(4, value) + attributes(7, labels)
    return field(1, name) + field(7, field(1, point) + field(2, 1 if delta else 2) + field(3, 1))


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    """MetricsData of one resource and scope."""
    scope = b"".join(field(2, metric) for metric in metrics)
    return field(1, field(1, attributes(1, resource)) + field(2, scope))
