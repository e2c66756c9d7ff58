"""Hand-written encoders of Produce and Fetch responses without errors, the two hot ones.

A compiled encoder needs objects that are built only for it. These functions pack each partition as
soon as its fields are known, which halves the cost of a response. They cover flexible versions and
the usual response only: no error, message, leader or tagged field. The message tables cover
everything else, and tests compare the two. Callers pass strings that fit their length field.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog_protocol.primitives import UVARINTS, write_uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog_protocol.schema import Buffer

__all__ = [
    "FETCH_FLEXIBLE_FROM",
    "PRODUCE_FLEXIBLE_FROM",
    "fetch_body",
    "fetched",
    "produce_body",
    "produced",
    "produced_fields",
    "with_throttle_time",
]

PRODUCE_FLEXIBLE_FROM = 9
FETCH_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13  # in both APIs (KIP-516)
_COPIED_BYTES_MAX = 512  # records up to this size are copied: a separate part costs more

# Index, error code, base offset, log append time, log start offset; no record errors (an empty
# array), no message (null), no tagged fields.
_PRODUCED = Struct(">ihqqqBxx")
_pack_produced = _PRODUCED.pack
_PRODUCE_END = bytes(5)  # no throttle time, no tagged fields
_pack_time = Struct(">i").pack

_pack_fetch_start = Struct(">ihi").pack  # throttle time, error code, session id
# Index, error code, high watermark, last stable offset, log start offset, aborted transactions (0
# for null, 1 for an empty array), preferred read replica.
_pack_fetched = Struct(">ihqqqBi").pack
_NO_REPLICA = -1


def produced(index: int, base_offset: int, log_append_time: int, log_start_offset: int) -> bytes:
    """Encode one partition whose batch was appended, or was a duplicate, for `produce_body`."""
    return _pack_produced(index, 0, base_offset, log_append_time, log_start_offset, 1)


def produced_fields(partition: bytes) -> tuple[int, int, int, int]:
    """Return the arguments that `produced` received."""
    index, _, *rest, _ = _PRODUCED.unpack(partition)
    return (index, *rest)


def produce_body(
    version: int, topics: Sequence[tuple[str, bytes, Sequence[bytes]]]
) -> list[Buffer]:
    """Encode a ProduceResponse from (name, id, `produced` partitions) of each topic."""
    pieces = [write_uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        pieces.append(_topic(version, name, topic_id, partitions))
        pieces += partitions
        pieces.append(b"\0")
    pieces.append(_PRODUCE_END)
    return [b"".join(pieces)]


def fetched(
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    *,
    is_committed: bool,
    size: int,
) -> bytes:
    """Encode one partition, without its `size` bytes of records, for `fetch_body`.

    `is_committed`: the reader is read_committed, and none of its records were aborted.
    """
    length = size + 1
    return _pack_fetched(
        index, 0, high_watermark, last_stable_offset, log_start_offset, is_committed, _NO_REPLICA
    ) + (UVARINTS[length] if length < 128 else write_uvarint(length))


def fetch_body(
    version: int,
    session_id: int,
    topics: Sequence[tuple[str, bytes, Sequence[tuple[bytes, Sequence[Buffer], int]]]],
) -> list[Buffer]:
    """Encode a FetchResponse from (name, id, partitions) of each topic. A partition is the result
    of `fetched`, its records, which are not copied, and their size."""
    parts: list[Buffer] = []
    pieces: list[Buffer] = [_pack_fetch_start(0, 0, session_id), write_uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        pieces.append(_topic(version, name, topic_id, partitions))
        for start, records, size in partitions:
            pieces.append(start)
            if size > _COPIED_BYTES_MAX:
                parts.append(b"".join(pieces))
                parts += records
                pieces = [b"\0"]
            else:
                pieces += records
                pieces.append(b"\0")
        pieces.append(b"\0")
    pieces.append(b"\0")
    parts.append(b"".join(pieces))
    return parts


def with_throttle_time(body: Sequence[Buffer], time_ms: int, *, is_last: bool) -> list[Buffer]:
    """Return an encoded body with a throttle time, which comes first, or last as in that of
    `produce_body`."""
    time = _pack_time(time_ms)
    if is_last:
        return [bytes(body[0][: -len(_PRODUCE_END)]) + time + b"\0"]
    return [time + bytes(body[0][len(time) :]), *body[1:]]


def _topic(version: int, name: str, topic_id: bytes, partitions: Sequence[object]) -> bytes:
    """Encode the fields before the partitions of a topic."""
    count = len(partitions) + 1
    array = UVARINTS[count] if count < 128 else write_uvarint(count)
    if version >= _TOPIC_IDS_FROM:
        return topic_id + array
    encoded = name.encode()
    length = len(encoded) + 1
    return (UVARINTS[length] if length < 128 else write_uvarint(length)) + encoded + array
