"""The four codecs of record batches, by their attribute bits.

Used only when the broker must look inside a batch: recompression by `compression.type`, compacted
topics, and its own readers. The C libraries are imported on first use. Input is never trusted: each
codec is decompressed against a limit, and anything wrong is a `ProtocolError`.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception class, named like one
from typing import TYPE_CHECKING, Any

from tidelog_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes; the names in lower case are `compression.type`'s values."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DECOMPRESSED_BYTES_MAX = 2147483639
"""Default bound of a decompressed batch (`max.decompressed.message.bytes`)."""

GZIP_MEMBERS_MAX = 1000
"""Members of one batch's gzip stream; clients write one."""

_GZIP_WINDOW_BYTES = 4096  # of the first call of a member that is not the first
_GZIP_WINDOW_BYTES_MAX = 1 << 16
_GZIP_PART_BYTES = 1 << 20  # what one call returns at most: it copies that with the lock held

# snappy-java's stream header: magic, version, lowest version that can read it. Java clients always
# frame; librdkafka and others may send one raw block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024  # snappy-java's block size in Kafka
_INT32 = Struct(">i")
_UINT32_LE = Struct("<I")

# An LZ4 frame header: magic, version 1 with independent blocks, 64 KiB blocks, header checksum.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_STORED_BIT = 0x80000000
_ZSTD_BLOCK_BYTES = 1 << 17
_ZSTD_REPEATED = 1
_ZSTD_COMPRESSED = 2
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed and framed as Java clients do; `level` None takes Kafka's default."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The decompressed bytes; ProtocolError if malformed, truncated or above `size_max` bytes."""
    return bytes(decompressed(codec, data, size_max))


def decompressed(codec: int, data: Buffer, size_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The same in any buffer, of `data` itself if it is not compressed: nothing large is copied
    while the interpreter lock is held."""
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise ProtocolError(f"unknown compression codec {codec}")
    result = decompressor(data, size_max)
    if len(result) > size_max:
        raise _too_large(size_max)
    return result


def _too_large(size_max: int) -> ProtocolError:
    return ProtocolError(f"decompressed size above the limit of {size_max} bytes")


def _compress_none(data: Buffer, _level: int | None) -> bytes:
    return bytes(data)


def _decompress_none(data: Buffer, _size_max: int) -> Buffer:
    return data


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    import zlib  # noqa: PLC0415 - only when used

    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, size_max: int) -> Buffer:
    import zlib  # noqa: PLC0415 - only when used

    view = memoryview(data)
    out = bytearray()
    position = members = 0
    window = _GZIP_WINDOW_BYTES_MAX  # nearly always one member, which takes all in one call
    try:
        while position < len(view) or not members:  # RFC 1952 allows several members in a row
            members += 1
            if members > GZIP_MEMBERS_MAX:
                raise ProtocolError(f"more than {GZIP_MEMBERS_MAX} gzip members")
            member = zlib.decompressobj(31)
            while not member.eof:
                piece: Buffer = view[position : position + window]
                position += len(piece)
                if not piece:
                    raise ProtocolError("gzip data ends early")
                while piece and not member.eof:
                    out += member.decompress(piece, _GZIP_PART_BYTES)
                    if len(out) > size_max:
                        raise _too_large(size_max)
                    piece = member.unconsumed_tail
                position -= len(member.unused_data)
                window = min(2 * window, _GZIP_WINDOW_BYTES_MAX)
            window = _GZIP_WINDOW_BYTES  # `unused_data` copies the rest of what it was given
    except zlib.error as error:
        raise ProtocolError(f"gzip: {error}") from error
    return out


def _compress_snappy(data: Buffer, _level: int | None) -> bytes:
    from cramjam import snappy  # noqa: PLC0415 - only when used

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, size_max: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max)
    if len(view) < len(_XERIAL_HEADER):
        raise ProtocolError("snappy stream header ends early")
    out = bytearray()
    position = len(_XERIAL_HEADER)
    end = len(view)
    while position < end:
        if end - position < 4:
            raise ProtocolError("snappy block length ends early")
        (length,) = _INT32.unpack_from(view, position)
        position += 4
        if not 0 < length <= end - position:
            raise ProtocolError(f"snappy block of {length} bytes, {end - position} left")
        out += _decompress_snappy_block(view[position : position + length], size_max - len(out))
        position += length
    return out


def _decompress_snappy_block(block: memoryview, size_max: int) -> Buffer:
    from cramjam import DecompressionError, snappy  # noqa: PLC0415 - only when used

    try:
        # The block states its size; check it before allocating that much. A snappy copy element of
        # three bytes yields at most 64, so a larger stated size is wrong.
        size = snappy.decompress_raw_len(block)
        if size > size_max:
            raise _too_large(size_max)
        if size > 32 * len(block):
            raise ProtocolError(f"snappy block of {len(block)} bytes promises {size}")
        return memoryview(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise ProtocolError(f"snappy: {error}") from error


def _compress_lz4(data: Buffer, _level: int | None) -> bytes:
    """Compress independent blocks of 64 KiB, as Java requires; the library would link them."""
    from cramjam import lz4  # noqa: PLC0415 - only when used

    view = memoryview(data)
    parts: list[bytes] = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (_UINT32_LE.pack(len(block)), block)
        else:
            parts += (_UINT32_LE.pack(len(raw) | _LZ4_STORED_BIT), bytes(raw))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_lz4(data: Buffer, size_max: int) -> Buffer:
    from cramjam import lz4  # noqa: PLC0415 - only when used

    return _decompress_bounded(lz4, "lz4", data, _lz4_bound(memoryview(data), size_max), size_max)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd  # noqa: PLC0415 - only when used

    return bytes(zstd.compress(data, level=3 if level is None else level))


def _decompress_zstd(data: Buffer, size_max: int) -> Buffer:
    from cramjam import zstd  # noqa: PLC0415 - only when used

    return _decompress_bounded(
        zstd, "zstd", data, _zstd_bound(memoryview(data), size_max), size_max
    )


def _decompress_bounded(library: Any, name: str, data: Buffer, bound: int, size_max: int) -> Buffer:
    """Decompress data of at most `bound` bytes; if that exceeds `size_max`, into a buffer of
    `size_max`.

    `bound` comes from a walk over the block headers, which costs nothing beside decompression.
    """
    from cramjam import DecompressionError  # noqa: PLC0415 - only when used

    try:
        if bound <= size_max:
            return memoryview(library.decompress(data))
        # The bound counts each block in full, so it is too large for small data. A buffer of
        # `size_max` decides; its pages cost nothing until they are written.
        out = bytearray(size_max + 1)
        size = library.decompress_into(data, out)
        return memoryview(out)[:size]
    except (DecompressionError, OSError) as error:
        raise ProtocolError(f"{name}: {error}") from error


def _skippable_bytes(view: memoryview, position: int) -> int:
    """Length of the skippable frame at `position` (the same in LZ4 and zstd), 0 for any other."""
    (magic,) = _UINT32_LE.unpack_from(view, position)
    if magic & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
        return 0
    return 8 + int(_UINT32_LE.unpack_from(view, position + 4)[0])


def _lz4_bound(view: memoryview, size_max: int) -> int:
    """Upper bound of the bytes in LZ4 frames, from their block headers; stops counting early."""
    bound = 0
    position = 0
    try:
        while position < len(view):
            skipped = _skippable_bytes(view, position)
            if skipped:
                position += skipped
                continue
            flags, descriptor = view[position + 4], view[position + 5]
            block_max = 1 << (8 + 2 * (descriptor >> 4 & 7))
            checksum = 4 if flags & 0x10 else 0
            position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
            while True:
                length = int(_UINT32_LE.unpack_from(view, position)[0])
                position += 4
                if not length:
                    break
                length &= ~_LZ4_STORED_BIT
                bound += min(block_max, 255 * length)
                if bound > size_max:
                    return bound
                position += length + checksum
            position += 4 if flags & 0x04 else 0
    except (StructError, IndexError):
        raise ProtocolError("lz4 frame ends early") from None
    return bound


def _zstd_bound(view: memoryview, size_max: int) -> int:
    """Upper bound of the bytes in zstd frames, from their block headers; stops counting early."""
    bound = 0
    position = 0
    try:
        while position < len(view):
            skipped = _skippable_bytes(view, position)
            if skipped:
                position += skipped
                continue
            flags = view[position + 4]
            position = _zstd_blocks_start(flags, position)
            last = False
            while not last:
                block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
                last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
                bound += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else length
                if bound > size_max:
                    return bound
                position += 3 + (1 if kind == _ZSTD_REPEATED else length)
            position += 4 if flags & 0x04 else 0
    except (StructError, IndexError):
        raise ProtocolError("zstd frame ends early") from None
    return bound


def _zstd_blocks_start(flags: int, position: int) -> int:
    """Position of a frame's first block, behind descriptor, window, dictionary id and size."""
    single_segment = flags & 0x20
    size_code = flags >> 6
    size_bytes = (1 if single_segment else 0) if size_code == 0 else 1 << size_code
    return position + 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[flags & 3] + size_bytes


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
