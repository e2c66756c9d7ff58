"""All connections of a broker: their shared parts and the limits on their number and idle time.

One timer closes idle connections (`connections.max.idle.ms`), and one receive buffer serves all of
them: the loop handles one wake-up at a time. Built by `server.py`, before the broker can answer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from tidelog.network.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.network.dispatch import Dispatcher

__all__ = ["Connections"]

log = logging.getLogger("tidelog.network.connections")

RECEIVE_BUFFER_BYTES = 1 << 20


class Connections:
    """All connections of a broker: shared parts, the idle sweep, closing."""

    def __init__(
        self,
        *,
        frame_bytes_max: int = 100 << 20,
        idle_ms_max: int = 600_000,
        connections_max: int = 2147483647,
    ) -> None:
        self._dispatcher: Dispatcher | None = None
        self.connections_max = connections_max
        self.frame_bytes_max = frame_bytes_max
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.live: dict[Connection, None] = {}
        self.is_stopped = False
        self.on_empty: Callable[[], None] | None = None
        self.gate: Callable[[Any], Any] | None = None
        """Returns what new connections use in the place of their transports, if set."""
        self._idle_s_max = idle_ms_max / 1000
        self._sweep_s = min(max(self._idle_s_max / 10, 0.05), 60.0)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of requests, once the broker is ready."""
        assert self._dispatcher is not None, "no request is read before `open`"
        return self._dispatcher

    @property
    def is_open(self) -> bool:
        """Return whether requests are read."""
        return self._dispatcher is not None

    def factory(self, listener: str = "") -> Connection:
        """Create the protocol object of a new connection on the listener of that name."""
        return Connection(self, listener)

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin to read requests, including those of early clients, and to close idle connections.

        The listener is bound before the broker is ready, so that a taken port is found before any
        file is changed, and port 0 is resolved before the cluster learns the broker's address.
        """
        self._dispatcher = dispatcher
        for connection in self.live:
            connection.resume_reading()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that were idle for too long; mark those active since the last sweep.

        A flag set by each read instead of a clock read or timer per request: an idle connection is
        closed between 1 and 1.1 times the limit. A connection that waits for a response is not
        idle.
        """
        now = loop.time()
        for connection in list(self.live):
            if connection.closing:
                connection.abort()  # it had a whole sweep to take the rest
            elif connection.active or connection.waiting:
                connection.active = False
                connection.idle_since = now
            elif now - connection.idle_since >= self._idle_s_max:
                connection.close()
        self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def join(self, connection: Connection) -> None:
        """Take a new connection; abort it if the broker stops or has too many."""
        self.live[connection] = None
        if self.gate is not None:
            connection.go_through(self.gate)
        if self.is_stopped:  # accepted while the listener closed
            connection.abort()
        elif len(self.live) > self.connections_max:
            host, port = connection.client_host, connection.client_port
            log.warning("closing %s:%d: max.connections is reached", host, port)
            connection.abort()
        elif not self.is_open:
            connection.pause_reading()

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.live.pop(connection, None)
        if not self.live and self.on_empty is not None:
            on_empty, self.on_empty = self.on_empty, None
            on_empty()

    def stop(self) -> None:
        """Close every connection; requests without an answer are cancelled."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self.live):
            connection.close()

    def abort(self) -> None:
        """Drop the connections that did not take their last responses."""
        for connection in list(self.live):
            connection.abort()
