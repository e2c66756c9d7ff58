"""The header view: fields, iteration over torn and foreign bytes, changes in place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.batch import (
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    assemble,
    crc_is_valid,
    iter_batches,
    placed,
    read_header,
    read_magic,
    set_offset_and_epoch,
    set_timestamp,
)
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import Codec, Record, build_batch, iter_records

NOW = 1_700_000_000_000


def batch(count: int = 3, base_offset: int = 0, **options: object) -> bytes:
    records = [Record(base_offset + i, NOW + i, b"k%d" % i, b"v%d" % i) for i in range(count)]
    return build_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


def test_every_field_of_the_header() -> None:
    data = batch(
        base_offset=100,
        codec=Codec.ZSTD,
        leader_epoch=7,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=11,
        transactional=True,
    )
    header = read_header(data)
    assert header._replace(crc=0) == BatchHeader(
        base_offset=100,
        batch_length=len(data) - 12,
        leader_epoch=7,
        magic=2,
        crc=0,
        attributes=0x14,
        last_offset_delta=2,
        base_timestamp=NOW,
        max_timestamp=NOW + 2,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=11,
        records_count=3,
    )
    assert header.size_in_bytes == len(data)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (102, 103, 13)
    assert (header.codec, header.timestamp_type) == (Codec.ZSTD, CREATE_TIME)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.has_delete_horizon


@pytest.mark.parametrize(
    ("bit", "name"),
    [(0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")],
)
def test_attribute_bits(bit: int, name: str) -> None:
    header = read_header(batch())
    assert not getattr(header, name)
    assert getattr(header._replace(attributes=bit), name)


def test_sequences_wrap_and_may_be_missing() -> None:
    header = read_header(batch())
    assert header.last_sequence == -1
    assert header._replace(base_sequence=2147483646).last_sequence == 0
    assert header._replace(base_sequence=2147483645).last_sequence == 2147483647


@pytest.mark.parametrize("length", [0, 1, 12, 60])
def test_a_header_needs_its_61_bytes(length: int) -> None:
    with pytest.raises(ProtocolError, match="too few"):
        read_header(batch()[:length])
    with pytest.raises(ProtocolError, match="too few"):
        read_header(b"x" * 5 + batch()[:length], 5)


def test_magic_of_short_and_signed() -> None:
    assert read_magic(batch()) == 2
    assert read_magic(b"\0" * 16) == -1
    assert read_magic(b"\0" * 16 + b"\xfe") == -2
    assert read_magic(b"abc" + b"\0" * 16 + b"\x01", 3) == 1


def test_iterates_over_whole_batches_and_stops_before_a_torn_one() -> None:
    first, second = batch(2), batch(5, base_offset=2)
    data = first + second
    assert [(p, h.base_offset) for p, h in iter_batches(memoryview(data))] == [
        (0, 0),
        (len(first), 2),
    ]
    for cut in range(len(first), len(data)):
        assert [p for p, _ in iter_batches(data[:cut])] == [0]
    assert list(iter_batches(b"")) == []


def test_iteration_refuses_what_is_no_batch() -> None:
    good = batch()
    with pytest.raises(ProtocolError, match="magic 0"):
        list(iter_batches(good + b"\0" * HEADER_BYTES))
    small = bytearray(good)
    small[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="60 bytes"):
        list(iter_batches(small))
    negative = bytearray(good)
    negative[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="11 bytes"):
        list(iter_batches(negative))


def test_the_checksum_covers_everything_behind_it() -> None:
    data = bytearray(batch())
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert crc_is_valid(b"abc" + data, header, 3)
    for position in range(17, len(data)):
        data[position] ^= 1
        assert not crc_is_valid(data, read_header(data)), position
        data[position] ^= 1
    for position in (0, 12):  # offset and epoch lie outside
        data[position] ^= 1
        assert crc_is_valid(data, read_header(data))
        data[position] ^= 1


def test_offset_and_epoch_in_place() -> None:
    data = memoryview(bytearray(b"ab" + batch()))
    before = read_header(data, 2)
    set_offset_and_epoch(data, 2, 1 << 40, 9)
    header = read_header(data, 2)
    assert (
        header == placed(before, 1 << 40, 9) == before._replace(base_offset=1 << 40, leader_epoch=9)
    )
    assert isinstance(placed(before, 0, 0), BatchHeader)
    assert crc_is_valid(data, header, 2)
    assert bytes(data[:2]) == b"ab"


def test_stamping_the_time_of_the_append() -> None:
    data = memoryview(bytearray(b"ab" + batch(codec=Codec.LZ4)))
    stamped = set_timestamp(data, 2, read_header(data, 2), LOG_APPEND_TIME, NOW + 500)
    assert stamped == read_header(data, 2)
    assert (stamped.timestamp_type, stamped.codec) == (LOG_APPEND_TIME, Codec.LZ4)
    assert (stamped.base_timestamp, stamped.max_timestamp) == (NOW, NOW + 500)
    assert crc_is_valid(data, stamped, 2)
    assert {record.timestamp for record in iter_records(data, 2)} == {NOW + 500}
    back = set_timestamp(data, 2, stamped, CREATE_TIME, NOW + 2)
    assert bytes(data[2:]) == batch(codec=Codec.LZ4)
    assert back.timestamp_type == CREATE_TIME


def test_assemble_sets_length_and_checksum() -> None:
    data = batch()
    header = read_header(data)
    assert assemble(header._replace(batch_length=0, crc=0, magic=0), data[HEADER_BYTES:]) == data


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 80))
def test_no_bytes_raise_anything_but_protocol_errors(data: bytes, position: int) -> None:
    try:
        list(iter_batches(data))
        read_header(data, position)
    except ProtocolError:
        pass
