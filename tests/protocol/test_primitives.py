"""Variable-length integers against hand-made bytes, and ids against Kafka's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import (
    ZERO_UUID,
    read_uvarint,
    read_varint,
    skip_tagged_fields,
    uuid_from_str,
    uuid_to_str,
    write_uvarint,
    write_varint,
)
from wire_values import SMALL_AND_SAME

UNSIGNED = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**31 - 1, "ffffffff07"),
    (2**32 - 1, "ffffffff0f"),
]
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "text"), UNSIGNED)
def test_unsigned(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert write_uvarint(value) == data
    assert read_uvarint(b"?" + data + b"\xff", 1) == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            read_uvarint(data[:cut], 0)


@pytest.mark.parametrize(("value", "text"), SIGNED)
def test_signed(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert write_varint(value) == data
    assert read_varint(b"?" + data + b"\xff", 1) == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            read_varint(data[:cut], 0)


@SMALL_AND_SAME
@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trips(value: int) -> None:
    assert read_varint(write_varint(value), 0)[0] == value
    assert read_uvarint(write_uvarint(value & 0xFFFFFFFF), 0)[0] == value & 0xFFFFFFFF


@pytest.mark.parametrize("text", ["ffffffffff01", "ffffffff10", "8080808080808000"])
def test_unsigned_that_are_too_long(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(bytes.fromhex(text), 0)


@pytest.mark.parametrize("text", ["ff" * 10 + "01", "ff" * 9 + "02"])
def test_signed_that_are_too_long(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_varint(bytes.fromhex(text), 0)


def test_tagged_fields_are_stepped_over() -> None:
    fields = bytes.fromhex("05 02 aabb 8101 00")
    assert skip_tagged_fields(fields + b"rest", 0, 2, 3) == (len(fields), 1)
    assert skip_tagged_fields(b"rest", 0, 0, 0) == (0, 0)
    with pytest.raises(ProtocolError, match="too many tagged fields"):
        skip_tagged_fields(fields, 0, 2, 1)
    with pytest.raises(ProtocolError):
        skip_tagged_fields(bytes.fromhex("05 03 aabb"), 0, 1)


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAA", "00000000000000000000000000000000"),
        ("zPQP5IaNSRu_Hmhu2lFoCg", "ccf40fe4868d491bbf1e686eda51680a"),
        ("_____________________w", "ffffffffffffffffffffffffffffffff"),
        ("-_-_-_-_-_-_-_-_-_-_-w", "fbffbffbffbffbffbffbffbffbffbffb"),
    ],
)
def test_ids_as_kafka_prints_them(text: str, uuid: str) -> None:
    assert uuid_to_str(bytes.fromhex(uuid)) == text
    assert uuid_from_str(text).hex() == uuid
    assert len(ZERO_UUID) == 16


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "A" * 21, "A" * 23, "zPQP5IaNSRu/Hmhu2lFoCg", "=" * 22, "é" * 22, "A" * 21 + " "],
)
def test_texts_that_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="not "):
        uuid_from_str(text)
