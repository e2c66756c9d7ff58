"""A lane: one partition of a source, written in its order by one task at a time.

What the lane has written is known by its transactions alone (`writer.py`), so a task that is
started again, by Spark or by a new driver, goes on where the last commit ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_pipeline.history import read_split
from tidelog_pipeline.operations.writer import Writer
from tidelog_protocol.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidelog_pipeline.operations.topic import Source

__all__ = ["Lane", "LaneRows", "Row", "Target", "partition_of_key", "replay_lane"]

TRANSACTION_BYTES = 8 << 20
TRANSACTION_SECONDS = 5.0  # far below the transaction's timeout
_RECORD_BYTES = 20  # of a record beside its key and value, about


class Row(NamedTuple):
    """A record of the source."""

    partition: int
    offset: int
    timestamp: int  # ms
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Target:
    """The topic that is written to. `keeps_partitions`: a record goes to the partition it was in,
    otherwise keys go where Kafka's own producers put them."""

    source: Source  # for its connections
    partitions: int
    keeps_partitions: bool
    batch_bytes: int
    codec: int = 0
    rate: float = 0.0  # records a second of one lane; 0: no limit


@dataclass(frozen=True, slots=True)
class Lane:
    """Offsets [start, end) of one partition of the source. `name` is that of its transactions."""

    name: str
    partition: int
    start: int
    end: int


def replay_lane(lane: Lane, target: Target, rows: Callable[[int], Iterable[Row]]) -> int:
    """Write what is left of a lane; return the records written. `rows` are those from an offset
    on, in order."""
    with target.source.connected() as client:
        writer = Writer(client, target.source.topic, lane.name, target.codec)
        start = max(lane.start, writer.start())
        if start >= lane.end:
            return 0
        filled = _Transaction(writer, target)
        position = start
        for row in rows(start):
            if not position <= row.offset < lane.end:  # written before, or twice in the source
                continue
            position = row.offset + 1
            filled.add(row)
            if filled.is_full:
                filled.commit(position)
        filled.commit(lane.end)
        return filled.records


class _Transaction:
    """Records on their way: batches by partition, and the transaction they are in."""

    def __init__(self, writer: Writer, target: Target) -> None:
        self._writer = writer
        self._target = target
        self._waiting: dict[int, list[Record]] = {}
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._began = self._opened = time.perf_counter()
        self.records = 0

    def add(self, row: Row) -> None:
        """Take a record; write its partition's batch if it is full."""
        partition = self._partition(row)
        waiting = self._waiting.setdefault(partition, [])
        size = _size(row)
        if waiting and self._sizes[partition] + size > self._target.batch_bytes:
            self._write(partition)
            waiting = self._waiting[partition]
        waiting.append(Record(len(waiting), row.timestamp, row.key, row.value, row.headers))
        self._sizes[partition] = self._sizes.get(partition, 0) + size
        self._size += size
        self.records += 1
        self._keep_rate()

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        age = time.perf_counter() - self._opened
        return self._size >= TRANSACTION_BYTES or age >= TRANSACTION_SECONDS

    def commit(self, position: int) -> None:
        """Write what waits and commit, with the source's next offset."""
        for partition, waiting in self._waiting.items():
            if waiting:
                self._write(partition)
        self._writer.commit(position)
        self._size = 0
        self._opened = time.perf_counter()

    def _write(self, partition: int) -> None:
        self._writer.write(partition, self._waiting[partition])
        self._waiting[partition] = []
        self._sizes[partition] = 0

    def _partition(self, row: Row) -> int:
        if not self._target.keeps_partitions and row.key is not None:
            return partition_of_key(row.key, self._target.partitions)
        return row.partition % self._target.partitions

    def _keep_rate(self) -> None:
        if not self._target.rate:
            return
        ahead = self.records / self._target.rate - (time.perf_counter() - self._began)
        if ahead > 0.01:
            time.sleep(min(ahead, TRANSACTION_SECONDS))


def _size(row: Row) -> int:
    size = _RECORD_BYTES + len(row.key or b"") + len(row.value or b"")
    for name, value in row.headers:
        size += 8 + 3 * len(name) + len(value or b"")
    return size


# ---- the rows of a topic -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneRows:
    """The rows of a lane of a topic, from an offset on."""

    source: Source
    lane: Lane

    def __call__(self, start: int) -> Iterator[Row]:
        """Read them."""
        return _rows_of_topic(self.source, self.lane.partition, start, self.lane.end)


def _rows_of_topic(source: Source, partition: int, start: int, end: int) -> Iterator[Row]:
    """A partition's records with offsets [start, end), in order."""
    splits, settings = source.plan({partition: (start, end)})
    columns = ["offset", "timestamp", "key", "value", "headers"]
    for split in splits:
        for batch in read_split(split, settings, columns):
            yield from _rows(partition, batch)


def _rows(partition: int, batch: Any) -> Iterator[Row]:
    offsets = batch.column(0).to_pylist()
    times = batch.column(1).cast("int64").to_pylist()
    keys, values, headers = (batch.column(slot).to_pylist() for slot in (2, 3, 4))
    for offset, time_us, key, value, listed in zip(
        offsets, times, keys, values, headers, strict=True
    ):
        pairs = tuple((each["key"], each["value"]) for each in listed) if listed else ()
        yield Row(partition, offset, time_us // 1000, key, value, pairs)


# ---- where a key goes ----------------------------------------------------------------------------

_UINT32 = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995


@lru_cache(maxsize=1 << 16)
def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that Kafka's own producers choose (BuiltInPartitioner.partitionForKey)."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Kafka: Utils.murmur2."""
    length = len(data)
    whole = length & ~3
    hashed = 0x9747B28C ^ length
    for position in range(0, whole, 4):
        mixed = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _UINT32
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _UINT32
        hashed = hashed * _MULTIPLIER & _UINT32 ^ mixed
    if whole < length:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * _MULTIPLIER & _UINT32
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _UINT32
    return hashed ^ hashed >> 15
