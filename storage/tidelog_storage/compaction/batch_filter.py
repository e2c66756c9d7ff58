"""Filter a batch for compaction: keep all, some records, an empty batch, or nothing.

Pure: bytes in, bytes out. A filtered batch keeps offsets, producer, sequence, leader epoch and
codec, and gets a new CRC. The result is byte for byte that of Apache Kafka, except for the output
of the compression libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    assemble,
)
from tidelog_protocol.compression import compress
from tidelog_protocol.record_spans import join_spans, record_spans
from tidelog_protocol.records import records_payload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog_protocol.batch import BatchHeader
    from tidelog_protocol.record_spans import RecordSpan
    from tidelog_storage.compaction.offset_map import OffsetMap
    from tidelog_storage.compaction.transactions import CleanedTransactions
    from tidelog_storage.seams import Buffer


class LastRecord(NamedTuple):
    """The last record of an active producer; see `ProducerEntry`."""

    data_offset: int  # last offset of its newest data batch; -1: only a marker is known
    producer_epoch: int


class Rules(NamedTuple):
    """The rules of one pass.

    `end_offset`: the end of the pass, a segment's base. The batch before it is kept even if empty,
    so that readers reach the end. `last_records`: by producer id.
    """

    now_ms: int
    delete_retention_ms: int
    end_offset: int
    last_records: Mapping[int, LastRecord]


class Kept(NamedTuple):
    """A filtered batch."""

    buffer: Buffer
    max_timestamp: int


class BatchFilter:
    """Filters every batch of a pass, in the order of the log."""

    def __init__(
        self, rules: Rules, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> None:
        self._rules = rules
        self._map = offset_map
        self._transactions = transactions

    def keep(self, header: BatchHeader, batch: memoryview) -> Kept | None:
        """Return the filtered batch; None if nothing is left. ProtocolError if it cannot be
        read."""
        may_go = (
            self._transactions.on_control_batch(header, batch)
            if header.is_control
            else self._transactions.on_batch(header)
        )
        if may_go and (not header.is_control or self._is_past_horizon(header)):
            return self._emptied(header)
        payload = records_payload(batch, header)
        spans = record_spans(payload, header.records_count)
        kept = spans if header.is_control else self._filter(header, spans)
        if not kept:
            return self._emptied(header)
        # KIP-534: tombstones and markers without a transaction stay readable for
        # delete.retention.ms from the first pass that meets them.
        needs_horizon = not header.has_delete_horizon and (
            (may_go and header.is_control) or not all(span.has_value for span in kept)
        )
        if len(kept) == len(spans) and not needs_horizon:
            return Kept(batch, header.max_timestamp)
        rules = self._rules
        if needs_horizon:
            header = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT)
            return _rebuilt(header, payload, kept, rules.now_ms + rules.delete_retention_ms)
        return _rebuilt(header, payload, kept, None)

    def _filter(self, header: BatchHeader, spans: Sequence[RecordSpan]) -> list[RecordSpan]:
        """Return the records to keep: the newest of each key, and all above the map's range.

        Records without a key (from before the topic was compacted) are dropped.
        """
        base_offset = header.base_offset
        latest_delta = self._map.latest_offset - base_offset
        newest = self._map.newest
        tombstones_go = self._is_past_horizon(header)
        return [
            span
            for span in spans
            if span.offset_delta > latest_delta
            or (
                span.key is not None
                and base_offset + span.offset_delta >= newest(span.key)
                and (span.has_value or not tombstones_go)
            )
        ]

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._rules.now_ms

    def _emptied(self, header: BatchHeader) -> Kept | None:
        """Return an empty batch if it is still needed, else None."""
        if not (self._is_last_of_producer(header) or header.next_offset == self._rules.end_offset):
            return None
        emptied = header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        )
        return Kept(assemble(emptied, b""), header.max_timestamp)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return whether this batch holds the last sequence number or epoch of an active
        producer."""
        if not header.has_producer_id:
            return False
        last = self._rules.last_records.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _rebuilt(
    header: BatchHeader, payload: bytes, kept: Sequence[RecordSpan], horizon_ms: int | None
) -> Kept:
    """Rebuild the batch with some of its records; `horizon_ms` is a new delete horizon.

    The base timestamp is the delete horizon if there is one, else that of the first record left.
    """
    if header.timestamp_type == LOG_APPEND_TIME:
        timestamps = [header.max_timestamp] * len(kept)
    else:
        timestamps = [header.base_timestamp + span.timestamp_delta for span in kept]
    if horizon_ms is not None:
        base_timestamp = horizon_ms
    elif header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    else:
        base_timestamp = timestamps[0]
    left = join_spans(payload, kept, [timestamp - base_timestamp for timestamp in timestamps])
    rebuilt = header._replace(
        base_timestamp=base_timestamp, max_timestamp=max(timestamps), records_count=len(kept)
    )
    codec = header.codec
    return Kept(assemble(rebuilt, compress(codec, left) if codec else left), rebuilt.max_timestamp)
