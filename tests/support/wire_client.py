"""A raw client on the running loop: messages of our codec, or any bytes, over a real socket.

    async with await WireClient.connect(bootstrap_servers) as client:
        response = await client.ask(MetadataRequest(topics=None), 12)

`send` and `receive` apart make pipelines; `send_bytes` sends what no codec would.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING, Any

from tidelog_protocol.apis import API
from tidelog_protocol.frames import RequestHeader, decode_response_header, request_frame
from tidelog_protocol.messages.cluster import ApiVersionsRequest

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from tidelog_protocol.schema import Message

TIMEOUT_S = 60.0


def request_bytes(
    message: Message, version: int, correlation_id: int = 1, client_id: str = "test"
) -> bytes:
    """A request frame, size prefix included."""
    assert message.API_KEY is not None
    header = RequestHeader(message.API_KEY, version, correlation_id, client_id)
    return b"".join(request_frame(API[message.API_KEY], header, message))


def response_of(request: Message, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and message of a response frame without its size prefix."""
    assert request.API_KEY is not None
    api = API[request.API_KEY]
    correlation_id, position = decode_response_header(api, version, frame)
    return correlation_id, api.response_codec(version).decode(frame, position)


class WireClient:
    """One connection; every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0
        self._sent: list[tuple[int, Message, int]] = []

    @classmethod
    async def connect(cls, bootstrap_server: str, tls: ssl.SSLContext | None = None) -> Self:
        """Connect to `host:port`."""
        host, _, port = bootstrap_server.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 20, ssl=tls))

    async def ask(self, message: Message, version: int) -> Any:
        """Send a request and return its response."""
        self.send(message, version)
        return await self.receive()

    def send(self, message: Message, version: int) -> int:
        """Send a request without waiting; its correlation id."""
        self._correlation_id += 1
        self._sent.append((self._correlation_id, message, version))
        self.writer.write(request_bytes(message, version, self._correlation_id))
        return self._correlation_id

    async def receive(self) -> Any:
        """The response to the oldest request that has none yet."""
        correlation_id, message, version = self._sent.pop(0)
        frame = await self.receive_frame()
        answered, response = response_of(message, version, frame)
        assert answered == correlation_id, f"answer {answered} to request {correlation_id}"
        return response

    async def ask_nothing(self) -> None:
        """Return when the broker has surely read what was sent: another connection was served."""
        host, port = self.writer.get_extra_info("peername")[:2]
        await self.writer.drain()
        async with await type(self).connect(f"{host}:{port}") as other:
            await other.ask(ApiVersionsRequest(), 0)

    def send_bytes(self, data: bytes) -> None:
        """Send these very bytes."""
        self.writer.write(data)

    async def receive_frame(self) -> bytes:
        """The next frame without its size; IncompleteReadError when the broker closed."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def closed(self) -> bool:
        """Whether the broker closes the connection without sending any more bytes."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
