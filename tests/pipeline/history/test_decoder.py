"""Batches to Arrow columns: the same records as the protocol's own reader, one by one."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_pipeline.history.decoder import (
    COLUMNS,
    ROWS_MAX,
    Group,
    Kept,
    RawBatch,
    decode,
    is_known_by_header,
    needs_records,
    opened,
    raw_batch,
)
from tidelog_protocol.batch import LOG_APPEND_TIME, read_header
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import Record, build_batch, iter_records

EVERY = list(COLUMNS)
ALL = Kept(0, 1 << 62)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

part = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
record = st.tuples(
    st.just(1) | st.integers(1, 300), st.integers(-1, 1 << 44), part, part, headers.map(tuple)
)  # offsets after the one before: compaction leaves gaps


@st.composite
def batches(draw) -> list[bytes]:
    found = []
    base = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 4))):
        offset = base - 1
        records = []
        for gap, *rest in draw(st.lists(record, min_size=1, max_size=8)):
            offset += gap
            records.append(Record(offset, *rest))
        kind = draw(st.sampled_from([0, LOG_APPEND_TIME]))
        codec = draw(st.integers(0, 4))
        found.append(build_batch(records, base_offset=base, codec=codec, timestamp_type=kind))
        base = offset + 1
    return found


def raw(batch: bytes) -> RawBatch:
    return opened(raw_batch(batch, 0, read_header(batch)))


def expected(found: list[bytes], kept: Kept) -> list[dict]:
    rows = []
    for batch in found:
        header = read_header(batch)
        for one in iter_records(batch):
            time = header.max_timestamp if header.timestamp_type else one.timestamp
            listed = [{"key": key, "value": value} for key, value in one.headers] or None
            row = (one.key, one.value, "t", 3, one.offset, time, header.timestamp_type, listed)
            if kept.start <= one.offset < kept.end:
                rows.append(dict(zip(EVERY, row, strict=True)))
    return rows


def shown(batch) -> list[dict]:
    rows = batch.to_pylist()
    for row in rows:
        row["timestamp"] = (row["timestamp"] - EPOCH) // datetime.timedelta(milliseconds=1)
    return rows


@settings(deadline=None)
@given(batches(), st.data())
def test_rows_are_those_of_the_records(found: list[bytes], data: st.DataObject) -> None:
    first, after = read_header(found[0]).base_offset, read_header(found[-1]).next_offset
    kept = Kept(data.draw(st.integers(first, after)), data.draw(st.integers(first, after + 1)))
    raws = [raw(batch) for batch in found]
    assert shown(decode(Group("t", 3, raws, ALL), EVERY)) == expected(found, ALL)
    assert shown(decode(Group("t", 3, raws, kept), EVERY)) == expected(found, kept)


@pytest.mark.parametrize("lanes", [1, 3, 64])
def test_batches_are_followed_side_by_side(monkeypatch, lanes: int) -> None:
    monkeypatch.setattr("tidelog_pipeline.history.heads._LANES_MIN", lanes)
    found, offset = [], 0
    for number in range(90):
        count = 1 + number * 7 % 40
        records = [
            Record(offset + n, n, None, bytes((number + n) * 37 % 400)) for n in range(count)
        ]
        found.append(build_batch(records, base_offset=offset, codec=number % 5))
        offset += count
    raws = [raw(batch) for batch in found]
    assert shown(decode(Group("t", 3, raws, ALL), EVERY)) == expected(found, ALL)
    for cut in (raws[40].payload[:-1], bytes(len(raws[40].payload)), b"\x01" * 400, b"\xff" * 400):
        damaged = [*raws[:40], RawBatch(raws[40].header, bytes(cut)), *raws[41:]]
        with pytest.raises(ProtocolError):
            decode(Group("t", 3, damaged, ALL), EVERY)


HEADER_COLUMNS = ["topic", "partition", "offset", "timestampType"]


@settings(deadline=None)
@given(batches(), st.data())
def test_headers_tell_the_same_as_records(found: list[bytes], data: st.DataObject) -> None:
    first, after = read_header(found[0]).base_offset, read_header(found[-1]).next_offset
    kept = Kept(data.draw(st.integers(first, after)), data.draw(st.integers(first, after + 1)))
    assert not needs_records(HEADER_COLUMNS)
    assert all(needs_records([name]) for name in EVERY if name not in HEADER_COLUMNS)
    headers = [read_header(batch) for batch in found]
    for header in headers:
        count = header.last_offset_delta + 1
        assert is_known_by_header(header) == (header.records_count == count)
        assert not is_known_by_header(header._replace(records_count=0, last_offset_delta=-1))
        many = header._replace(records_count=ROWS_MAX + 1, last_offset_delta=ROWS_MAX)
        assert not is_known_by_header(many)
    known = [RawBatch(header, b"") for header in headers if is_known_by_header(header)]
    whole = [raw(batch) for batch in found if is_known_by_header(read_header(batch))]
    by_header = decode(Group("t", 3, known, kept, is_opened=False), HEADER_COLUMNS)
    assert by_header.equals(decode(Group("t", 3, whole, kept), HEADER_COLUMNS))


def test_only_the_columns_that_are_asked_for_come_in_their_order() -> None:
    raws = [raw(build_batch([Record(5, 7, b"k", b"v")], base_offset=5))]
    batch = decode(Group("t", 0, raws, ALL), ["timestamp", "key"])
    assert batch.schema.names == ["timestamp", "key"]
    assert batch.to_pydict()["key"] == [b"k"]


@pytest.mark.parametrize("lanes", [1, 64])
@settings(deadline=None)
@given(st.data())
def test_a_damaged_payload_is_an_error_or_other_records_and_never_a_crash(lanes: int, data) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog_pipeline.history.heads._LANES_MIN", lanes)
        check_damaged(data)


def check_damaged(data) -> None:
    whole = raw(build_batch([Record(n, n, b"key", b"value" * 9, (("h", b"x"),)) for n in range(9)]))
    damaged = bytearray(whole.payload)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.sampled_from([len(damaged), len(damaged) - 1, 0]))])
    try:
        rows = decode(Group("t", 0, [RawBatch(whole.header, cut)], ALL), EVERY)
    except (ProtocolError, OverflowError):
        return
    assert rows.num_rows == 9
    rows.validate(full=True)


def test_a_headers_key_that_is_no_utf8_is_read_as_by_java() -> None:
    good = raw(build_batch([Record(0, 0, None, None, (("key", b"v"),))]))
    bad = RawBatch(good.header, bytes(good.payload).replace(b"key", b"k\xff\xff"))
    (row,) = decode(Group("t", 0, [bad], ALL), ["headers"]).to_pylist()
    assert row["headers"] == [{"key": "k\ufffd\ufffd", "value": b"v"}]


def test_pandas_is_not_imported() -> None:
    """pyarrow imports it when it converts Python's values: a second or two in each fresh worker."""
    program = (
        "import sys\n"
        "from tidelog_pipeline.history.decoder import *\n"
        "from tidelog_protocol.batch import read_header\n"
        "from tidelog_protocol.records import Record, build_batch\n"
        "data = build_batch([Record(0, 0, None, b'v')])\n"
        "group = Group('t', 0, [raw_batch(data, 0, read_header(data))], Kept(0, 1))\n"
        "assert decode(group, list(COLUMNS)[:7]).num_rows == 1\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_time_beyond_sparks_is_refused() -> None:
    raws = [raw(build_batch([Record(0, 1 << 62, None, b"v")]))]
    with pytest.raises(OverflowError, match="long overflow"):
        decode(Group("t", 0, raws, ALL), ["timestamp"])
