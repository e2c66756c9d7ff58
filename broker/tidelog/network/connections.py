"""All connections of a broker: their shared parts, and the limits of their number and idle time.

The buffers of large frames that have not arrived whole are counted. One timer closes idle
connections (`connections.max.idle.ms`), and one receive buffer serves all of them: the loop handles
one wake-up at a time. Built by `server.py`, before the broker can answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from tidelog.network.buffers import receive_buffer
from tidelog.network.connection import Connection
from tidelog_storage.config_key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.config.listeners import ListenerSettings
    from tidelog.network.dispatch import Dispatcher
    from tidelog.seams import Runtime
    from tidelog.security.guard import Guard
    from tidelog.security.scram import Credentials

__all__ = ["Connections"]

log = logging.getLogger("tidelog.network.connections")

RECEIVE_BUFFER_BYTES = 1 << 20
UNFINISHED_BYTES_MAX = 256 << 20  # of `queued.max.request.bytes` -1, where Kafka has no limit
FULL_TURNS = 10
UNLIMITED = 2147483647  # Kafka's default of both limits


class Connections:
    """All connections of a broker: shared parts, the idle sweep, closing."""

    def __init__(
        self,
        *,
        frame_bytes_max: int = 100 << 20,
        idle_ms_max: int = 600_000,
        connections_max: int = UNLIMITED,
        unfinished_bytes_max: int = -1,
        turn_s_max: float = math.inf,
    ) -> None:
        self.dispatcher: Dispatcher
        """Of requests, from `open` on; none is read before."""
        self.is_open = False
        self.connections_max = connections_max
        self.connections_per_ip_max = UNLIMITED
        self.connections_per_ip: Mapping[str, int] = {}
        """Limits of single addresses, in the place of `connections_per_ip_max`."""
        self.listener_limits: Mapping[str, int] = {}
        """Limits of single listeners, beside `connections_max`."""
        self.protected_listener: str | None = None
        """That of other brokers, which `connections_max` does not keep out, if clients have
        another one."""
        self.frame_bytes_max = frame_bytes_max
        self._turn_s_max = turn_s_max
        self.scheduled = 0
        self._unfinished_bytes_max = (
            unfinished_bytes_max
            if unfinished_bytes_max > 0
            else max(UNFINISHED_BYTES_MAX, frame_bytes_max)
        )
        self._unfinished: dict[Connection, int] = {}  # the one silent for longest first
        self._unfinished_bytes = 0
        self.receive_buffer = receive_buffer(RECEIVE_BUFFER_BYTES)
        self.live: dict[Connection, None] = {}
        self.guards: dict[str, Guard] = {}
        """What secures the listeners that are not PLAINTEXT, by their names."""
        self.credentials: Callable[[], Credentials] | None = None
        """Returns what finds what users of SCRAM must prove, once there is metadata."""
        self.is_stopped = False
        self.on_empty: Callable[[], None] | None = None
        self.gate: Callable[[Any], Any] | None = None
        """Returns what new connections use in the place of their transports, if set."""
        self._delay_s: Callable[[str], float] | None = None
        self._rate_s: Callable[[str], float] | None = None
        self._idle_s_max = idle_ms_max / 1000
        self._sweep_s = min(max(self._idle_s_max / 10, 0.05), 60.0)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def turn_s(self) -> float:
        """How long the requests of a connection are handled before others have their turn: of more
        than `FULL_TURNS` connections that go on in the next one, all share as much."""
        return self._turn_s_max * min(1.0, FULL_TURNS / max(self.scheduled, 1))

    def factory(self, listener: str = "") -> Connection:
        """Create the protocol object of a new connection on the listener of that name."""
        return Connection(self, listener)

    def guard(self, settings: ListenerSettings, runtime: Runtime) -> None:
        """Secure a listener's connections, unless it is PLAINTEXT; ConfigError."""
        if settings.protocol != "PLAINTEXT":
            from tidelog.security.guard import Guard  # noqa: PLC0415 - few listeners have one

            self.guards[settings.listener] = Guard(settings, runtime, self._known_credentials)

    def renew(self, settings_of: Callable[[str], ListenerSettings]) -> None:
        """Read the key and trust stores again, also if only the files have changed."""
        for name, guard in self.guards.items():
            try:
                guard.renew(settings_of(name))
            except ConfigError as error:
                log.error("listener %s keeps its certificates: %s", name, error.message)

    def _known_credentials(self) -> Credentials:
        assert self.credentials is not None, "no client authenticates before there is metadata"
        return self.credentials()

    def open(self, dispatcher: Dispatcher) -> None:
        """Begin to read requests, including those of early clients, and to close idle connections.

        The listener is bound before the broker is ready, so that a taken port is found before any
        file is changed, and port 0 is resolved before the cluster learns the broker's address.
        """
        self.dispatcher, self.is_open = dispatcher, True
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
        limit = self._exceeded(connection)
        if self.is_stopped:  # accepted while the listener closed
            connection.abort()
        elif limit is not None:
            host, port = connection.client_host, connection.client_port
            log.warning("closing %s:%d: %s is reached", host, port, limit)
            connection.abort()
        elif not self.is_open:
            connection.pause_reading()
        elif self._rate_s is not None and (seconds := self._rate_s(connection.listener)):
            connection.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._admit, connection)
        else:
            self._admit(connection)
        if limit is None and len(self.live) > self.connections_max:
            self._make_room()

    def _make_room(self) -> None:
        """Close the client's connection that is idle for longest, for one of another broker
        (KIP-402)."""
        clients = [
            one for one in self.live if one.listener != self.protected_listener and not one.closing
        ]
        if clients:
            idle = min(clients, key=lambda one: one.idle_since)
            host, port = idle.client_host, idle.client_port
            log.warning("closing %s:%d for a broker: max.connections is reached", host, port)
            idle.abort()

    def _admit(self, connection: Connection) -> None:
        """Read a connection, or close it unread if its address has too many new ones.

        The address is counted after the wait for the rate, as ConnectionQuotas.inc does.
        """
        if self._delay_s is not None and (seconds := self._delay_s(connection.client_host)):
            connection.pause_reading()
            asyncio.get_running_loop().call_later(seconds, connection.close)
        else:
            connection.resume_reading()

    def secured(self, connection: Connection) -> None:
        """Let a connection that joined before its TLS handshake go through the gate again."""
        if self.gate is not None:
            connection.go_through(self.gate)

    def limit_new(self, delay_s: Callable[[str], float] | None) -> None:
        """Close each new connection after the seconds that `delay_s(address)` returns, if any,
        without reading it (KIP-612)."""
        self._delay_s = delay_s

    def slow_new(self, delay_s: Callable[[str], float] | None) -> None:
        """Read each new connection after the seconds that `delay_s(listener)` returns."""
        self._rate_s = delay_s

    def _exceeded(self, new: Connection) -> str | None:
        """Return the limit that a new connection exceeds, or None."""
        listener, host = new.listener, new.client_host
        own = self.listener_limits.get(listener)
        if own is not None and sum(one.listener == listener for one in self.live) > own:
            return f"listener.name.{listener.lower()}.max.connections"
        if len(self.live) > self.connections_max and listener != self.protected_listener:
            return "max.connections"
        limit = self.connections_per_ip.get(host, self.connections_per_ip_max)
        if limit < UNLIMITED and sum(one.client_host == host for one in self.live) > limit:
            return "max.connections.per.ip"
        return None

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self.live.pop(connection, None)
        self._unfinished_bytes -= self._unfinished.pop(connection, 0)
        if not self.live and self.on_empty is not None:
            on_empty, self.on_empty = self.on_empty, None
            on_empty()

    def count_unfinished(self, connection: Connection, size: int) -> None:
        """Note how many bytes a connection's unfinished frame takes, 0 for none any more.

        Above `queued.max.request.bytes` those that have sent nothing for longest are closed: they
        may never go on, and Kafka's way, to read no further, would stop all others.
        """
        unfinished = self._unfinished
        self._unfinished_bytes += size - unfinished.pop(connection, 0)
        if size:
            unfinished[connection] = size
        while self._unfinished_bytes > self._unfinished_bytes_max and len(unfinished) > 1:
            silent = next(iter(unfinished))
            self._unfinished_bytes -= unfinished.pop(silent)
            host, port = silent.client_host, silent.client_port
            log.warning("closing %s:%d: queued.max.request.bytes is reached", host, port)
            silent.abort()

    def stop(self) -> None:
        """Close every connection; requests without an answer are cancelled."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for guard in self.guards.values():
            guard.close()
        for connection in list(self.live):
            connection.close()

    def close_of(self, listener: str) -> None:
        """Close the connections of one listener."""
        for connection in [one for one in self.live if one.listener == listener]:
            connection.close()

    def abort(self) -> None:
        """Drop the connections that did not take their last responses."""
        for connection in list(self.live):
            connection.abort()
