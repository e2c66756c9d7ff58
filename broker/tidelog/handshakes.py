"""TLS of accepted connections, which count from the moment they are accepted.

asyncio's servers with TLS tell a protocol object of its connection only after the handshake, and
never if it fails. So sockets are accepted without TLS, and their TLS begins once the protocol
object had the chance to refuse them.

A step of a handshake takes a millisecond, or several with a long RSA key. What hundreds of clients
send together is therefore taken in turns of the loop, so that others are served between them.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext, SSLObject

__all__ = ["Handshakes"]

HANDSHAKE_S_MAX = 10
TURN_S_MAX = 0.01  # of all handshakes of a listener in a turn of the loop, and one step more
BUFFER_BYTES = 256 << 10
RECORD_BYTES = 16 << 10


@runtime_checkable
class Accepting(Protocol):
    """A protocol object that wants to know of connections before their handshakes."""

    def accepted(self, transport: asyncio.BaseTransport) -> str:
        """Take the transport without TLS, or close it. The result names the client, for the log."""
        ...

    def handshake_over(self) -> None:
        """The handshake was successful, then `connection_made` was called, or it failed."""
        ...


class Handshakes:
    """Creates the protocol objects of a listener with TLS."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], tls: SSLContext) -> None:
        self._factory = factory
        self._tls = tls
        self._steps = _Steps()

    def __call__(self) -> asyncio.BaseProtocol:
        """Return what begins the handshake of the connection being accepted."""
        return _Accepted(self._factory(), self._tls, self._steps)


class _Named:
    """A context for one connection, whose TLS object knows the `client` for its log."""

    def __init__(self, tls: SSLContext, client: str) -> None:
        self._tls = tls
        self._client = client

    def wrap_bio(self, *arguments: Any, **options: Any) -> SSLObject:
        """Begin the connection, as SSLProtocol does."""
        made = self._tls.wrap_bio(*arguments, **options)
        made.client = self._client  # type: ignore[attr-defined] # of tls.py
        return made


class _Steps:
    """The steps of handshakes that wait for their turn, and what all connections of the listener
    share."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._waiting: deque[_Secured] = deque()

    def add(self, connection: _Secured) -> None:
        """Call `step` of a connection soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._take)
        self._waiting.append(connection)

    def _take(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + TURN_S_MAX
        while self._waiting:
            self._waiting.popleft().step()
            if loop.time() >= end:
                break
        if self._waiting:
            loop.call_soon(self._take)


class _Secured(SSLProtocol):
    """The TLS of one connection.

    It receives into the buffer of its listener, because asyncio's own would take 256 KiB of each
    connection. The loop handles one wake-up at a time, and TLS copies what it gets.
    """

    max_size = RECORD_BYTES  # of asyncio's own buffer, which is dropped

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        tls: SSLContext,
        over: asyncio.Future[None],
        steps: _Steps,
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            protocol,
            tls,
            over,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S_MAX,
        )
        self._ssl_buffer = self._ssl_buffer_view = steps.buffer
        self._over = over
        self._steps = steps
        self._received = b""

    def get_buffer(self, n: int) -> memoryview:
        """Return memory for the next bytes, a few of a handshake: they wait for their turn."""
        return self._steps.buffer if self._over.done() else self._steps.buffer[:RECORD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Read; a step of the handshake waits for its turn, and nothing more is read until then."""
        transport = self._transport
        if self._over.done() or not isinstance(transport, asyncio.ReadTransport):
            super().buffer_updated(nbytes)
        else:
            self._received = bytes(self._steps.buffer[:nbytes])
            transport.pause_reading()
            self._steps.add(self)

    def step(self) -> None:
        """Do the step, unless the connection is closed."""
        transport, received = self._transport, self._received
        if not isinstance(transport, asyncio.ReadTransport) or transport.is_closing():
            return
        self._received = b""
        self._steps.buffer[: len(received)] = received
        transport.resume_reading()
        try:
            super().buffer_updated(len(received))
        except Exception as error:  # noqa: BLE001 - as asyncio treats errors of protocols
            self._fatal_error(error, "TLS handshake failed")


class _Accepted(asyncio.Protocol):
    """The protocol of a connection until its handshake begins, or until it is refused."""

    def __init__(self, protocol: asyncio.BaseProtocol, tls: SSLContext, steps: _Steps) -> None:
        self._protocol = protocol
        self._tls = tls
        self._steps = steps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        loop = asyncio.get_running_loop()
        protocol, over, client = self._protocol, loop.create_future(), ""
        over.add_done_callback(_seen)
        if isinstance(protocol, Accepting):
            client = protocol.accepted(transport)
            if transport.is_closing():
                return
            over.add_done_callback(lambda _: protocol.handshake_over())
        named = cast("SSLContext", _Named(self._tls, client))
        secured = _Secured(protocol, named, over, self._steps)
        transport.set_protocol(secured)
        secured.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(self._protocol, Accepting):
            self._protocol.handshake_over()


def _seen(over: asyncio.Future[None]) -> None:
    """A failed handshake is no error of the broker."""
    if not over.cancelled():
        over.exception()
