"""Records in batches: Kafka's own bytes both ways, limits, anything built is read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.vectors import load_yaml
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    BatchHeader,
    Codec,
    ControlType,
    Record,
    build_batch,
    build_end_transaction_marker,
    build_own_batch,
    control_type,
    coordinator_epoch,
    crc_is_valid,
    iter_batches,
    iter_records,
    read_header,
    records_payload,
    set_offset_and_epoch,
    with_codec,
)

VECTORS = Path(__file__).parent / "vectors"
KAFKA = VECTORS / "kafka-4.3.1"
GOLDEN = {case["name"]: case for case in load_yaml(VECTORS / "record-batches.yaml")["cases"]}
NOW = 1_700_000_000_000


# -- Kafka's own bytes


def test_golden_plain() -> None:
    built = build_batch(
        [Record(0, NOW, b"k0", b"v0"), Record(1, NOW + 5, None, b"v1", (("h", b"x"),))],
        leader_epoch=5,
    )
    assert built.hex() == GOLDEN["batch without producer"]["hex"]
    assert len(built) == GOLDEN["batch without producer"]["size"]


def test_golden_in_a_transaction() -> None:
    built = build_batch(
        [Record(100, NOW, b"k0", b"v0")],
        base_offset=100,
        leader_epoch=5,
        producer_id=4000,
        producer_epoch=7,
        base_sequence=11,
        transactional=True,
    )
    assert built.hex() == GOLDEN["batch in a transaction"]["hex"]


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_golden_markers(kind: ControlType) -> None:
    marker_batch = build_end_transaction_marker(
        kind, producer_id=4000, producer_epoch=7, coordinator_epoch=3, timestamp=NOW + 9
    )
    built = bytearray(marker_batch)
    set_offset_and_epoch(built, 0, 101, 5)
    assert built.hex() == GOLDEN[f"{kind.name.lower()} marker"]["hex"]
    (marker,) = iter_records(built)
    assert control_type(marker) == kind
    assert coordinator_epoch(marker) == 3


@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden_read_and_built_again(name: str) -> None:
    data = bytes.fromhex(GOLDEN[name]["hex"])
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert rebuilt(header, list(iter_records(data))) == data


def rebuilt(header: BatchHeader, records: list[Record]) -> bytes:
    return build_batch(
        records,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        timestamp_type=header.timestamp_type,
    )


def expected(index: int) -> Record:
    """What the producer of the fixture topics sent, as DumpLogSegments prints it."""
    key = None if index % 5 == 4 else b"k%d" % index
    value = None if index == 6 else b"v%d-xxxxxxxxxxxxxxxxxxxx" % index
    headers = ((f"h{index}", b""), ("nul", None)) if index % 3 == 0 else ()
    return Record(index, NOW + index, key, value, headers)


@pytest.mark.parametrize("codec", list(Codec))
def test_segments_of_every_codec(codec: Codec) -> None:
    data = (KAFKA / f"fc-{codec.name.lower()}.log").read_bytes()
    ((position, header),) = iter_batches(data)
    assert (position, header.codec, header.size_in_bytes) == (0, codec, len(data))
    assert crc_is_valid(data, header)
    records = list(iter_records(data))
    assert [r._replace(headers=()) for r in records] == [
        expected(i)._replace(headers=()) for i in range(10)
    ]
    assert [[name for name, _ in r.headers] for r in records] == [
        [name for name, _ in expected(i).headers] for i in range(10)
    ]
    if not codec:
        assert rebuilt(header, records) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_recompression_keeps_records_and_header(codec: Codec) -> None:
    data = (KAFKA / "fc-gzip.log").read_bytes()
    header = read_header(data)
    packed = with_codec(header, codec, records_payload(data, header))
    changed = read_header(packed)
    assert crc_is_valid(packed, changed)
    assert changed == header._replace(
        crc=changed.crc, batch_length=len(packed) - 12, attributes=int(codec)
    )
    assert list(iter_records(packed)) == list(iter_records(data))


def test_a_log_of_transactions() -> None:
    data = (KAFKA / "ftxn-10.log").read_bytes()
    seen = []
    for position, header in iter_batches(data):
        assert crc_is_valid(data, header, position)
        records = list(iter_records(data, position))
        assert [record.offset for record in records] == list(
            range(header.base_offset, header.next_offset)
        )
        if header.is_control:
            seen.append((header.base_offset, ControlType(control_type(records[0])).name))
            assert coordinator_epoch(records[0]) == 0
    assert seen == [
        (10, "COMMIT"),
        (16, "ABORT"),
        (22, "COMMIT"),
        (28, "ABORT"),
        (32, "COMMIT"),
    ]


# -- anything

nullable = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), nullable), max_size=3).map(tuple)
contents = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-1, 2**62), nullable, nullable, headers),
    min_size=1,
    max_size=20,
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**62))
    records = []
    for gap, timestamp, key, value, fields in draw(contents):
        offset += gap
        records.append(Record(offset, timestamp, key, value, fields))
        offset += 1
    return records


@settings(derandomize=True, max_examples=150, deadline=None)
@given(record_lists(), st.sampled_from(list(Codec)), st.booleans())
def test_what_is_built_is_read(records: list[Record], codec: Codec, log_append: bool) -> None:
    data = build_batch(
        records,
        base_offset=records[0].offset,
        codec=codec,
        timestamp_type=LOG_APPEND_TIME if log_append else CREATE_TIME,
    )
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert header.last_offset == records[-1].offset
    largest = max(record.timestamp for record in records)
    assert header.max_timestamp == largest
    if log_append:
        records = [record._replace(timestamp=largest) for record in records]
    assert list(iter_records(memoryview(b"pad" + data), 3)) == records


optional_bytes = st.none() | st.binary(max_size=70) | st.integers(64, 20_000).map(bytes)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(optional_bytes, optional_bytes), min_size=1, max_size=70),
    st.integers(0, 2**62),
    st.sampled_from(list(Codec)),
)
def test_a_broker_builds_its_own_records_in_the_same_bytes(
    pairs: list[tuple[bytes | None, bytes | None]], base_offset: int, codec: Codec
) -> None:
    header, data = build_own_batch(pairs, NOW, base_offset, 7, codec)
    records = [Record(base_offset + n, NOW, key, value) for n, (key, value) in enumerate(pairs)]
    assert data == build_batch(records, base_offset=base_offset, leader_epoch=7, codec=codec)
    read = read_header(data)
    assert header._replace(batch_length=read.batch_length, crc=read.crc) == read


@settings(derandomize=True, max_examples=200, deadline=None)
@given(record_lists(), st.sampled_from(list(Codec)), st.data())
def test_corruption_raises_nothing_but_protocol_errors(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    built = bytearray(build_batch(records, base_offset=records[0].offset, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(built) - 1))
        built[position] ^= data.draw(st.integers(1, 255))
    try:
        for record in iter_records(built, size_max=100_000):
            assert isinstance(record, Record)
    except ProtocolError:
        pass


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_cut_anywhere_is_no_batch(codec: Codec) -> None:
    data = build_batch([Record(i, NOW, b"key", b"value") for i in range(5)], codec=codec)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            list(iter_records(data[:cut]))


# -- what does not fit


def with_payload(payload: bytes, count: int = 1) -> bytes:
    header = read_header(build_batch([Record(0, NOW, None, None)]))
    return with_codec(header._replace(records_count=count), Codec.NONE, payload)


GOOD = bytes.fromhex("0c000000010100")  # null key, null value, no headers


@pytest.mark.parametrize(
    ("payload", "count", "message"),
    [
        (GOOD, 2, "varint ends early"),
        (GOOD + b"\0", 1, "1 bytes left after 1 records"),
        (b"\x0e" + GOOD[1:], 1, "record of 7 bytes, 6 left"),
        (b"\x01" + GOOD[1:], 1, "record of -1 bytes"),
        (bytes.fromhex("0e00000001010000"), 1, "ends -1 bytes"),
        (bytes.fromhex("0a00000001010000")[:7], 1, "ends +1 bytes"),
        (bytes.fromhex("0c000000030100"), 1, "field of -2 bytes"),
        (bytes.fromhex("0c000000100100"), 1, "field of 8 bytes, 2 left"),
        (bytes.fromhex("0c000000010102"), 1, "record with 1 headers"),
        (bytes.fromhex("0c000000010101"), 1, "record with -1 headers"),
        (bytes.fromhex("100000000101020101"), 1, "header without a key"),
        (b"\xff\xff\xff\xff\xff\x01" + GOOD, 1, "longer than 32 bits"),
        (b"\xff\xff\xff\xff\x7f" + GOOD, 1, "longer than 32 bits"),
        (b"\x24\x00" + b"\xff" * 10 + b"\x01" + GOOD, 1, "longer than 64 bits"),
    ],
)
def test_malformed_records(payload: bytes, count: int, message: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(message)):
        list(iter_records(with_payload(payload, count)))


def test_the_good_record_of_these_cases_is_good() -> None:
    assert list(iter_records(with_payload(GOOD))) == [Record(0, NOW, None, None)]


def test_decompression_is_bounded() -> None:
    data = build_batch([Record(0, NOW, None, bytes(1_000_000))], codec=Codec.ZSTD)
    assert len(data) < 1000
    with pytest.raises(ProtocolError):
        list(iter_records(data, size_max=1000))


def test_an_empty_batch_of_compaction() -> None:
    header = read_header(build_batch([Record(7, NOW, b"k", b"v")], base_offset=7))
    empty = with_codec(header._replace(records_count=0, attributes=int(Codec.LZ4)), Codec.NONE, b"")
    assert list(iter_records(empty)) == []
    lz4 = header._replace(records_count=0, attributes=int(Codec.LZ4), batch_length=49)
    assert records_payload(b"\0" * 61, lz4) == b""


def test_header_keys_that_are_no_text_survive() -> None:
    raw = build_batch([Record(0, NOW, None, None, (("ab", b""),))]).replace(
        b"\x04ab", b"\x04\xff\xfe"
    )
    (record,) = iter_records(raw)
    assert build_batch([record])[61:] == raw[61:]


@pytest.mark.parametrize("field", ["key", "value"])
def test_control_records_are_checked(field: str) -> None:
    marker = Record(0, NOW, bytes(4), bytes(6))
    read = control_type if field == "key" else coordinator_epoch
    assert read(marker) == 0
    for bad in (None, b"", b"\0\0\0", b"\xff\xff\0\0\0\0"):
        with pytest.raises(ProtocolError):
            read(marker._replace(**{field: bad}))
