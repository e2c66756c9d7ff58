"""The codecs: round trips, other clients' framings, truncation, bombs."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import zlib
from unittest import mock

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_protocol.compression import GZIP_MEMBERS_MAX, Codec, compress, decompress
from tidelog_protocol.errors import ProtocolError

CODECS = list(Codec)
COMPRESSING = [codec for codec in CODECS if codec]
DATA = bytes(range(256)) * 1000 + b"x" * 100_000
XERIAL = bytes.fromhex("82534e41505059000000000100000001")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"a", DATA], ids=["empty", "one", "large"])
def test_round_trip(codec: Codec, data: bytes) -> None:
    for given_as in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, given_as)
        assert isinstance(packed, bytes)
        assert decompress(codec, memoryview(packed)) == data


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=2000), st.integers(1, 40))
def test_round_trip_of_anything(codec: Codec, piece: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, piece * times)) == piece * times


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncated_input_is_a_protocol_error(codec: Codec) -> None:
    packed = compress(codec, b"some text that repeats, some text that repeats " * 20)
    for cut in range(len(packed)):
        if codec == Codec.SNAPPY and cut == len(XERIAL):
            continue  # a stream of no blocks is a whole one, of nothing
        if codec in (Codec.LZ4, Codec.ZSTD) and cut == 0:
            continue  # no frames: no bytes
        with pytest.raises(ProtocolError):
            decompress(codec, packed[:cut])


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=300), st.integers(0, 10**6))
def test_garbage_raises_nothing_else(codec: Codec, data: bytes, seed: int) -> None:
    good = bytearray(compress(codec, data * 3))
    if good:
        good[seed % len(good)] ^= 1 + seed % 255
    for bad in (data, bytes(good)):
        with contextlib.suppress(ProtocolError):
            assert len(decompress(codec, bad, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, DATA)
    assert decompress(codec, packed, len(DATA)) == DATA
    with pytest.raises(ProtocolError, match=r"limit|write whole buffer"):
        decompress(codec, packed, len(DATA) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_stopped_at_the_limit(codec: Codec) -> None:
    packed = compress(codec, bytes(50_000_000))
    assert len(packed) < 4_000_000
    with pytest.raises(ProtocolError):
        decompress(codec, packed, 1_000_000)


def test_a_zstd_frame_that_repeats_one_byte_forever() -> None:
    # Magic, no content size, window 128 KiB; then run-length blocks of 128 KiB at four bytes each.
    block = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    bomb = bytes.fromhex("28b52ffd0038") + block * 250_000
    with pytest.raises(ProtocolError):
        decompress(Codec.ZSTD, bomb, 1 << 20)


def test_a_snappy_block_that_lies_about_its_size() -> None:
    lie = b"\x80\x80\x80\x80\x04" + b"\x00a"  # "1073741824 bytes", in seven
    with pytest.raises(ProtocolError, match="promises"):
        decompress(Codec.SNAPPY, lie)
    with pytest.raises(ProtocolError, match="limit"):
        decompress(Codec.SNAPPY, lie, 1000)


def test_snappy_takes_java_streams_and_raw_blocks() -> None:
    packed = compress(Codec.SNAPPY, DATA)
    assert packed.startswith(XERIAL)
    raw = bytes(cramjam.snappy.compress_raw(DATA))  # librdkafka
    assert decompress(Codec.SNAPPY, raw) == DATA
    two = XERIAL + b"".join(
        len(block).to_bytes(4, "big") + block
        for block in (bytes(cramjam.snappy.compress_raw(part)) for part in (b"abc", b"defg"))
    )
    assert decompress(Codec.SNAPPY, two) == b"abcdefg"
    with pytest.raises(ProtocolError, match="block of"):
        decompress(Codec.SNAPPY, XERIAL + (1 << 30).to_bytes(4, "big") + b"abc")


def test_gzip_members_are_joined() -> None:
    out = io.BytesIO()
    for part in (b"abc", b"defg"):
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as member:
            member.write(part)
    assert decompress(Codec.GZIP, out.getvalue()) == b"abcdefg"
    assert zlib.decompress(compress(Codec.GZIP, DATA), 31) == DATA


def test_many_gzip_members_are_read_in_one_pass_and_their_number_is_limited() -> None:
    """8 MB of empty members took 129 s: each member copied all that followed it."""
    member = gzip.compress(b"ab", mtime=0)
    sizes: list[int] = []
    real = zlib.decompressobj

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._real = real(wbits)

        def decompress(self, data: memoryview, max_length: int) -> bytes:
            sizes.append(len(data))
            return self._real.decompress(data, max_length)

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    with mock.patch.object(zlib, "decompressobj", Counted):
        assert decompress(Codec.GZIP, member * GZIP_MEMBERS_MAX) == b"ab" * GZIP_MEMBERS_MAX
    assert sum(sizes) <= len(member) * GZIP_MEMBERS_MAX + GZIP_MEMBERS_MAX * 4096
    with pytest.raises(ProtocolError, match="gzip members"):
        decompress(Codec.GZIP, member * (GZIP_MEMBERS_MAX + 1))


@pytest.mark.parametrize(
    "second",
    [b"", b"x" * 5, DATA * 50, random.Random(1).randbytes(20_000)],
    ids=["none", "few", "large", "noise"],
)
def test_a_second_gzip_member_of_any_size(second: bytes) -> None:
    data = gzip.compress(DATA, mtime=0) + gzip.compress(second, mtime=0)
    size = len(DATA) + len(second)
    assert decompress(Codec.GZIP, data, size) == DATA + second
    if second:
        with pytest.raises(ProtocolError, match="above the limit"):
            decompress(Codec.GZIP, data, size - 1)
    for cut in (1, 4, len(data) // 2):
        with pytest.raises(ProtocolError):
            decompress(Codec.GZIP, data[:-cut])


def test_lz4_frames_have_independent_blocks_and_linked_ones_are_read() -> None:
    packed = compress(Codec.LZ4, DATA)
    assert packed[:7] == bytes.fromhex("04224d18604082")  # Java refuses frames with linked blocks
    assert bytes(cramjam.lz4.decompress(packed)) == DATA
    linked = bytes(cramjam.lz4.compress(DATA))
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked) == DATA
    skippable = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Codec.LZ4, packed + packed) == DATA * 2
    with pytest.raises(ProtocolError):
        decompress(Codec.LZ4, skippable[:9] + packed)


def test_incompressible_lz4_blocks_are_stored() -> None:
    noise = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "big") for i in range(30_000))
    packed = compress(Codec.LZ4, noise)
    assert len(packed) <= len(noise) + 7 + 4 * 3
    assert decompress(Codec.LZ4, packed) == noise


def test_zstd_frames_of_several_kinds() -> None:
    whole = bytes(cramjam.zstd.compress(DATA))
    assert decompress(Codec.ZSTD, whole + whole) == DATA * 2
    streamed = cramjam.zstd.Compressor()
    streamed.compress(DATA)
    flushed = bytes(streamed.flush())
    streamed.compress(DATA)
    assert decompress(Codec.ZSTD, flushed + bytes(streamed.finish())) == DATA * 2


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(ProtocolError, match="unknown compression codec"):
        decompress(codec, b"")


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 9), (Codec.ZSTD, 19), (Codec.LZ4, 9)])
def test_levels(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, DATA, level)) == DATA
