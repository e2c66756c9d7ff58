"""TLS of accepted connections, which count from the moment they are accepted.

asyncio's servers with TLS tell a protocol object of its connection only after the handshake, and
never if it fails. So sockets are accepted without TLS, and their TLS begins once the protocol
object had the chance to refuse them.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext, SSLObject

__all__ = ["Handshakes"]

HANDSHAKE_S_MAX = 10


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

    def __call__(self) -> asyncio.BaseProtocol:
        """Return what begins the handshake of the connection being accepted."""
        return _Accepted(self._factory(), self._tls)


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


class _Accepted(asyncio.Protocol):
    """The protocol of a connection until its handshake begins, or until it is refused."""

    def __init__(self, protocol: asyncio.BaseProtocol, tls: SSLContext) -> None:
        self._protocol = protocol
        self._tls = tls

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
        secured = SSLProtocol(
            loop,
            protocol,
            cast("SSLContext", _Named(self._tls, client)),
            over,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_S_MAX,
        )
        transport.set_protocol(secured)
        secured.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(self._protocol, Accepting):
            self._protocol.handshake_over()


def _seen(over: asyncio.Future[None]) -> None:
    """A failed handshake is no error of the broker."""
    if not over.cancelled():
        over.exception()
