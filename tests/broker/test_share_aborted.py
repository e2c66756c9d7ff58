"""Aborted batches among those read, and the cut of an answer's records."""

from __future__ import annotations

from typing import Any

from support.data_path import batch
from tidelog.shares.aborted import aborted_ranges, cut_records, read_batches, without
from tidelog.shares.records import Acquired
from tidelog_protocol.batch import set_offset_and_epoch
from tidelog_protocol.records import ControlType, build_end_transaction_marker
from tidelog_storage.types import AbortedTransaction


def written(*parts: Any) -> bytes:
    """Batches as a log has them, one after the other."""
    records = bytearray()
    offset = 0
    for part in parts:
        data = bytearray(part)
        set_offset_and_epoch(data, 0, offset, 0)
        records += data
        offset = read_batches(bytes(records))[-1].header.next_offset
    return bytes(records)


def of(producer: int, count: int = 2) -> memoryview:
    return batch(count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(producer: int, kind: ControlType) -> bytes:
    return build_end_transaction_marker(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )


def test_batches_up_to_the_abort_marker_are_aborted() -> None:
    records = written(
        of(7),  # 0-1
        batch(1),  # 2
        of(8),  # 3-4
        marker(7, ControlType.ABORT),  # 5
        of(7),  # 6-7
        marker(8, ControlType.COMMIT),  # 8
        marker(7, ControlType.COMMIT),  # 9
    )
    aborted = [AbortedTransaction(7, 0)]
    assert aborted_ranges(records, read_batches(records), aborted) == [(0, 1)]
    assert aborted_ranges(records, read_batches(records), []) == []


def test_a_second_abort_of_a_producer_begins_later() -> None:
    records = written(of(7), marker(7, ControlType.ABORT), of(7), marker(7, ControlType.ABORT))
    aborted = [AbortedTransaction(7, 3), AbortedTransaction(7, 0)]
    assert aborted_ranges(records, read_batches(records), aborted) == [(0, 1), (3, 4)]


def test_what_is_left_of_acquired_records() -> None:
    acquired = [Acquired(0, 9, 1), Acquired(10, 19, 2), Acquired(20, 29, 1)]
    assert without(acquired, [(0, 1), (5, 12), (25, 40)]) == [
        (2, 4, 1),
        (13, 19, 2),
        (20, 24, 1),
    ]
    assert without(acquired, [(0, 40)]) == []


def test_an_answer_has_whole_batches_of_what_is_acquired() -> None:
    records = written(batch(2), batch(2), batch(2), batch(2))
    batches = read_batches(records)

    def kept(*acquired: Acquired) -> list[int]:
        data = cut_records(records, batches, acquired)
        return [each.header.base_offset for each in read_batches(data)]

    assert kept(Acquired(0, 7, 1)) == [0, 2, 4, 6]
    assert kept(Acquired(3, 3, 2)) == [2]
    assert kept(Acquired(2, 2, 1), Acquired(5, 5, 1)) == [2, 4]


def test_bytes_that_are_no_batch_end_the_list() -> None:
    records = written(batch(2))
    assert len(read_batches(records + b"\0" * 80)) == 1
    assert read_batches(records[:70]) == []
