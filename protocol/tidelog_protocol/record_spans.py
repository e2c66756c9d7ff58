"""The positions of records in a batch's payload, for compaction, which drops some and keeps the
bytes of the others.

Far cheaper than `records.iter_payload`: values and headers are skipped. Pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import read_varint, write_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

_NULL = 1  # zigzag of -1
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class RecordSpan(NamedTuple):
    """One record of a payload; positions are bytes in it."""

    offset_delta: int
    timestamp_delta: int  # ms
    key: bytes | None
    has_value: bool
    start: int  # of the record's length
    tail: int  # after the timestamp delta: nothing from here on depends on the batch's timestamp
    end: int


def record_spans(payload: bytes, count: int) -> list[RecordSpan]:
    """Return the spans of `count` records, which must fill the uncompressed payload.

    ProtocolError if anything does not fit.
    """
    spans = []
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = _varint(payload, position)
            end = position + length
            timestamp_delta, tail = _varint(payload, position + 1)  # +1: attributes, unused
            offset_delta, position = _varint(payload, tail)
            key = None
            if payload[position] == _NULL:
                position += 1
            else:
                length, position = _varint(payload, position)
                if length < 0:
                    raise _misfit(start)
                key = payload[position : position + length]
                position += length
            has_value = payload[position] != _NULL
            if position >= end or end > len(payload):
                raise _misfit(start)
            spans.append(
                _new(RecordSpan, (offset_delta, timestamp_delta, key, has_value, start, tail, end))
            )
            position = end
    except IndexError:
        raise _misfit(position) from None
    if position != len(payload):
        raise _misfit(position)
    return spans


def _misfit(position: int) -> ProtocolError:
    return ProtocolError(f"the record at {position} does not fit its batch")


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    byte = payload[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return read_varint(payload, position)


def join_spans(payload: bytes, spans: Sequence[RecordSpan], deltas: Sequence[int]) -> bytes:
    """Build a payload of some of the records, each with its new timestamp delta."""
    parts: list[bytes] = []
    for span, delta in zip(spans, deltas, strict=True):
        if delta == span.timestamp_delta:
            parts.append(payload[span.start : span.end])
        else:
            body = b"\0" + write_varint(delta) + payload[span.tail : span.end]
            parts += (write_varint(len(body)), body)
    return b"".join(parts)
