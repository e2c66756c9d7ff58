"""The batches of what only the brokers have, by Fetch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tidelog_pipeline.history.client import PATIENCE_SECONDS
from tidelog_pipeline.history.decoder import RawBatch, raw_batch
from tidelog_protocol.errors import ErrorCode, ProtocolError, error_name
from tidelog_protocol.records import (
    ControlType,
    control_type,
    crc_is_valid,
    iter_batches,
    iter_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_pipeline.history.client import HistoryClient
    from tidelog_pipeline.history.planner import Piece, Split
    from tidelog_protocol.batch import BatchHeader

__all__ = ["GoneError", "broker_batches"]

_GONE = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class GoneError(Exception):
    """An offset is not, or no longer, there."""


def broker_batches(client: HistoryClient, split: Split, piece: Piece) -> Iterator[RawBatch]:
    """The batches with offsets of the piece, without markers; without aborted transactions if the
    client reads what is committed. GoneError, ClusterError, OSError, ProtocolError."""
    offset = piece.start
    end = time.perf_counter() + PATIENCE_SECONDS
    while offset < piece.end:
        answer = client.fetch(split.topic, split.topic_id, split.partition, offset)
        if answer.error_code in _GONE:
            raise GoneError(error_name(answer.error_code))
        if answer.error_code:
            raise ProtocolError(f"Fetch: {error_name(answer.error_code)}")
        before = offset
        for header, raw in _batches(answer):
            if header.base_offset >= piece.end:
                return
            offset = max(offset, header.next_offset)
            if raw is not None and header.last_offset >= before:
                yield raw
        if offset > before:
            end = time.perf_counter() + PATIENCE_SECONDS
        elif time.perf_counter() > end:
            name = f"{split.topic}-{split.partition}"
            raise TimeoutError(
                f"{name}: no records at offset {offset} for {PATIENCE_SECONDS:.0f} s"
            )


def _batches(answer: Any) -> Iterator[tuple[BatchHeader, RawBatch | None]]:
    """Each batch of an answer, None for what is no record of an application's or was aborted
    (Kafka: CompletedFetch)."""
    data = answer.records or b""
    waiting = sorted(
        [(one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()],
        reverse=True,
    )
    aborting: set[int] = set()
    for position, header in iter_batches(data):
        if not crc_is_valid(data, header, position):
            raise ProtocolError(f"the CRC of the batch at offset {header.base_offset} is wrong")
        while waiting and waiting[-1][0] <= header.last_offset:
            aborting.add(waiting.pop()[1])
        if header.is_control:
            if _is_abort(data, position):
                aborting.discard(header.producer_id)
            yield header, None
        elif not header.records_count or (
            header.is_transactional and header.producer_id in aborting
        ):
            yield header, None
        else:
            yield header, raw_batch(data, position, header)


def _is_abort(data: Any, position: int) -> bool:
    record = next(iter_records(data, position), None)
    return record is not None and control_type(record) == ControlType.ABORT
