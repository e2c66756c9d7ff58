"""Batches of a remote segment, by ranges; and what transaction indexes leave out."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from support.remote import remote_segment
from tidelog_pipeline.history.aborted import AbortedRange, aborted_in
from tidelog_pipeline.history.planner import LivePart, Piece
from tidelog_pipeline.history.segments import remote_batches
from tidelog_protocol.records import (
    ControlType,
    Record,
    build_batch,
    build_end_transaction_marker,
    set_offset_and_epoch,
)
from tidelog_storage.indexes import OFFSET_ENTRY, TRANSACTION_ENTRY
from tidelog_storage.remote.api import IndexKind, RemoteResourceNotFound
from tidelog_storage.remote.chunks import CorruptRemoteDataError


class Store:
    """One segment's bytes and indexes; keeps the ranges that were asked for."""

    def __init__(self, data: bytes, indexes=None) -> None:
        self.data = data
        self.indexes = indexes or {}
        self.ranges: list[tuple[int, int]] = []

    def fetch_segment(self, segment, start, end=None):
        if self.data is None:
            raise RemoteResourceNotFound("gone")
        self.ranges.append((start, end))
        return io.BytesIO(self.data[start : end + 1])

    def fetch_index(self, segment, kind):
        data = self.indexes.get((segment.segment_id.int, kind))
        if data is None:
            raise RemoteResourceNotFound("none")
        return io.BytesIO(data)


def batch(base: int, count: int = 2, size: int = 50, **options) -> bytes:
    records = [Record(base + n, 0, None, bytes(size)) for n in range(count)]
    return build_batch(records, base_offset=base, **options)


def marker(base: int, kind: ControlType, producer_id: int) -> bytes:
    data = bytearray(
        build_end_transaction_marker(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
    )
    set_offset_and_epoch(data, 0, base, 0)
    return bytes(data)


def piece(data: bytes, start: int, end: int, last: int = 99, later=(), **options) -> Piece:
    segment = remote_segment(1, 0, last, size=len(data), **options)
    return Piece(start, end, 1, LivePart(segment, 0, last + 1), later)


def bases(batches) -> list[int]:
    return [one.header.base_offset for one in batches]


@pytest.mark.parametrize("range_bytes", [61, 100, 200, 1000, 1 << 20])
def test_all_batches_come_whatever_the_ranges(range_bytes: int) -> None:
    parts = [batch(0), batch(2, size=700), batch(4), batch(6, 1, codec=4)]
    data = b"".join(parts)
    store = Store(data)
    found = list(remote_batches(store, piece(data, 0, 100), (), range_bytes))
    assert bases(found) == [0, 2, 4, 6]
    assert sum(len(one.payload) for one in found) > 4 * 50 + 2 * 700


def test_a_piece_begins_by_the_index_and_ends_with_its_offsets() -> None:
    parts = [batch(n) for n in range(0, 40, 2)]
    data, size = b"".join(parts), len(parts[0])
    entries = b"".join(OFFSET_ENTRY.pack(2 * n + 1, n * size) for n in range(0, 20, 5))
    store = Store(data, {(1, IndexKind.OFFSET): entries})
    found = list(remote_batches(store, piece(data, 25, 29), (), 2 * size))
    assert bases(found) == [24, 26, 28]
    assert store.ranges[0][0] == 10 * size
    assert store.ranges[-1][1] < 17 * size


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data[:-3], "bytes instead of"),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], "its CRC is wrong"),
        (lambda data: data[:16] + b"\1" + data[17:], "it is no record batch"),
    ],
)
def test_damage_is_never_read(change, what: str) -> None:
    data = batch(0) + batch(2)
    with pytest.raises(CorruptRemoteDataError, match=what):
        list(remote_batches(Store(change(data)), piece(data, 0, 100), ()))


def test_a_segment_that_ends_inside_a_batch_is_damage() -> None:
    data = (batch(0) + batch(2))[:-5]
    with pytest.raises(CorruptRemoteDataError, match="no record batch"):
        list(remote_batches(Store(data), piece(data, 0, 100), ()))


def test_markers_and_aborted_transactions_are_left_out() -> None:
    options = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = b"".join(
        [
            batch(0, producer_id=7, **options),
            batch(2, producer_id=8, **options),
            batch(4),
            marker(6, ControlType.ABORT, 7),
            batch(7, producer_id=7, **options),
            marker(9, ControlType.COMMIT, 8),
        ]
    )
    aborted = [AbortedRange(7, 0, 6)]
    assert bases(remote_batches(Store(data), piece(data, 0, 100), ())) == [0, 2, 4, 7]
    assert bases(remote_batches(Store(data), piece(data, 0, 100), aborted)) == [2, 4, 7]


# ---- transaction indexes -------------------------------------------------------------------------


def entry(producer_id: int, first: int, last: int, stable: int) -> bytes:
    return TRANSACTION_ENTRY.pack(0, producer_id, first, last, stable)


def later(number: int, start: int, end: int, live_end: int | None = None) -> LivePart:
    return LivePart(remote_segment(number, start, end), start, live_end or end + 1)


def no_brokers(offset: int):
    raise AssertionError(offset)


def test_own_and_later_indexes_are_read_until_nothing_can_follow() -> None:
    store = Store(
        b"",
        {
            (1, IndexKind.TRANSACTION): entry(7, 3, 20, 15) + entry(8, 15, 60, 70),
            (2, IndexKind.TRANSACTION): entry(9, 40, 120, 121),
            (3, IndexKind.TRANSACTION): b"must not be read",
        },
    )
    one = piece(b"", 30, 100, later=(later(2, 100, 199), later(3, 200, 299)))
    found = aborted_in(store, one, [(5, 50)], no_brokers)
    assert found == [AbortedRange(8, 15, 60), AbortedRange(9, 40, 120)]


def test_what_lies_behind_the_segments_comes_with_the_split() -> None:
    one = piece(b"", 30, 60, txn_index_empty=True, later=(later(2, 100, 199),))
    found = aborted_in(Store(b""), one, [(5, 50), (6, 60)], no_brokers)
    assert found == [AbortedRange(5, 50, 59)]


def test_the_brokers_are_asked_behind_too_many_segments() -> None:
    one = Piece(0, 50, 1, LivePart(remote_segment(1, 0, 99), 0, 100), (), later_is_whole=False)
    asked = []

    def ask(offset: int):
        asked.append(offset)
        return [(4, 20)]

    assert aborted_in(Store(b""), one, (), ask) == [AbortedRange(4, 20, 49)]
    assert asked == [50]


def test_a_marker_of_a_dead_branch_ends_nothing() -> None:
    store = Store(b"", {(2, IndexKind.TRANSACTION): entry(7, 10, 150, 151)})
    one = piece(b"", 0, 100, txn_index_empty=True, later=(later(2, 100, 199, live_end=140),))
    assert aborted_in(store, one, (), no_brokers) == []


def test_a_missing_index_of_a_deleted_segment_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(RemoteResourceNotFound):
        aborted_in(Store(None), piece(b"", 0, 100), (), no_brokers)
