"""Batches of aborted transactions among those that were read, and the cut of an answer's records.

Only headers are looked at, and the key of a marker. Pure. Kafka: SharePartition
(fetchAbortedTransactionRecordBatches), ShareFetchUtils (maybeSliceFetchRecords).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.shares.records import Acquired
from tidelog_protocol.batch import iter_batches
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import ControlType, control_type, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_protocol.schema import Buffer
    from tidelog_storage.types import AbortedTransaction

__all__ = ["ReadBatch", "aborted_ranges", "cut_records", "read_batches", "without"]


class ReadBatch(NamedTuple):
    """A batch that was read: its header, and its place in the buffer."""

    header: BatchHeader
    position: int


def read_batches(records: Buffer) -> list[ReadBatch]:
    """List the whole batches in what was read; they end before something that is not one."""
    batches: list[ReadBatch] = []
    try:
        for position, header in iter_batches(records):
            batches.append(ReadBatch(header, position))
    except ProtocolError:
        pass  # the reader's client reports it, as for any fetch
    return batches


def aborted_ranges(
    records: Buffer, batches: Iterable[ReadBatch], aborted: Sequence[AbortedTransaction]
) -> list[tuple[int, int]]:
    """Return first and last offset of each batch that belongs to an aborted transaction."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()
    ranges = []
    for header, position in batches:
        if not header.has_producer_id:
            continue
        while waiting and waiting[-1].first_offset <= header.last_offset:
            producers.add(waiting.pop().producer_id)
        if header.is_control:
            if _is_abort(memoryview(records)[position : position + header.size_in_bytes]):
                producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            ranges.append((header.base_offset, header.last_offset))
    return ranges


def _is_abort(batch: Buffer) -> bool:
    record = next(iter_records(batch), None)
    return record is not None and control_type(record) == ControlType.ABORT


def without(acquired: Iterable[Acquired], ranges: Sequence[tuple[int, int]]) -> list[Acquired]:
    """Return what is left of acquired records without these ranges; both are in order."""
    left = []
    for first, last, count in acquired:
        begin = first
        for low, high in ranges:
            if high < begin or low > last:
                continue
            if low > begin:
                left.append(Acquired(begin, low - 1, count))
            begin = high + 1
        if begin <= last:
            left.append(Acquired(begin, last, count))
    return left


def cut_records(
    records: Buffer, batches: Sequence[ReadBatch], acquired: Sequence[Acquired]
) -> Buffer:
    """Return the batches from the first acquired record to the last one, whole."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    kept = [
        batch
        for batch in batches
        if batch.header.last_offset >= first and batch.header.base_offset <= last
    ]
    if not kept:
        return records
    end = kept[-1].position + kept[-1].header.size_in_bytes
    return memoryview(records)[kept[0].position : end]
