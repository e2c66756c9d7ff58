"""Frames without I/O: cut received bytes into frames, read headers, turn messages into bytes.

A frame is an int32 size and that many bytes: a header and a body. `FrameReader` returns the memory
for the next received bytes, and then the complete frames; it never touches a socket. The broker's
connections and tidelog's own clients call it.
"""

from __future__ import annotations

import mmap
import struct
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import SAFE_STRING_BYTES, long_string, skip_tagged_fields

if TYPE_CHECKING:
    from tidelog_protocol.apis import Api
    from tidelog_protocol.schema import Buffer, Message

__all__ = [
    "FrameReader",
    "RequestHeader",
    "decode_client_id",
    "decode_response_header",
    "framed",
    "request_frame",
    "response_frame",
    "response_head",
]

_SIZE = Struct(">i")
_SIZE_AND_CORRELATION_ID = Struct(">ii")
_SIZE_CORRELATION_ID_AND_TAGS = Struct(">iix")
_LENGTH = Struct(">h")
_REQUEST_HEAD = Struct(">hhih")

JOINED_BYTES_MAX = 4096
"""Frames up to this size go out as one bytes object."""

HEADER_TAGS_MAX = 1000
"""Tagged fields of a header; no Kafka client sends any (KIP-482)."""

CARRIED_BYTES_MAX = 32 << 10
"""Up to this size the beginning of a frame is copied back to the shared buffer: cheaper than to
receive the rest separately, which takes another wake-up."""

PRIVATE_BYTES_FIRST = 2 << 20
DOUBLED_BYTES_MAX = 8 << 20
RECEIVED_BYTES_MAX = 2 << 20  # of a large frame in a turn of the loop
"""A large frame's own buffer starts with at most this size. Beyond it, a peer cannot make tidelog
hold more than twice what the peer has sent."""


class RequestHeader(NamedTuple):
    """The fields every request starts with."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_client_id(frame: Buffer, *, flexible: bool) -> tuple[str | None, int]:
    """Read a request's header after the correlation id; also return the body's position."""
    try:
        (length,) = _LENGTH.unpack_from(frame, 8)
        position = 10
        client_id = None  # any negative length means null, as in Kafka's reader
        if length >= 0:
            end = position + length
            if end > len(frame):
                raise ProtocolError("request header: the client id extends past the end")
            name = frame[position:end]
            is_safe = length < SAFE_STRING_BYTES
            client_id = str(name, "utf-8", "replace") if is_safe else long_string(name)
            position = end
        if flexible:
            tags = frame[position]
            position += 1
            if tags:
                position, _ = skip_tagged_fields(frame, position, tags, HEADER_TAGS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError("request header: truncated") from error
    return client_id, position


def decode_response_header(api: Api, version: int, frame: Buffer) -> tuple[int, int]:
    """Read a response's header: its correlation id, and where the body starts."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = 4
        if api.response_header_version(version):
            position, _ = skip_tagged_fields(frame, 5, frame[4], HEADER_TAGS_MAX)
    except (struct.error, IndexError) as error:
        raise ProtocolError("response header: truncated") from error
    return correlation_id, position


def response_frame(api: Api, header: RequestHeader, message: Message) -> list[Buffer]:
    """Return the whole frame that answers a request, in pieces ready for `writelines`.

    The answer is in the request's version. (The answer to an ApiVersions request of an unknown
    version is in version 0: pass a header with that version.) Record batches are not copied.
    """
    version = header.api_version
    parts = api.response_codec(version).encode_parts(message)
    return framed(response_head(api, version), header.correlation_id, parts)


def response_head(api: Api, version: int) -> Struct:
    """The layout of a response's size and header."""
    flexible = api.response_header_version(version)
    return _SIZE_CORRELATION_ID_AND_TAGS if flexible else _SIZE_AND_CORRELATION_ID


def framed(head: Struct, correlation_id: int, parts: list[Buffer]) -> list[Buffer]:
    """Prepend size and correlation id to the body's pieces."""
    if len(parts) == 1:  # nearly all answers
        start = head.pack(head.size - 4 + len(parts[0]), correlation_id)
    else:
        size = head.size - 4 + sum(map(len, parts))
        start = head.pack(size, correlation_id)
        if size <= JOINED_BYTES_MAX:
            return [b"".join((start, *parts))]
    parts[0] = start + parts[0]
    return parts


def request_frame(api: Api, header: RequestHeader, message: Message) -> list[Buffer]:
    """Return the whole frame of a request, in pieces ready for `writelines`."""
    version = header.api_version
    parts = api.request_codec(version).encode_parts(message)
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    head = _REQUEST_HEAD.pack(header.api_key, version, header.correlation_id, length) + client_id
    if api.request_header_version(version) == 2:
        head += b"\0"
    start = _SIZE.pack(len(head) + sum(map(len, parts))) + head
    if len(start) + sum(map(len, parts)) <= JOINED_BYTES_MAX:
        return [b"".join((start, *parts))]
    return [start, *parts]


class FrameReader:
    """Cuts the bytes of one connection into frames.

    Call two methods in turn: `writable()` returns the memory to receive the next bytes into, and
    `received(n)` takes the number of received bytes and returns the frames that are now complete.

    Bytes go into `shared_buffer`, which all connections of a loop share: nothing else writes to it
    between the two calls. The rest of an incomplete frame moves out of it: a few bytes are copied
    back to the buffer's start next time; a larger part goes to a private buffer of the frame's
    size, which then receives directly. So idle connections hold no buffer.

    Frames are views into these buffers, without their size field. They are valid until the next
    `writable()` on this loop.
    """

    __slots__ = (
        "_carried",
        "_carried_bytes_max",
        "_filled",
        "_frame_bytes_max",
        "_private",
        "_private_size",
        "_shared",
        "_spare",
        "_start",
        "error",
        "unfinished_bytes",
    )

    def __init__(self, frame_bytes_max: int, shared_buffer: memoryview) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._shared = shared_buffer
        self._carried_bytes_max = min(CARRIED_BYTES_MAX, len(shared_buffer) // 2)
        self._start = 0  # position in the shared buffer of the bytes after the carried ones
        self._carried = b""  # an incomplete frame with its size field, if small
        self._private: memoryview | None = None  # the buffer of a large incomplete frame
        self._private_size = 0  # the whole frame's size; Invariant: _filled < _private_size
        self._filled = 0
        self._spare: memoryview | None = None  # a private buffer to be used again
        self.unfinished_bytes = 0
        """Size of the private buffer, as far as it takes memory, while its frame is incomplete."""
        self.error: ProtocolError | None = None
        """Set with the last valid frames if an invalid one follows: answer, then close."""

    @property
    def pending(self) -> bool:
        """Whether part of a frame has arrived and the rest is missing."""
        return self._private is not None or bool(self._carried)

    def limit(self, frame_bytes_max: int) -> None:
        """Take frames up to this size from now on."""
        self._frame_bytes_max = frame_bytes_max

    def writable(self) -> memoryview:
        """Return the memory for the next bytes; never empty. Earlier frames become invalid."""
        private = self._private
        if private is not None:
            if self._filled == len(private):
                private = self._grow(private)
            return private[
                self._filled : min(self._private_size, self._filled + RECEIVED_BYTES_MAX)
            ]
        carried = self._carried
        if carried:
            self._start = len(carried)
            self._shared[: self._start] = carried
            return self._shared[self._start :]
        return self._shared

    def received(self, count: int) -> list[memoryview]:
        """Take the `count` bytes just written to the memory of `writable()`, and return whole
        frames.

        ProtocolError for a frame of negative size or above the limit. Frames before it are still
        returned, with `error` set; the next call then raises it.
        """
        if self.error is not None:
            raise self.error
        if self._private is not None:
            return self._received_private(count)
        shared = self._shared
        end = self._start + count
        self._start = 0
        if end >= _SIZE.size:
            (size,) = _SIZE.unpack_from(shared)
            if end == size + _SIZE.size and size <= self._frame_bytes_max:  # mostly so: one frame
                self._carried, self._spare = b"", None
                return [shared[_SIZE.size : end]]
        frames: list[memoryview] = []
        position = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(shared, position)
            if not 0 <= size <= self._frame_bytes_max:
                self._refuse(size, frames)
                return frames
            after = position + 4 + size
            if after > end:
                self._keep(shared[position:end], size)
                return frames
            frames.append(shared[position + 4 : after])
            position = after
        self._carried = bytes(shared[position:end]) if position < end else b""
        self._spare = None  # no large frame is incomplete, so no private buffer is needed
        return frames

    def _refuse(self, size: int, frames: list[memoryview]) -> None:
        """Reject an invalid size: raise, or only set `error` if valid frames came first."""
        self.error = ProtocolError(f"frame of {size} bytes; the limit is {self._frame_bytes_max}")
        self._carried = b""
        if not frames:
            raise self.error

    def _keep(self, part: memoryview, size: int) -> None:
        """Move the beginning of an incomplete frame out of the shared buffer."""
        if len(part) <= self._carried_bytes_max and size + 4 <= len(self._shared):
            self._carried = bytes(part)
            return
        self._carried = b""
        body = part[4:]
        private = self._spare
        self._spare = None
        if private is None or len(private) < min(size, PRIVATE_BYTES_FIRST):
            first = min(size, max(PRIVATE_BYTES_FIRST, 2 * len(body)))
            private = memoryview(bytearray(first))
        private[: len(body)] = body
        self._private = private
        self.unfinished_bytes = len(private)
        self._private_size = size
        self._filled = len(body)

    def _grow(self, private: memoryview) -> memoryview:
        """Double a private buffer that is full although its frame is incomplete. A large one gets
        the frame's size: the system gives memory when it is written, and no copy follows."""
        if len(private) < DOUBLED_BYTES_MAX:
            grown = memoryview(bytearray(min(self._private_size, 2 * len(private))))
            self.unfinished_bytes = len(grown)
        else:
            grown = memoryview(mmap.mmap(-1, self._private_size))
        grown[: len(private)] = private
        self._private = grown
        return grown

    def _received_private(self, count: int) -> list[memoryview]:
        """Take bytes of a large frame, which nothing can follow in its buffer."""
        self._filled += count
        if self._filled < self._private_size:
            self.unfinished_bytes = max(self.unfinished_bytes, self._filled)
            return []
        private = self._private
        assert private is not None
        self._private = None
        self.unfinished_bytes = 0
        if len(private) <= PRIVATE_BYTES_FIRST:
            self._spare = private
        return [private[: self._private_size]]
