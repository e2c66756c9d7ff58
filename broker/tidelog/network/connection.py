"""One client connection: frames in, responses out in the order of requests, all within bounds.

Owns: the socket's transport, the queue of answer slots, back-pressure and the idle limit. The event
loop and `Deferred.complete` call it; it does not know what requests mean.

All connections of a loop read into one receive buffer (`FrameReader` moves a partial frame to a
private buffer), so all complete frames of a wake-up are handled before it ends. Their responses go
out in one write.

Its bounds:

- `QUEUED_BYTES_MAX` of responses not yet written and of unanswered requests, and `IN_FLIGHT_MAX`
  such requests. Above either, or while an `async def` handler runs, the remaining frames of the
  wake-up are held (copied, at most one receive buffer or one large frame) and reading is paused.
- `TURN_S_MAX` of time for the requests of one turn of the loop, less if many connections have more
  of them (`connections.py`), and one request more: the remaining frames are held until the next
  turn.
- A client above a quota: nothing of it is read until its throttle time is over (KIP-219).
- A slow reader: the transport holds the part of one write that the socket did not take, the rest
  stays here by reference until `resume_writing`.
- `connections.py` limits the number and idle time of all connections of a broker, and the bytes of
  their unfinished frames.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.security.principal import ANONYMOUS
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.frames import FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.network.authentication import Authentication
    from tidelog.network.dispatch import Dispatcher, RequestContext
    from tidelog.security.guard import Guard
    from tidelog_protocol.schema import Buffer

__all__ = ["TURN_S_MAX", "Connection"]

log = logging.getLogger("tidelog.network.connection")

QUEUED_BYTES_MAX = 4 << 20
IN_FLIGHT_MAX = 256
TURN_S_MAX = 0.002
JOINED_BYTES_MAX = 64 << 10  # below this, copying into one write is cheaper than vectors
CHUNK_BYTES_MAX = 256 << 10  # per write, if the socket cannot take vectors directly
VECTORS_MAX = 1024  # IOV_MAX of Linux and macOS
REST_BYTES_MAX = 4 << 10  # copied to the transport, which then reports when the socket takes more


class ConnectionOwner(Protocol):
    """What all connections of a broker share; `connections.py` has it."""

    frame_bytes_max: int
    receive_buffer: memoryview
    guards: dict[str, Guard]
    scheduled: int
    """How many connections serve held frames in the next turn."""

    @property
    def turn_s(self) -> float:
        """How long the requests of a connection are handled before others have their turn."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of requests."""
        ...

    def join(self, connection: Connection) -> None:
        """Take a new connection, or abort it."""
        ...

    def secured(self, connection: Connection) -> None:
        """Note that a connection that joined before its TLS handshake has another transport."""
        ...

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        ...

    def count_unfinished(self, connection: Connection, size: int) -> None:
        """Note how many bytes a connection's unfinished frame takes, 0 for none any more."""
        ...


class Connection(asyncio.BufferedProtocol):
    """One client connection; the `Peer` of its requests.

    Invariants: `_slots` holds, oldest first, every request whose answer may not go out yet; `_out`
    holds answers whose turn has come; `_slot_bytes` and `_out_bytes` are the sizes of their
    answers, or of the request where there is no answer yet. The slot at the head of `_slots` has no
    answer, except inside a wake-up or before a scheduled flush.
    """

    __slots__ = (
        "_at_close",
        "_authentication",
        "_blocking",
        "_flush_scheduled",
        "_handshaking",
        "_has_unfinished",
        "_held",
        "_out",
        "_out_bytes",
        "_owner",
        "_parked",
        "_reader",
        "_reading_paused",
        "_serve_scheduled",
        "_serving",
        "_slot_bytes",
        "_slots",
        "_socket",
        "_throttling",
        "_transport",
        "_write_paused",
        "active",
        "client_host",
        "client_port",
        "closing",
        "idle_since",
        "listener",
        "principal",
        "software",
    )

    is_forwarded = False

    def __init__(self, owner: ConnectionOwner, listener: str = "") -> None:
        self._owner = owner
        self._reader = FrameReader(owner.frame_bytes_max, owner.receive_buffer)
        self._has_unfinished = False  # as the owner knows
        self._slots: deque[RequestContext] = deque()
        self._parked: list[RequestContext] = []  # those that `_hurry` may still complete
        self._blocking: RequestContext | None = None  # its `async def` handler runs
        self._held: deque[Buffer] = deque()
        self._out: deque[Buffer] = deque()
        self._out_bytes = 0
        self._slot_bytes = 0
        self._serving = False
        self._write_paused = False
        self._reading_paused = False
        self._handshaking = False
        self._flush_scheduled = False
        self._serve_scheduled = False
        self._transport: Any = None
        self._socket = -1
        self._throttling: asyncio.TimerHandle | None = None
        self._at_close: Sequence[Callable[[], None]] = ()
        self._authentication: Authentication | None = None
        self.active = True
        self.closing = False
        self.idle_since = 0.0
        self.client_host = ""
        self.client_port = 0
        self.listener = listener
        self.principal = ANONYMOUS
        self.software = ("unknown", "unknown")

    # -- the event loop's side ---------------------------------------------------------------------

    def accepted(self, transport: asyncio.BaseTransport) -> str:
        """Take part in the limits before the TLS handshake; return the client and the listener."""
        self._transport = transport
        self._handshaking = True
        self.client_host, self.client_port = _address(transport, "peername")
        self._owner.join(self)
        return f"{self.client_host}:{self.client_port} on the listener {self.listener}"

    def handshake_over(self) -> None:
        """Leave again if the handshake failed."""
        if self._handshaking:
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. TCP_NODELAY is asyncio's own default."""
        self._transport = transport
        self._socket = _socket_of(transport)
        # A byte that the socket does not take pauses writing: the rest stays here by reference.
        # With TLS, the limit 0 would count as reached by no bytes at all.
        is_tls = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=1 if is_tls else 0)
        if self._handshaking:
            self._handshaking = False
            self._owner.secured(self)
            if self._reading_paused:
                self._transport.pause_reading()
        else:
            self.client_host, self.client_port = _address(transport, "peername")
            self._owner.join(self)
        guard = self._owner.guards.get(self.listener)
        if guard is not None:
            self._admit(guard)

    def _admit(self, guard: Guard) -> None:
        """Let the listener's guard say what this connection belongs to."""
        principal = guard.principal_of(self._transport)
        if principal is None:
            log.info(
                "closing %s:%d: no rule of ssl.principal.mapping.rules has its certificate's name",
                self.client_host,
                self.client_port,
            )
            self.abort()
        else:
            self.principal = principal
        if guard.exchanges:
            from tidelog.network.authentication import Authentication  # noqa: PLC0415 - with SASL

            self._reader.limit(guard.frame_bytes_max)
            self._authentication = Authentication(guard, lambda: self._owner.dispatcher)

    def authenticated(self, *, ends: bool) -> None:
        """Take requests of any size from now on; see `SaslPeer`."""
        self._reader.limit(self._owner.frame_bytes_max)
        if not ends:
            self._authentication = None

    def go_through(self, gate: Callable[[Any], Any]) -> None:
        """Use what `gate` returns in the place of the transport, and never the socket directly."""
        if self._transport is not None:
            self._transport = gate(self._transport)
            self._socket = -1

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel parked requests; send no more responses."""
        self.closing = True
        self._handshaking = False
        self._transport = None
        self._socket = -1
        if self._throttling is not None:
            self._throttling.cancel()
            self._throttling = None
        self._owner.forget(self)
        callbacks, self._at_close = self._at_close, ()
        for callback in callbacks:
            callback()
        slots, self._slots = self._slots, deque()
        self._parked.clear()
        self._held.clear()
        self._out.clear()
        for context in slots:
            if context.deferred is not None:
                try:
                    context.deferred.cancel()
                except Exception:
                    log.exception("cannot cancel a request of api key %d", context.api_key)

    def at_close(self, callback: Callable[[], None]) -> None:
        """Call back once the connection is closed."""
        self._at_close = (*self._at_close, callback)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes: the loop's receive buffer, or that of a large frame."""
        return self._reader.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every complete frame among the received bytes, then write the responses."""
        self.active = True
        try:
            frames = self._reader.received(nbytes)
        except ProtocolError as error:
            self._refuse(error)
            return
        unfinished = self._reader.unfinished_bytes
        if unfinished or self._has_unfinished:
            self._has_unfinished = bool(unfinished)
            self._owner.count_unfinished(self, unfinished)
        if frames:
            self._serve(frames)
        elif self._parked:
            self._hurry()

    def eof_received(self) -> None:
        """Let the client's half-close close the connection, as Kafka does."""

    def pause_writing(self) -> None:
        """Keep responses here while the socket is full."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Continue to write, then read, because the socket took all its bytes."""
        self.active = True
        self._write_paused = False
        self._write()
        self._relieve()

    # -- requests ----------------------------------------------------------------------------------

    def _serve(self, frames: Sequence[Buffer], *, are_copies: bool = False) -> None:
        """Handle frames in order until the connection is blocked or its time is over, then write
        the responses."""
        self._serving = True
        try:
            self._handle(frames, are_copies=are_copies)
        except ProtocolError as error:
            self._refuse(error)
        except Exception:
            log.exception("closing %s:%d: request failed", self.client_host, self.client_port)
            self.closing = True
        self._serving = False
        if self._parked and (self._reader.pending or self._held):
            self._hurry()
        self._flush()
        if self._reader.error is not None and not self._held:
            self._refuse(self._reader.error)
        elif self.closing:
            self._finish()
        elif self._held:
            self._relieve()

    def _handle(self, frames: Sequence[Buffer], *, are_copies: bool) -> None:
        dispatch = self._owner.dispatcher.dispatch
        if self._authentication is not None:
            dispatch = self._authentication.dispatch  # type: ignore[assignment]
        slots = self._slots
        now = asyncio.get_running_loop().time
        end = now() + self._owner.turn_s if len(frames) > 1 else math.inf
        for index, frame in enumerate(frames):
            if self._parked:
                self._hurry()
            is_busy = slots or self._out or self._throttling  # else it cannot be blocked
            if (is_busy and self._blocked) or (index and now() >= end):
                self._flush()
                if self._blocked or now() >= end:
                    self._hold(frames[index:], are_copies=are_copies)
                    return
            context = dispatch(self, frame)
            answer = context.answer
            if self.closing:
                return
            if answer is None:
                self._park(context, len(frame))
            elif slots:
                slots.append(context)
                self._slot_bytes += sum(map(len, answer))
            elif answer:
                self._out.extend(answer)
                self._out_bytes += sum(map(len, answer))

    @property
    def _blocked(self) -> bool:
        """Return whether no further request may be handled now."""
        return (
            self._blocking is not None
            or self._out_bytes + self._slot_bytes > QUEUED_BYTES_MAX
            or len(self._slots) >= IN_FLIGHT_MAX
            or self._throttling is not None
        )

    @property
    def waiting(self) -> bool:
        """Return whether the client waits for a response, or is throttled: such a connection is not
        idle."""
        return bool(self._slots) or self._throttling is not None

    def unanswered(self) -> tuple[RequestContext, ...]:
        """Return the requests that wait for a response, in their order."""
        return tuple(self._slots)

    def _park(self, context: RequestContext, size: int) -> None:
        """Keep the slot of a parked request; its bytes count until it is answered."""
        context.parked = size
        self._slot_bytes += size
        self._slots.append(context)
        if context.deferred is None:
            self._blocking = context
        else:
            self._parked.append(context)

    def _hold(self, frames: Sequence[Buffer], *, are_copies: bool) -> None:
        """Keep frames for later, copied out of the shared buffer."""
        if not are_copies:
            # Writable: an append writes offsets into the batches of a Produce request.
            frames = [memoryview(bytearray(frame)) for frame in frames]
        self._held.extend(frames)
        self.pause_reading()

    def _hurry(self) -> None:
        """Complete parked requests with what there is: another request waits behind them."""
        parked, self._parked = self._parked, []
        for context in parked:
            if context.deferred is not None:
                context.deferred.hurry()

    def _relieve(self) -> None:
        """After responses were written, serve held frames soon, or read again.

        The loop serves held frames, not this call: `complete` may run in the middle of another
        connection's handler.
        """
        if self._blocked or self.closing:
            return
        if self._held:
            if not self._serve_scheduled:
                self._serve_scheduled = True
                self._owner.scheduled += 1
                asyncio.get_running_loop().call_soon(self._serve_held)
        else:
            self.resume_reading()

    def _serve_held(self) -> None:
        self._serve_scheduled = False
        self._owner.scheduled -= 1
        held, self._held = self._held, deque()
        if held and not self.closing:
            self._serve(list(held), are_copies=True)
            self._relieve()

    def resume_reading(self) -> None:
        """Resume reading if it is paused."""
        if self._reading_paused and not self.closing:
            self._reading_paused = False
            if not self._handshaking:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if not self._reading_paused and not self.closing:
            self._reading_paused = True
            if not self._handshaking:  # which goes on
                self._transport.pause_reading()

    def throttle(self, seconds: float) -> None:
        """Read no further request for this long; see `Peer.throttle`."""
        if self.closing:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._throttling is not None:
            if self._throttling.when() >= end:
                return
            self._throttling.cancel()
        self._throttling = loop.call_at(end, self._end_throttling)
        self.pause_reading()

    def _end_throttling(self) -> None:
        self._throttling = None
        self._relieve()

    # -- answers -----------------------------------------------------------------------------------

    def complete(self, context: RequestContext, response: Any) -> None:
        """Answer a request that was parked; see `Peer.complete`."""
        if context.answer is not None or self._transport is None:
            return
        dispatcher = self._owner.dispatcher
        if context.parked and dispatcher.encodes_in_turns(context, response):
            return  # it comes again
        try:
            answer = dispatcher.encode(context, response)
        except Exception:
            log.exception("cannot encode the response to api key %d", context.api_key)
            self.close()
            return
        context.answer = answer
        if self._blocking is context:
            self._blocking = None
        if not context.parked:
            return  # completed inside its handler
        self._slot_bytes += sum(map(len, answer)) - context.parked
        if not self._serving and self._slots[0] is context:
            if len(self._slots) == 1:
                self._flush()
                self._relieve()
            elif not self._flush_scheduled:
                # Several often complete together, so one write serves them all.
                self._flush_scheduled = True
                asyncio.get_running_loop().call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_scheduled = False
        if not self.closing:
            self._flush()
            self._relieve()

    def _flush(self) -> None:
        """Move the responses whose turn has come to `_out`, and write."""
        slots = self._slots
        while slots and (answer := slots[0].answer) is not None:
            slots.popleft()
            size = sum(map(len, answer))
            self._slot_bytes -= size
            self._out_bytes += size
            self._out.extend(answer)
        if self._out:
            self._write()
        if self._out_bytes + self._slot_bytes > QUEUED_BYTES_MAX:
            self.pause_reading()

    def _write(self) -> None:
        """Write to the transport without copies of large parts."""
        out = self._out
        if self._write_paused or not out:
            return
        if self._out_bytes <= JOINED_BYTES_MAX:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._out_bytes = 0
            self._transport.write(data)
        elif self._socket >= 0 and not self._transport.get_write_buffer_size():
            self._write_vectors()
        else:
            self._write_chunks(CHUNK_BYTES_MAX)

    def _write_vectors(self) -> None:
        """Write everything to the socket in one call, without copies.

        One call, because every call wakes the client and may send a short packet: 1 MiB costs 0.10
        ms in one piece, 0.13 in four, 0.20 in sixteen. It bypasses the transport, whose `write`
        copies what the socket does not take (and `writelines` of Python 3.11 copies everything).
        """
        out = self._out
        while out and not self._write_paused and not self._transport.is_closing():
            try:
                written = os.writev(self._socket, list(islice(out, VECTORS_MAX)))
            except OSError:
                written = 0  # full or broken: the transport handles it
            self._out_bytes -= written
            # the usual case: sockets have room for a large response (`runtime.py`)
            if not self._out_bytes:
                out.clear()
                return
            while written:
                part = out.popleft()
                written -= len(part)
                if written < 0:
                    out.appendleft(memoryview(part)[written:])
                    written = 0
            if out:
                self._write_one(REST_BYTES_MAX)

    def _write_chunks(self, bytes_max: int) -> None:
        """Write to the transport until it pauses."""
        while self._out and not self._write_paused:
            self._write_one(bytes_max)

    def _write_one(self, bytes_max: int) -> None:
        data = _next_chunk(self._out, bytes_max)
        self._out_bytes -= len(data)
        self._transport.write(data)

    # -- the end -----------------------------------------------------------------------------------

    def _refuse(self, error: ProtocolError) -> None:
        """Close without a response, which the client could not match."""
        log.info("closing %s:%d: %s", self.client_host, self.client_port, error)
        self.close()

    def close(self) -> None:
        """Close once the responses whose turn has come are written; see `Peer.close`."""
        self.closing = True
        if not self._serving:
            self._finish()

    def _finish(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if self._out:
                self._transport.write(b"".join(self._out))  # bounded as described above
                self._out.clear()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; drop unsent bytes."""
        self.closing = True
        if self._transport is not None:
            self._transport.abort()


def _next_chunk(out: deque[Buffer], bytes_max: int) -> Buffer:
    """Take the next bytes to write: an uncopied slice of a large part, or small parts joined."""
    first = out.popleft()
    if len(first) > bytes_max:
        view = memoryview(first)
        out.appendleft(view[bytes_max:])
        return view[:bytes_max]
    parts, room = [first], min(bytes_max, JOINED_BYTES_MAX) - len(first)
    while out and room > 0:
        part = out.popleft()
        if len(part) > room:
            view = memoryview(part)
            out.appendleft(view[room:])
            part = view[:room]
        parts.append(part)
        room -= len(part)
    return first if len(parts) == 1 else b"".join(parts)


def _socket_of(transport: asyncio.BaseTransport) -> int:
    """Return the descriptor if the socket's bytes are the transport's, else -1 (TLS, tests)."""
    socket = transport.get_extra_info("socket")
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    return int(socket.fileno())


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int]:
    """Return host and port of a socket's end; ("", 0) if the transport has none."""
    address = transport.get_extra_info(which)
    return (str(address[0]), int(address[1])) if address else ("", 0)
