"""Framing: every split of the stream, every size that can't be, headers good and bad."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.request_headers import decode_request_header
from tidelog_protocol import frames as frames_module
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import (
    HEADER_TAGS_MAX,
    FrameReader,
    RequestHeader,
    decode_response_header,
    request_frame,
    response_frame,
)
from tidelog_protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from tidelog_protocol.messages.data import FetchResponse, ProduceRequest
from tidelog_protocol.primitives import write_uvarint
from wire_values import SMALL_AND_SAME

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 1 << 20


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def shared(size: int = 4096) -> memoryview:
    return memoryview(bytearray(size))


def feed(reader: FrameReader, chunks: Iterable[bytes]) -> list[bytes]:
    """Deliver chunks as a socket would: as much of each as the reader has room for."""
    got = []
    for chunk in chunks:
        rest = chunk
        while rest:
            room = reader.writable()
            assert len(room) > 0
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            got += [bytes(frame) for frame in reader.received(count)]
            rest = rest[count:]
    return got


def body(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


# Sizes around the borders: carried or private, within the shared buffer or beyond it.
SIZES = [0, 1, 3, 4, 100, 2043, 2044, 2045, 2048, 4091, 4092, 4093, 4096, 9000, 70_000]


def test_byte_by_byte() -> None:
    bodies = [body(size, size) for size in (0, 1, 5, 2044, 4092, 4093, 9000)]
    stream = b"".join(map(framed, bodies))
    reader = FrameReader(LIMIT, shared())
    assert feed(reader, (stream[at : at + 1] for at in range(len(stream)))) == bodies
    assert not reader.pending


def test_every_split_in_two() -> None:
    bodies = [body(size) for size in (3, 0, 150, 10)]
    stream = b"".join(map(framed, bodies))
    for cut in range(len(stream) + 1):
        reader = FrameReader(LIMIT, shared(128))
        assert feed(reader, [stream[:cut], stream[cut:]]) == bodies
        assert not reader.pending


@settings(SMALL_AND_SAME, max_examples=150)
@given(st.lists(st.sampled_from(SIZES), max_size=12), st.integers(0, 2**32), st.integers(1, 20_000))
def test_random_chunks(sizes: list[int], seed: int, chunk_max: int) -> None:
    chance = random.Random(seed)
    bodies = [body(size, size) for size in sizes]
    stream = b"".join(map(framed, bodies))
    chunks = []
    while stream:
        count = chance.randint(1, chunk_max)
        chunks.append(stream[:count])
        stream = stream[count:]
    reader = FrameReader(LIMIT, shared())
    assert feed(reader, chunks) == bodies
    assert not reader.pending


def test_connections_share_one_buffer() -> None:
    """What is left of one connection's frame survives what the others receive."""
    buffer = shared()
    readers = [FrameReader(LIMIT, buffer) for _ in range(4)]
    bodies = [[body(size, size * 7 + number) for size in SIZES] for number in range(4)]
    streams = [b"".join(map(framed, each)) for each in bodies]
    got: list[list[bytes]] = [[] for _ in readers]
    chance = random.Random(5)
    while any(streams):
        number = chance.randrange(4)
        count = chance.choice((1, 2, 700, 3000, 9000))
        got[number] += feed(readers[number], [streams[number][:count]])
        streams[number] = streams[number][count:]
    assert got == bodies


def test_frames_are_views_of_the_shared_buffer() -> None:
    buffer = shared()
    reader = FrameReader(LIMIT, buffer)
    stream = framed(b"one") + framed(b"two")
    reader.writable()[: len(stream)] = stream
    one, two = reader.received(len(stream))
    assert (one, two) == (b"one", b"two")
    one[0:1] = b"O"
    assert bytes(buffer[4:7]) == b"One"


def test_pending_is_true_within_a_frame() -> None:
    reader = FrameReader(LIMIT, shared())
    stream = framed(body(9000))
    assert not reader.pending
    for cut in (2, 50, 5000):
        assert feed(reader, [stream[:cut]]) == []
        assert reader.pending
        assert feed(reader, [stream[cut:]]) == [body(9000)]
        assert not reader.pending


def test_asking_for_room_again_without_receiving_changes_nothing() -> None:
    """A socket may turn out to have nothing after all."""
    reader = FrameReader(LIMIT, shared())
    stream = framed(body(9000))
    for cut in (0, 3, 40, 5000):
        feed(reader, [stream[:cut]])
        reader.writable()
        reader.writable()
        assert feed(reader, [stream[cut:]]) == [body(9000)]


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1, 0x16030100])
def test_sizes_that_cannot_be(size: int) -> None:
    reader = FrameReader(LIMIT, shared())
    with pytest.raises(ProtocolError, match="the limit is"):
        feed(reader, [struct.pack(">i", size)])
    with pytest.raises(ProtocolError):
        feed(reader, [framed(b"good")])


def test_good_frames_before_a_bad_size_are_given() -> None:
    reader = FrameReader(LIMIT, shared())
    assert feed(reader, [framed(b"good") + framed(b"too") + b"\xff\xff\xff\xff rest"]) == [
        b"good",
        b"too",
    ]
    assert isinstance(reader.error, ProtocolError)
    with pytest.raises(ProtocolError):
        feed(reader, [b"x"])


def test_the_largest_frame_allowed() -> None:
    reader = FrameReader(5000, shared())
    assert feed(reader, [framed(body(5000))]) == [body(5000)]


def test_a_peer_cannot_make_us_hold_much_more_than_it_sent() -> None:
    limit = 1 << 30
    reader = FrameReader(limit, shared())
    feed(reader, [struct.pack(">i", limit) + body(3000)])
    assert len(reader.writable()) <= frames_module.PRIVATE_BYTES_FIRST


def test_a_large_frame_grows_its_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "PRIVATE_BYTES_FIRST", 6000)
    reader = FrameReader(LIMIT, shared())
    large = body(100_000)
    assert feed(reader, [framed(large) + framed(b"next")]) == [large, b"next"]
    # Frames of middling size use one private buffer again and again.
    assert feed(reader, [framed(body(5500, n)) for n in range(4)]) == [
        body(5500, n) for n in range(4)
    ]


def test_a_very_large_frame_has_a_buffer_of_its_size_that_is_filled_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """90 MB were copied each time that the buffer grew, and received in one piece."""
    monkeypatch.setattr(frames_module, "PRIVATE_BYTES_FIRST", 6000)
    monkeypatch.setattr(frames_module, "DOUBLED_BYTES_MAX", 20_000)
    monkeypatch.setattr(frames_module, "RECEIVED_BYTES_MAX", 7000)
    reader = FrameReader(LIMIT, shared())
    large = body(100_000)
    for end in (10_000, 50_000):
        start = 0 if end == 10_000 else 10_000
        assert feed(reader, [framed(large)[start:end]]) == []
        assert len(reader.writable()) <= 7000
        assert end / 2 < reader.unfinished_bytes < 2 * end  # what takes memory
    assert feed(reader, [framed(large)[50_000:] + framed(b"next")]) == [large, b"next"]
    assert reader.unfinished_bytes == 0


def test_a_private_buffer_is_used_again_and_then_let_go() -> None:
    reader = FrameReader(LIMIT, shared())
    stream = framed(body(9000))

    def private() -> int:
        feed(reader, [stream[:4096]])
        at = id(reader.writable().obj)
        feed(reader, [stream[4096:]])
        return at

    assert private() == private()
    assert reader._spare is not None
    feed(reader, [framed(b"small")])
    assert reader._spare is None


# Headers


def test_request_headers_by_version() -> None:
    for api_key, version, tags in [(ApiKey.METADATA, 8, b""), (ApiKey.METADATA, 9, b"\0")]:
        head = struct.pack(">hhih", api_key, version, 77, 2) + b"id" + tags
        header, position = decode_request_header(head + b"body")
        assert header == RequestHeader(api_key, version, 77, "id")
        assert position == len(head)


def test_request_header_without_a_client_id_and_with_unknown_tags() -> None:
    head = struct.pack(">hhih", ApiKey.FETCH, 12, -5, -1) + b"\x01\x05\x02xy"
    assert decode_request_header(head + b"?") == (RequestHeader(1, 12, -5, None), len(head))


def test_tagged_fields_of_a_request_header_are_limited() -> None:
    """The 10 MB of empty tagged fields of one header took the loop 4.4 s."""
    head = struct.pack(">hhih", ApiKey.FETCH, 12, -5, -1)
    allowed = head + write_uvarint(HEADER_TAGS_MAX) + b"\x05\0" * HEADER_TAGS_MAX
    assert decode_request_header(allowed)[1] == len(allowed)
    # Nothing follows: the number alone is refused.
    with pytest.raises(ProtocolError, match="too many tagged fields"):
        decode_request_header(head + write_uvarint(HEADER_TAGS_MAX + 1))


def test_a_client_id_that_isnt_utf8_is_replaced() -> None:
    head = struct.pack(">hhih", ApiKey.FETCH, 4, 0, 2) + b"\xffa"
    assert decode_request_header(head)[0].client_id == "\ufffda"


def test_headers_of_unknown_apis_and_versions_are_read_too() -> None:
    head = struct.pack(">hhih", 999, 3, 1, 1) + b"c"
    assert decode_request_header(head) == (RequestHeader(999, 3, 1, "c"), 11)
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, 1) + b"c\0"
    assert decode_request_header(head) == (RequestHeader(18, 99, 1, "c"), 12)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">hhih", 1, 4, 0, 3) + b"ab",
        struct.pack(">hhih", 1, 12, 0, -1),
        struct.pack(">hhih", 1, 12, 0, -1) + b"\x01",
        struct.pack(">hhih", 1, 12, 0, -1) + b"\x01\x05\x09",
        struct.pack(">hhih", 1, 12, 0, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
)
def test_headers_that_break_off(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request_header(frame)


@pytest.mark.parametrize("length", [-1, -2, -32768])
def test_any_negative_length_is_no_client_id(length: int) -> None:
    head = struct.pack(">hhih", 1, 4, 7, length)
    assert decode_request_header(head) == (RequestHeader(1, 4, 7, None), 10)


def test_no_prefix_of_a_header_is_one() -> None:
    head = struct.pack(">hhih", ApiKey.FETCH, 12, 7, 3) + b"abc" + b"\x01\x05\x02xy"
    for cut in range(len(head)):
        with pytest.raises(ProtocolError):
            decode_request_header(head[:cut])


def test_response_headers() -> None:
    fetch, versions = API[ApiKey.FETCH], API[ApiKey.API_VERSIONS]
    assert decode_response_header(fetch, 11, b"\0\0\0\x07rest") == (7, 4)
    assert decode_response_header(fetch, 12, b"\0\0\0\x07\x01\x09\x01xrest") == (7, 8)
    assert decode_response_header(versions, 4, b"\0\0\0\x07") == (7, 4)
    for short in (b"\0\0\0", b"\0\0\0\x07", b"\0\0\0\x07\x01\x09"):
        with pytest.raises(ProtocolError):
            decode_response_header(fetch, 12, short)


# Whole frames


def test_small_frames_are_one_bytes_object() -> None:
    header = RequestHeader(ApiKey.METADATA, 12, 5, "me")
    api = API[ApiKey.METADATA]
    request = MetadataRequest(topics=None)
    (frame,) = request_frame(api, header, request)
    read, position = decode_request_header(frame[4:])
    assert read == header
    assert api.request_codec(12).decode(frame[4:], position) == request
    assert len(response_frame(api, header, api.response())) == 1


def test_a_request_without_a_client_id() -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 0, 5, None)
    (frame,) = request_frame(API[ApiKey.API_VERSIONS], header, ApiVersionsRequest())
    assert frame == bytes.fromhex("0000000a 0012 0000 00000005 ffff")


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_batches_of_a_response_are_neither_copied_nor_joined(version: int) -> None:
    segment = memoryview(body(50_000))
    pieces = [segment[:20_000], segment[20_000:40_000]]
    partition = FetchResponse.PartitionData
    message = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                partitions=[
                    partition(partition_index=0, records=segment[40_000:]),
                    partition(partition_index=1, records=pieces),
                    partition(partition_index=2, records=None),
                    partition(partition_index=3, records=b"few"),
                ]
            )
        ]
    )
    api = API[ApiKey.FETCH]
    parts = response_frame(api, RequestHeader(1, version, 9, None), message)
    assert [each for each in parts if type(each) is memoryview] == [segment[40_000:], *pieces]
    assert all(each.obj is segment.obj for each in parts if type(each) is memoryview)
    assert len(parts) == 6
    frame = b"".join(parts)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 9)
    _, position = decode_response_header(api, version, frame[4:])
    decoded = api.response_codec(version).decode(frame[4:], position)
    records = [bytes(each.records or b"") for each in decoded.responses[0].partitions]
    assert records == [bytes(segment[40_000:]), bytes(segment[:40_000]), b"", b"few"]


def test_batches_of_a_request_are_neither_copied_nor_joined() -> None:
    batch = memoryview(body(10_000))
    topic = ProduceRequest.TopicProduceData(
        partition_data=[ProduceRequest.PartitionProduceData(index=3, records=batch)]
    )
    message = ProduceRequest(acks=-1, topic_data=[topic])
    header = RequestHeader(ApiKey.PRODUCE, 13, 1, "c")
    parts = request_frame(API[ApiKey.PRODUCE], header, message)
    assert [type(each) for each in parts] == [bytes, bytes, memoryview, bytes]
    frame = memoryview(bytearray(b"".join(parts)))[4:]
    _, position = decode_request_header(frame)
    decoded = API[ApiKey.PRODUCE].request_codec(13).decode(frame, position)
    (data,) = decoded.topic_data[0].partition_data
    assert data.records == batch
    assert data.records.obj is frame.obj, "a view of the frame itself"
    assert not data.records.readonly
