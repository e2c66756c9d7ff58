"""Bytes that a hostile client sends: requests as wide as their limit, and record batches that take
more to read than to send.

`requests()` fills each array of each client's request; `batches()` has those of the records.
`hostile_floods.py` has more, and `bench_hostile.py` sends them.
"""

from __future__ import annotations

import gzip
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.network.request_limits import elements_max
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.batch import (
    CREATE_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    assemble,
)
from tidelog_protocol.compression import GZIP_MEMBERS_MAX, Codec, compress
from tidelog_protocol.frames import RequestHeader, request_frame
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.primitives import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog_protocol.apis import Api
    from tidelog_protocol.schema import Field, Message, Struct

__all__ = [
    "COMPACTED",
    "HANGS_UP",
    "NOTHING",
    "PLAIN",
    "RECOMPRESSED",
    "TO_THE_END",
    "Attack",
    "Names",
    "batches",
    "frame_of",
    "frames",
    "repeated",
    "requests",
]

PLAIN, COMPACTED, RECOMPRESSED = "plain", "compacted", "recompressed"
PRODUCE_VERSION = 12
FIND_VERSION = 4
TOPIC_RESOURCE = 2
# What only brokers ask, and what would end the broker or its place in the cluster.
_SPARED = {
    ApiKey.UNREGISTER_BROKER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
}


class Names(NamedTuple):
    """What requests name that is there."""

    topic: str
    topic_id: bytes
    group: str


NOTHING, HANGS_UP, TO_THE_END = 0, -1, -2
"""Instead of a number of answers: it waits for none, for the first bytes, or for the end of the
connection."""


class Attack(NamedTuple):
    """What is sent at once on each connection, made when it is needed, and the number of its
    answers. `connections` send the same. `prepare(bootstrap)` makes first what the attack needs."""

    name: str
    frame: Callable[[], bytes]
    answers: int = 1
    connections: int = 1
    door: str = "plain"
    patience_s: float = 5.0
    prepare: Callable[[str], None] | None = None


# -- requests --------------------------------------------------------------------------------------


def requests(served: set[int], names: Names, *, is_known: bool = False) -> Iterator[Attack]:
    """Yield an attack for each array of each request that the broker serves, filled to its limit
    with names that differ; or all the same, of what `is_known`."""
    for key in sorted(served - _SPARED):
        api = API[key]
        elements = elements_max(api.key)
        for path in _paths(api.request, api.max_version):
            for pairs in (False, True) if len(path) > 1 else (False,):
                count = elements - len(path) + 1
                label = f"{api.name} {'.'.join(field.name for field in path)}"
                values = _Values(names, api.max_version, is_known=is_known)
                yield Attack(
                    label + (" in pairs" if pairs else ""),
                    partial(_filled_frame, api, path, count, values, pairs=pairs),
                )


def _paths(table: type[Struct], version: int) -> Iterator[list[Field]]:
    """Yield the ways to the arrays of a request, each the array fields from the outermost on."""
    for field in table.FIELDS:
        if not field.in_version(version) or field.element is None:
            continue
        inner = field.element
        if field.kind == "array":
            yield [field]
            if not isinstance(inner, str):
                for path in _paths(inner, version):
                    yield [field, *path]


class _Values:
    """What to write into fields: names of what is there, numbers where elements differ."""

    def __init__(self, names: Names, version: int, *, is_known: bool) -> None:
        self._names = names
        self.version = version
        self.is_known = is_known

    def of(self, field: Field, number: int | None) -> Any:
        """Return a field's value; `number` is that of the element if elements are to differ."""
        name, differs = field.name, number is not None and not self.is_known
        if name in ("resource_type", "entity_type"):
            return TOPIC_RESOURCE if field.kind == "int8" else "client-id"
        if field.kind == "uuid":
            return self._names.topic_id if not differs else struct.pack(">qq", 1, number)
        if field.kind == "string":
            return f"{name}-{number}" if differs else self.known(name)
        if name == "acks":
            return -1
        if name == "timeout_ms":
            return 30_000  # without time some are refused unread
        if "partition" in name or name == "index":
            return number or 0
        return None

    def known(self, name: str) -> str:
        """Return a name that is there, for a field or an array."""
        if "group" in name:
            return self._names.group
        return self._names.topic


def _filled_frame(
    api: Api, path: list[Field], count: int, values: _Values, *, pairs: bool
) -> bytes:
    """Return a request with `count` elements in the last array of the path. In pairs: the array
    before it has half of them, each with one, and all name the same."""
    made = api.request()
    for field in made.FIELDS:
        if field.in_version(values.version) and field.element is None:
            _set(made, field, values, None)
    _fill(made, path, count, values, pairs=pairs)
    return frame_of(made, api.max_version)


def _fill(made: Any, path: list[Field], count: int, values: _Values, *, pairs: bool) -> None:
    field, rest = path[0], path[1:]
    assert field.element is not None
    if rest:
        many = count // 2 if pairs and len(rest) == 1 else 1
        inner = 1 if pairs and len(rest) == 1 else count
        elements = [_element(field, None, values) for _ in range(many)]
        for element in elements:
            _fill(element, rest, inner, values, pairs=pairs)
    else:
        elements = [_element(field, None if count == 1 else n, values) for n in range(count)]
    setattr(made, field.name, elements)


def _element(array: Field, number: int | None, values: _Values) -> Any:
    inner = array.element
    if isinstance(inner, str):
        if inner == "string":
            return values.known(array.name) if values.is_known else f"{array.name}-{number or 0}"
        if inner == "uuid":
            return struct.pack(">qq", 1, number or 0)
        return (number or 0) % 128 if inner == "int8" else number or 0
    assert inner is not None
    made = inner()
    for field in inner.FIELDS:
        if field.in_version(values.version) and field.element is None:
            _set(made, field, values, number)
    return made


def _set(made: Struct, field: Field, values: _Values, number: int | None) -> None:
    value = values.of(field, number)
    if value is not None and field.tag is None:
        setattr(made, field.name, value)


def frame_of(message: Message, version: int) -> bytes:
    """Encode a request."""
    assert message.API_KEY is not None
    api = API[message.API_KEY]
    return b"".join(request_frame(api, RequestHeader(api.key, version, 1, "hostile"), message))


# -- records ---------------------------------------------------------------------------------------


def batches() -> Iterator[Attack]:
    """Yield produce requests whose batches take long to look into."""
    record = _record(b"k")
    large = _record(b"k", value=bytes(255 << 20))
    made: list[tuple[str, str, int, Callable[[int], bytes], int]] = [
        ("a million records", COMPACTED, Codec.ZSTD, record, 1_000_000),
        ("a million records, recompressed", RECOMPRESSED, Codec.ZSTD, record, 1_000_000),
        ("a million headers", COMPACTED, Codec.ZSTD, _record(b"k", headers=2_000), 500),
        ("60 million headers", COMPACTED, Codec.ZSTD, _record(b"k", headers=60_000_000), 1),
        ("255 MB in a record, zstd", COMPACTED, Codec.ZSTD, large, 1),
        ("255 MB in a record, gzip", COMPACTED, Codec.GZIP, large, 1),
        ("255 MB in a record, lz4", COMPACTED, Codec.LZ4, large, 1),
        ("255 MB in a record, recompressed", RECOMPRESSED, Codec.ZSTD, large, 1),
    ]
    for name, topic, codec, write, count in made:
        yield Attack(f"Produce: {name}", partial(_produced, topic, codec, write, count))
    for name, members in ("400,000 gzip members", 400_000), ("999 gzip members", 999):
        yield Attack(f"Produce: {name}", partial(_produced_members, members))


def _produced_members(count: int) -> bytes:
    content = b"" if count > GZIP_MEMBERS_MAX else bytes(1000)
    return _produce_frame(COMPACTED, Codec.GZIP, gzip.compress(content) * count, 1)


def _produced(topic: str, codec: int, write: Callable[[int], bytes], count: int) -> bytes:
    return _produce_frame(topic, codec, compress(codec, b"".join(map(write, range(count)))), count)


def _record(key: bytes, value: bytes = b"", headers: int = 0) -> Callable[[int], bytes]:
    """Return how one record of a batch is written, by its number."""

    def write(number: int) -> bytes:
        body = b"\0\0" + _zigzag(number) + _zigzag(len(key)) + key + _zigzag(len(value)) + value
        body += _zigzag(headers) + b"\0\0" * headers
        return _zigzag(len(body)) + body

    return write


def _zigzag(value: int) -> bytes:
    return write_uvarint(value << 1)


def _produce_frame(topic: str, codec: int, payload: bytes, count: int) -> bytes:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | CREATE_TIME,
        last_offset_delta=count - 1,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=count,
    )
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=assemble(header, payload))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=[partition])]
    )
    return frame_of(request, PRODUCE_VERSION)


# -- bytes that are no requests --------------------------------------------------------------------


def frames() -> Iterator[Attack]:
    """Yield frames that are refused, or never end."""
    yield Attack("10 million empty keys", partial(repeated, b"\0\0", b"\1", 10_000_000))
    yield Attack("95 MB of tagged fields in a header", partial(repeated, b"", b"\1\0", 47_000_000))
    yield Attack("20 frames of 90 MB that never end", _unfinished, NOTHING, connections=20)


def repeated(start: bytes, filler: bytes, count: int) -> bytes:
    """Return a FindCoordinator request with a count and so many fillers after `start`."""
    head = struct.pack(">hhih", ApiKey.FIND_COORDINATOR, FIND_VERSION, 1, -1) + start
    body = head + write_uvarint(count + bool(start)) + filler * count + b"\0"
    return struct.pack(">i", len(body)) + body


def _unfinished() -> bytes:
    return struct.pack(">i", 100 << 20) + bytes(90 << 20)
