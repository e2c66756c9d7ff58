"""Reads what clients push: OpenTelemetry's MetricsData v1, in protobuf (KIP-714).

Only what an endpoint for Prometheus can show is read: gauges and sums of numbers, with their
attributes. Kafka's Java client and librdkafka push nothing else. A decoder of these few messages is
smaller than protobuf's library, whose version users' own programs choose.

Input is not trusted: each length is checked, the depth is fixed, and points, labels and texts have
limits. What is above them is counted and left out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.compression import decompress
from tidelog_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.metrics.meters import Labels

__all__ = ["Point", "Push", "decode"]

POINTS_MAX = 5000
LABELS_MAX = 16
TEXT_CHARACTERS_MAX = 128

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS_MAX = 64
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")
_DELTA = 1  # AggregationTemporality


class Point(NamedTuple):
    """One number of a metric. The name of a counter is without `_total`. `adds`: it is what came
    since the last push."""

    name: str
    is_counter: bool
    adds: bool
    labels: Labels
    value: float


class Push(NamedTuple):
    """The points of one push, and how many were left out."""

    points: list[Point]
    dropped: int


def decode(codec: int, data: bytes, size_max: int) -> Push:
    """Decompress and decode a push; ProtocolError if it is malformed or above `size_max` bytes."""
    reader = _Reader()
    reader.metrics_data(memoryview(decompress(codec, data, size_max)))
    return Push(reader.points, reader.dropped)


class _Reader:
    """Collects points, one method a message; the numbers of fields are those of its proto."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.dropped = 0

    def metrics_data(self, data: memoryview) -> None:
        for resource_metrics in _messages(data, 1):
            labels: dict[str, str] = {}
            for resource in _messages(resource_metrics, 1):
                _add_attributes(labels, resource, 1)
            for scope_metrics in _messages(resource_metrics, 2):
                for metric in _messages(scope_metrics, 2):
                    self._metric(metric, labels)

    def _metric(self, data: memoryview, labels: Mapping[str, str]) -> None:
        name = ""
        for number, value in _fields(data):
            if number == 1:
                name = prometheus_name(_text(value))
            elif number == 5:  # Gauge
                self._points(name, value, labels, is_counter=False, adds=False)
            elif number == 7:  # Sum
                kinds = {field: kind for field, kind in _fields(value) if field in (2, 3)}
                is_counter, adds = bool(kinds.get(3)), kinds.get(2) == _DELTA
                shown = name.removesuffix("_total") if is_counter else name
                self._points(shown, value, labels, is_counter=is_counter, adds=adds)

    def _points(
        self,
        name: str,
        data: memoryview,
        labels: Mapping[str, str],
        *,
        is_counter: bool,
        adds: bool,
    ) -> None:
        for point in _messages(data, 1):
            value: float | None = None
            own = dict(labels)
            for number, field in _fields(point):
                if number == 4:
                    (value,) = _DOUBLE.unpack(_eight(field))
                elif number == 6:
                    (value,) = _LONG.unpack(_eight(field))
                elif number == 7:
                    _add_attribute(own, field)
            if not name or value is None or len(self.points) >= POINTS_MAX:
                self.dropped += 1
            else:
                self.points.append(
                    Point(
                        prometheus_name(name), is_counter, adds, tuple(sorted(own.items())), value
                    )
                )


def prometheus_name(name: str) -> str:
    """Return a name as Prometheus allows it: letters, digits and underscores, no digit first."""
    made = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
    return f"_{made}" if made[:1].isdigit() else made


def _add_attributes(labels: dict[str, str], data: memoryview, field: int) -> None:
    for attribute in _messages(data, field):
        _add_attribute(labels, attribute)


def _add_attribute(labels: dict[str, str], data: Any) -> None:
    """Add one KeyValue; above the limit it is left out."""
    key, text = "", ""
    for number, value in _fields(data):
        if number == 1:
            key = prometheus_name(_text(value))
        elif number == 2:
            text = _any_value(value)
    if key and (key in labels or len(labels) < LABELS_MAX):
        labels[key] = text


def _any_value(data: Any) -> str:
    for number, value in _fields(data):
        if number == 1:
            return _text(value)
        if number == 2:
            return "true" if value else "false"
        if number == 3:
            return str(_signed(value))
        if number == 4:
            return repr(_DOUBLE.unpack(_eight(value))[0])
    return ""


def _text(value: Any) -> str:
    if not isinstance(value, memoryview):
        raise ProtocolError("a text is no bytes")
    # Longer texts are cut before they are decoded; a character has at most four bytes.
    text = bytes(value[: 4 * TEXT_CHARACTERS_MAX]).decode(errors="replace")
    return text[:TEXT_CHARACTERS_MAX]


def _eight(value: Any) -> memoryview:
    if not isinstance(value, memoryview) or len(value) != 8:
        raise ProtocolError("a number is not of eight bytes")
    return value


def _signed(value: Any) -> int:
    if not isinstance(value, int):
        raise ProtocolError("bytes where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def _messages(data: Any, field: int) -> Iterator[Any]:
    """Yield the messages of a repeated field."""
    for number, value in _fields(data):
        if number == field:
            yield value


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message: an int for a varint, else its bytes."""
    if not isinstance(data, memoryview):
        raise ProtocolError("a number where a message belongs")
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind, number = tag & 7, tag >> 3
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ProtocolError(f"protobuf has no wire type {kind}")
        if size > end - position:
            raise ProtocolError(f"a field of {size} bytes, {end - position} left")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a varint and the position behind it."""
    result = shift = 0
    while shift < _VARINT_BITS_MAX:
        if position >= len(data):
            raise ProtocolError("a varint ends early")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ProtocolError("a varint of more than ten bytes")
