"""Batches for cases: good ones, and good ones with bytes changed."""

from __future__ import annotations

import struct
import time
from typing import Any

import crc32c

from tidelog_protocol.records import Record, build_batch

TIME = 1_700_000_000_000
CRC_POSITION, CRC_START = 17, 21


def NOW() -> int:  # noqa: N802 - reads as a constant in cases
    """The wall clock in milliseconds."""
    return int(time.time() * 1000)


def records(count: int, *, timestamp: int = TIME, value: bytes = b"value") -> list[Record]:
    """Records k0, k1, ... with rising timestamps."""
    return [
        Record(index, timestamp + index, b"k%d" % index, value, (("h", b"x"),))
        for index in range(count)
    ]


RECORDS = [*records(2), Record(2, TIME + 2, None, b"no key", ())]


def batch(content: list[Record] | None = None, **fields: Any) -> bytes:
    """One batch as a client sends it."""
    return build_batch(records(3) if content is None else content, **fields)


def patched(data: bytes, position: int, change: bytes) -> bytes:
    """The batch with some bytes replaced; the CRC stays."""
    return data[:position] + change + data[position + len(change) :]


def resealed(data: bytes, position: int, change: bytes) -> bytes:
    """As `patched`, with the CRC computed anew."""
    changed = patched(data, position, change)
    return patched(changed, CRC_POSITION, struct.pack(">I", crc32c.crc32c(changed[CRC_START:])))
