"""One producer's state, and the bytes of a producer snapshot (`<offset>.snapshot`).

The format is Kafka's (ProducerStateManager). `producer_state.py` keeps the entries; remote segments
carry the same bytes.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception class, named like one
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog_protocol.records import BatchHeader

BATCHES_RETAINED = 5
NO_EPOCH = -1
NO_OFFSET = -1
SEQUENCE_MAX = 0x7FFFFFFF

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """An invalid producer snapshot; the log is replayed instead."""


class BatchMetadata(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # last offset - first offset
    timestamp: int  # ms, the batch's largest

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """State of one producer id. Invariant: all `batches` carry `producer_epoch`."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset  # -1: no open transaction
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_RETAINED)

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record; -1 if none of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_OFFSET

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch of the same epoch and sequence range."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if (
                batch.last_sequence == last_sequence
                and batch.first_sequence == header.base_sequence
            ):
                return batch
        return None

    def set_epoch(self, producer_epoch: int) -> None:
        """Set a new epoch and drop the batches of the old one: sequences restart."""
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def snapshot_fields(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The entry in the order of the snapshot format."""
        last = (
            self.batches[-1] if self.batches else BatchMetadata(NO_OFFSET, NO_OFFSET, 0, NO_OFFSET)
        )
        return (
            self.producer_id,
            self.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_snapshot(cls, fields: tuple[int, int, int, int, int, int, int, int]) -> ProducerEntry:
        """The entry of `snapshot_fields`."""
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first_offset = fields
        entry = cls(
            producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator,
            last_timestamp=timestamp,
            current_txn_first_offset=max(first_offset, NO_OFFSET),
        )
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        return entry


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Bytes of a `.snapshot` file, as Kafka writes them."""
    listed = [_ENTRY.pack(*entry.snapshot_fields()) for entry in entries]
    body = _COUNT.pack(len(listed)) + b"".join(listed)
    return _HEAD.pack(_VERSION, crc32c(body, 0)) + body


def parse_snapshot(data: bytes) -> list[ProducerEntry]:
    """Parse a `.snapshot` file; CorruptSnapshotError if it is damaged or incomplete."""
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except StructError:
        raise CorruptSnapshotError("ends early") from None
    if version != _VERSION:
        raise CorruptSnapshotError(f"unknown version {version}")
    if crc32c(memoryview(data)[_HEAD.size :], 0) != crc:
        raise CorruptSnapshotError("wrong checksum")
    body = memoryview(data)[_HEAD.size + _COUNT.size :]
    if count < 0 or len(body) != count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries announced in {len(body)} bytes")
    return [ProducerEntry.from_snapshot(fields) for fields in _ENTRY.iter_unpack(body)]
