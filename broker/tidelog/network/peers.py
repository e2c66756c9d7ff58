"""A request channel to another broker: a request returns the response or raises `PeerError`.

It owns one connection to one address, opened on first use and again after it broke, the requests in
flight on it, and the pause before the next attempt. Replica fetchers, the metadata quorum,
forwarding and the broker's life cycle use it; it does not know what requests mean.

All nodes of a cluster are tidelog, so nothing is negotiated: a request goes out in the newest
version unless the caller says otherwise. Requests of several callers are pipelined; the other side
answers in order, and answers are matched by correlation id. TLS and SASL are those of
`peer_security.py`.

A request that is not answered in time closes the connection, as in Kafka's client: requests behind
it would not be answered either. Every failure is a `PeerError`; it is then unknown whether the
request took effect.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from tidelog.network.buffers import receive_buffer
from tidelog.security.refused import RefusedError
from tidelog_protocol.apis import API
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import (
    PRIVATE_BYTES_FIRST,
    FrameReader,
    RequestHeader,
    decode_response_header,
    request_frame,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.network.peer_security import PeerSecurity
    from tidelog.seams import Clock, Network, Rng
    from tidelog_protocol.apis import Api
    from tidelog_protocol.schema import Buffer, Message

__all__ = ["Channels", "PeerChannel", "PeerError", "tls_reason"]

REQUEST_TIMEOUT_S = 30.0
RECONNECT_S_MIN = 0.05  # Kafka's reconnect.backoff.ms
RECONNECT_S_MAX = 1.0  # Kafka's reconnect.backoff.max.ms
RECONNECT_JITTER = 0.2
FRAME_BYTES_MAX = 1 << 30
RECEIVE_BUFFER_BYTES = 64 << 10


class PeerError(Exception):
    """The request could not be sent, or its response did not arrive or was invalid."""


class PeerChannel:
    """One connection to one broker, opened on demand; any number of tasks may `ask`."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        address: tuple[str, int],
        *,
        client_id: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        rng: Rng | None = None,
    ) -> None:
        """`rng` adds jitter to reconnects; without it they come at exact intervals."""
        self.host, self.port = address
        self._network = network
        self._clock = clock
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._rng = rng
        self._link: _Link | None = None
        self._connecting: asyncio.Task[_Link] | None = None
        self._correlation_id = 0
        self._failures = 0  # failed attempts to connect in a row
        self._not_before = 0.0  # monotonic time of the next attempt
        self._closed = False
        self.security: PeerSecurity | None = None
        """The TLS and SASL of its connections, if they have any."""

    def __repr__(self) -> str:
        return f"<PeerChannel {self._client_id} to {self.host}:{self.port}>"

    async def ask(
        self,
        request_message: Message,
        version: int | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request and return its response message; PeerError if there is none.

        Records in the response are views of memory that the caller now owns. `timeout_s` covers
        everything, including opening a connection.
        """
        assert request_message.API_KEY is not None, "only requests can be asked"
        api = API[request_message.API_KEY]
        version = api.max_version if version is None else version
        seconds = self._request_timeout_s if timeout_s is None else timeout_s
        link: _Link | None = None
        try:
            async with asyncio.timeout(seconds):
                link = await self._connected()
                return await self._send(link, request_message, version)
        except TimeoutError:
            text = f"{self.host}:{self.port}: no answer to {api.name} within {seconds:g} s"
            if link is not None:
                link.end(text)
            raise PeerError(text) from None

    def _send(self, link: _Link, request_message: Message, version: int) -> asyncio.Future[Any]:
        assert request_message.API_KEY is not None
        api = API[request_message.API_KEY]
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        header = RequestHeader(api.key, version, self._correlation_id, self._client_id)
        return link.send(api, header, request_message)

    async def _connected(self) -> _Link:
        """Return the open connection, or open one; all callers share one attempt."""
        if self._closed:
            raise PeerError(f"{self!r} is closed")
        if self._link is not None and self._link.is_usable(self._clock):
            return self._link
        connecting = self._connecting
        if connecting is None:
            task = asyncio.get_running_loop().create_task(self._connect(), name=f"connect {self!r}")
            task.add_done_callback(self._connected_or_not)
            connecting = self._connecting = task
        try:
            return await asyncio.shield(connecting)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise PeerError(f"{self.host}:{self.port}: {reason}") from error
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if self._closed and asking is not None and not asking.cancelling():
                raise PeerError(f"{self!r} is closed") from None
            raise

    async def _connect(self) -> _Link:
        wait_s = self._not_before - self._clock.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        try:
            link = await self._open()
        except (OSError, PeerError):
            self._back_off()
            raise
        self._failures = 0
        before, self._link = self._link, link
        if before is not None:
            before.retire()
        return link

    async def _open(self) -> _Link:
        """Open a connection and authenticate it; OSError, PeerError."""
        security, address = self.security, (self.host, self.port)
        tls = None if security is None else security.tls
        try:
            _, link = await self._network.connect(
                self.host, self.port, lambda: _Link(f"{self.host}:{self.port}"), tls
            )
        except ssl.SSLError as error:
            raise self._refused(tls_reason(error) or str(error)) from error
        assert isinstance(link, _Link)
        if security is None:
            return link
        try:
            async with asyncio.timeout(self._request_timeout_s):
                seconds = await security.authenticate(
                    lambda message, version: self._send(link, message, version)
                )
        except TimeoutError:
            link.end("authentication")
            text = f"no answer to its authentication within {self._request_timeout_s:g} s"
            raise PeerError(f"{self.host}:{self.port}: {text}") from None
        except RefusedError as error:
            link.end("authentication")
            raise self._refused(str(error)) from error
        except PeerError:
            if link.tls_failure is not None:
                security.failed(address, link.tls_failure)
            raise
        except asyncio.CancelledError:
            link.end(f"{self!r} is closed")
            raise
        link.replace_at = None if seconds is None else self._clock.monotonic() + seconds
        security.succeeded(address)
        return link

    def _refused(self, reason: str) -> PeerError:
        """Return the error of an authentication that failed, after a line in the log."""
        if self.security is not None:
            self.security.failed((self.host, self.port), reason)
        return PeerError(f"{self.host}:{self.port}: {reason}")

    def _connected_or_not(self, task: asyncio.Task[_Link]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # all waiting callers may have given up, so mark the exception as seen

    def _back_off(self) -> None:
        """Double the pause after each failed attempt in a row, up to the limit."""
        pause_s = min(RECONNECT_S_MIN * 2 ** min(self._failures, 16), RECONNECT_S_MAX)
        if self._rng is not None:
            pause_s *= self._rng.uniform(1 - RECONNECT_JITTER, 1 + RECONNECT_JITTER)
        self._failures += 1
        self._not_before = self._clock.monotonic() + pause_s

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def go_through(self, network: Network, gate: Callable[[Any, str, int], Any]) -> None:
        """Connect by this network from now on. `gate` returns what an open connection uses in the
        place of its transport."""
        self._network = network
        if self._link is not None and self._link.is_open:
            self._link.go_through(lambda transport: gate(transport, self.host, self.port))

    def close(self) -> None:
        """Close the connection; pending and later requests get PeerError."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.end(f"{self!r} is closed")


class Channels:
    """A channel to each broker, created again when the broker has moved."""

    def __init__(
        self,
        new_channel: Callable[[str, int], PeerChannel],
        address_of: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """`address_of` returns a broker's current address, None if it is not registered."""
        self._new_channel = new_channel
        self._address_of = address_of
        self._channels: dict[int, PeerChannel] = {}

    def to(self, node_id: int) -> PeerChannel:
        """Return the channel to a broker; PeerError if its address is unknown."""
        address = self._address_of(node_id)
        if address is None:
            raise PeerError(f"broker {node_id} is not registered")
        known = self._channels.get(node_id)
        if known is not None:
            if (known.host, known.port) == address:
                return known
            known.close()
        channel = self._channels[node_id] = self._new_channel(*address)
        return channel

    def close(self) -> None:
        """Close all channels; pending requests get a PeerError."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _Link(asyncio.BufferedProtocol):
    """One open connection and its awaited responses, by correlation id.

    Invariant: no future in `_waiting` stays pending once the connection has closed.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader = FrameReader(FRAME_BYTES_MAX, receive_buffer(RECEIVE_BUFFER_BYTES))
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[Any]]] = {}
        self._transport: Any = None
        self._is_retired = False
        self.is_open = True
        self.replace_at: float | None = None
        """The monotonic time from which requests go to another connection."""
        self.tls_failure: str | None = None
        """Why TLS ended the connection, if it did."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @property
    def awaited(self) -> int:
        """The number of requests that have no answer yet."""
        return len(self._waiting)

    def go_through(self, gate: Callable[[Any], Any]) -> None:
        """Use what `gate` returns in the place of the transport."""
        if self._transport is not None:
            self._transport = gate(self._transport)

    def is_usable(self, clock: Clock) -> bool:
        """Return whether a request may be sent now."""
        return self.is_open and (self.replace_at is None or clock.monotonic() < self.replace_at)

    def retire(self) -> None:
        """Close the connection when all awaited responses are there."""
        self._is_retired = True
        if not self._waiting:
            self.end("connection replaced")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.tls_failure = tls_reason(exc)
        reason = "connection lost" if exc is None else str(exc) or type(exc).__name__
        self.end(self.tls_failure or reason)

    def eof_received(self) -> None:
        """Close the connection when the other side ends its stream."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
            if self._reader.error is not None:
                raise self._reader.error
        except ProtocolError as error:
            self.end(f"malformed answer: {error}")

    def send(
        self, api: Api, header: RequestHeader, request_message: Message
    ) -> asyncio.Future[Any]:
        """Write a request; the returned future gets its response message.

        PeerError if the connection has closed. It may be closing before `connection_lost` is
        called: asyncio's `writelines` then fails in two ways (from Python 3.12 on).
        """
        if not self.is_open or self._transport.is_closing():
            raise PeerError(f"{self._address}: connection lost")
        parts = request_frame(api, header, request_message)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[header.correlation_id] = (api, header.api_version, future)
        self._transport.writelines(parts)
        return future

    def _take(self, frame: Buffer) -> None:
        """Decode one response, in its own memory: more may arrive before its caller runs."""
        if len(frame) <= PRIVATE_BYTES_FIRST:  # the buffer of a larger one is not reused
            frame = memoryview(bytearray(frame))
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        awaited = self._waiting.pop(correlation_id, None)
        if awaited is None:
            raise ProtocolError(f"no request has correlation id {correlation_id}")
        api, version, future = awaited
        try:
            _, position = decode_response_header(api, version, frame)
            response = api.response_codec(version).decode(frame, position)
        except ProtocolError:
            self._waiting[correlation_id] = awaited  # the future fails with the connection
            raise
        if not future.done():
            future.set_result(response)
        if self._is_retired and not self._waiting:
            self.end("connection replaced")

    def end(self, reason: str) -> None:
        """Close at once; all awaited responses fail."""
        self.is_open = False
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        waiting, self._waiting = self._waiting, {}
        for _, _, future in waiting.values():
            if not future.done():
                future.set_exception(PeerError(f"{self._address}: {reason}"))


def tls_reason(error: BaseException | None) -> str | None:
    """Return why TLS failed, in plain words; None for another error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return None
