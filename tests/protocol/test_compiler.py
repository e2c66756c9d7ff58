"""Compiled codecs on a small table: golden bytes by version, both ways."""

from __future__ import annotations

import pytest

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.schema import (
    Message,
    Records,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)


class Sample(Message, versions="0-3", flexible="2+"):
    """Two legacy versions, two flexible ones."""

    class Item(Struct):
        name: str = string()
        number: int = int16("1+", default=7)
        note: str | None = string("3+", nullable="3+", tag=1, default=None)

    class Leader(Struct):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)

    first: int = int8()
    flag: bool = boolean("1+")
    items: list[Item] | None = array(Item, nullable="1+")
    numbers: list[int] = array(int32)
    data: bytes | None = bytes_(nullable="0+", default=None)
    leader: Leader | None = struct(Leader, "3+", tag=0)
    offset: int = int64("3+", tag=5, default=-1)
    cursor: Leader | None = struct(Leader, "3+", nullable="3+")


GOLDEN = [
    (0, Sample(), "00 00000000 00000000 ffffffff"),
    (
        0,
        Sample(first=-1, items=[Sample.Item(name="ab")], numbers=[1, -2], data=b"xy"),
        "ff 00000001 0002 6162 00000002 00000001 fffffffe 00000002 7879",
    ),
    (1, Sample(items=None, flag=True), "00 01 ffffffff 00000000 ffffffff"),
    (
        1,
        Sample(items=[Sample.Item(name="ab", number=9), Sample.Item()]),
        "00 00 00000002 0002 6162 0009 0000 0007 00000000 ffffffff",
    ),
    (2, Sample(items=None), "00 00 00 01 00 00"),
    (
        2,
        Sample(items=[Sample.Item(name="ab")], numbers=[1], data=b""),
        "00 00 02 03 6162 0007 00 02 00000001 01 00",
    ),
    (3, Sample(items=[]), "00 00 01 01 00 ff 00"),
    (
        3,
        Sample(
            items=[Sample.Item(name="a", note="n")],
            leader=Sample.Leader(leader_id=1),
            offset=2,
            cursor=Sample.Leader(),
        ),
        "00 00 02 02 61 0007 01 01 02 02 6e 01 00 01 ffffffff ffffffff 00"
        "02 00 09 00000001 ffffffff 00 05 08 0000000000000002",
    ),
    # A tagged structure of nothing but defaults isn't written.
    (3, Sample(items=[], leader=Sample.Leader()), "00 00 01 01 00 ff 00"),
]


@pytest.mark.parametrize(("version", "message", "text"), GOLDEN)
def test_golden_bytes_both_ways(version: int, message: Sample, text: str) -> None:
    each = codec(Sample, version)
    data = bytes.fromhex(text)
    assert each.encode(message).hex(" ") == data.hex(" ")
    assert each.encode_parts(message) == [data]
    decoded = each.decode(data)
    if message.leader == Sample.Leader():
        message = Sample(items=[])
    assert decoded == message
    assert each.decode(b"before" + data + b"after", 6) == message


@pytest.mark.parametrize(("count", "turns"), [(0, 0), (2047, 0), (2048, 1), (10_000, 4)])
@pytest.mark.parametrize("version", range(4))
def test_large_messages_are_encoded_in_turns(version: int, count: int, turns: int) -> None:
    message = Sample(items=[Sample.Item(name=str(number)) for number in range(count)])
    encoding = codec(Sample, version).encode_in_turns(message)
    taken = 0
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            parts = end.value
            break
        taken += 1
    assert taken == turns
    assert b"".join(parts) == codec(Sample, version).encode(message)


def test_compact_lengths_grow_to_more_bytes() -> None:
    each = codec(Sample, 2)
    message = Sample(
        items=[Sample.Item(name="n" * 126), Sample.Item(name="n" * 127)],
        numbers=list(range(200)),
        data=b"d" * 20_000,
    )
    data = each.encode(message)
    assert data[3] == 127
    assert data[3 + 1 + 126 + 3 :][:2] == b"\x80\x01"
    assert each.decode(data) == message


def test_fields_of_other_versions_are_left_out() -> None:
    message = Sample(flag=True, items=[Sample.Item(name="x", number=99)], offset=5)
    assert codec(Sample, 0).encode(message) == codec(Sample, 0).encode(
        Sample(items=[Sample.Item(name="x")])
    )


def test_null_where_none_is_allowed() -> None:
    with pytest.raises(ProtocolError, match="array beyond the end"):
        codec(Sample, 0).decode(bytes.fromhex("00 ffffffff 00000000 ffffffff"))
    with pytest.raises(ProtocolError, match="length beyond the end"):
        codec(Sample, 2).decode(bytes.fromhex("00 00 02 00 0007 00 01 00 00"))
    with pytest.raises(TypeError):
        codec(Sample, 0).encode(Sample(items=None))


@pytest.mark.parametrize(
    "tags",
    [
        "01 00 08 00000001 ffffffff 00",  # a byte too few
        "01 00 0a 00000001 ffffffff 00 00",  # a byte too many
        "01 05 09 0000000000000002 00",
        "01 05 ff",
        "02 05 08 0000000000000002",
    ],
)
def test_known_tagged_fields_must_have_their_size(tags: str) -> None:
    with pytest.raises(ProtocolError):
        codec(Sample, 3).decode(bytes.fromhex("00 00 01 01 00 ff" + tags))


def test_known_and_unknown_tagged_fields_in_any_order() -> None:
    each = codec(Sample, 3)
    tags = "04 63 01 aa 05 08 0000000000000002 8101 02 bbbb 00 09 00000001 00000002 00"
    decoded = each.decode(bytes.fromhex("00 00 01 01 00 ff" + tags))
    assert decoded == Sample(items=[], offset=2, leader=Sample.Leader(leader_id=1, leader_epoch=2))


def test_text_that_isnt_utf8_is_replaced_as_java_does() -> None:
    data = bytes.fromhex("00 00000001 0002 ff61 00000000 ffffffff")
    assert codec(Sample, 0).decode(data).items == [Sample.Item(name="\ufffda")]


def test_a_table_has_only_its_versions() -> None:
    for version in (-1, 4):
        with pytest.raises(ProtocolError, match="Sample has no version"):
            codec(Sample, version)
    assert codec(Sample, 3) is codec(Sample, 3)
    assert repr(codec(Sample, 3)) == "<Codec Sample v3>"
    assert [codec(Sample, version).flexible for version in range(4)] == [False, False, True, True]


class Batches(Message, versions="0-1", flexible="1+"):
    """Records between other fields."""

    class Part(Struct):
        records: Records | None = record_data(nullable="0+")
        index: int = int32()

    ids: list[bytes] = array(uuid)
    names: list[str] = array(string)
    parts: list[Part] = array(Part)


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_views_when_decoded_and_references_when_encoded(version: int) -> None:
    each = codec(Batches, version)
    large = bytes(range(256)) * 40
    message = Batches(
        ids=[bytes(range(16)), bytes(16)],
        names=["a", ""],
        parts=[
            Batches.Part(records=large, index=1),
            Batches.Part(records=None, index=2),
            Batches.Part(records=b"", index=3),
            Batches.Part(records=b"small", index=4),
        ],
    )
    parts = each.encode_parts(message)
    assert parts[1] is large
    assert len(parts) == 3, "small batches are copied"
    data = each.encode(message)
    assert data == b"".join(parts)
    frame = bytearray(data)
    decoded = each.decode(frame)
    assert decoded == message
    first = decoded.parts[0].records
    assert isinstance(first, memoryview)
    frame[frame.index(large)] = 255
    assert first[0] == 255, "a view, not a copy"
    assert each.decode(data).parts[0].records == large, "from bytes as well"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("kind", [list, tuple])
def test_records_may_come_in_parts(version: int, kind: type) -> None:
    each = codec(Batches, version)
    pieces = kind([b"x" * 1000, memoryview(b"y" * 1000)])
    message = Batches(parts=[Batches.Part(records=pieces)])
    parts = each.encode_parts(message)
    assert parts[1] is pieces[0]
    assert parts[2] is pieces[1]
    assert each.decode(b"".join(parts)).parts[0].records == b"x" * 1000 + b"y" * 1000
    few = Batches(parts=[Batches.Part(records=kind([b"x", b"y"])), Batches.Part(records=kind([]))])
    assert len(each.encode_parts(few)) == 1
    assert [part.records for part in each.decode(each.encode(few)).parts] == [b"xy", b""]


class Nested(Message, versions="0-2", flexible="2+"):
    """A structure that is neither nullable nor tagged, and arrays of what has no fixed size."""

    class Place(Struct):
        class Point(Struct):
            x: int = int8(default=-1)

        name: str = string()
        point: Point = struct(Point)

    blobs: list[bytes] = array(bytes_)
    place: Place = struct(Place, "1+")
    places: list[Place] = array(Place, "1+")


@pytest.mark.parametrize(
    ("version", "message", "text"),
    [
        (0, Nested(blobs=[b"a", b""]), "00000002 00000001 61 00000000"),
        (1, Nested(), "00000000 0000 ff 00000000"),
        (
            1,
            Nested(
                place=Nested.Place(name="p", point=Nested.Place.Point(x=1)), places=[Nested.Place()]
            ),
            "00000000 0001 70 01 00000001 0000 ff",
        ),
        (2, Nested(blobs=[b"a"]), "02 02 61 01 ff 00 00 01 00"),
    ],
)
def test_plain_structures(version: int, message: Nested, text: str) -> None:
    each = codec(Nested, version)
    data = bytes.fromhex(text)
    assert each.encode(message).hex(" ") == data.hex(" ")
    assert each.decode(data) == message
    assert each.decode(data).place is not each.decode(data).place
