"""In-memory transports that drive the same protocol objects as the real ones.

Each direction of a connection is a stream: bytes arrive in order, after a latency drawn for each
write, cut into pieces at chance. A reader that pauses lets bytes pile up at the writer, whose
protocol is then paused. `reset` breaks connections in the middle of a delivery.

`cut` parts two hosts, one way or both: connections stay as they are, and what is sent, an end or a
reset included, waits for `heal` as for a retransmission; a new connection waits as well. A cut
may be of one listening port alone, as a firewall's.
"""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING, Any

from tidelog.simulation.loop import LANE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.simulation.loop import SimLoop

Link = tuple[str, str] | tuple[str, str, int]  # from, to, and the listening port if only that
HIGH_WATER_BYTES = 64 * 1024
LOW_WATER_BYTES = 16 * 1024
TORN = 0.1  # deliveries that come in pieces: each piece is a step more


class SimNetwork:
    """All hosts of a run; `door(host)` is what one of them gets as its `Network` seam."""

    def __init__(self, loop: SimLoop, seed: int | str) -> None:
        self.loop = loop
        self.rng = random.Random(f"{seed}:net")
        self.latency_s = (0.00005, 0.001)
        self.slow_links: dict[tuple[str, str], tuple[float, float]] = {}  # latencies of their own
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: list[tuple[SimTransport, SimTransport]] = []
        self.crowded: set[str] = set()  # hosts that have no descriptor for a connection
        self._port = 20_000
        self._cuts: dict[Link, int] = {}  # how many cuts part them
        self._healed: list[asyncio.Future[None]] = []

    def door(self, host: str) -> SimDoor:
        """The `Network` of one host."""
        return SimDoor(self, host)

    def draw_latency(self, source: str = "", target: str = "") -> float:
        """Seconds that one write travels; what others sent later may so come earlier."""
        return self.rng.uniform(*self.slow_links.get((source, target), self.latency_s))

    def is_cut(self, source: str, target: str, port: int) -> bool:
        """Whether nothing gets from one host to another on connections to this port."""
        cuts = self._cuts
        return bool(cuts) and ((source, target) in cuts or (source, target, port) in cuts)

    def cut(self, links: Iterable[Link]) -> None:
        """Nothing gets from the first host of each link to the second any more."""
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def heal(self, links: Iterable[Link]) -> None:
        """Undo a cut: what waited travels now."""
        for link in links:
            self._cuts[link] -= 1
            if not self._cuts[link]:
                del self._cuts[link]
        for pair in list(self.connections):
            for end in pair:
                end.release_held()
        healed, self._healed = self._healed, []
        for future in healed:
            if not future.done():
                future.set_result(None)

    async def reachable(self, source: str, target: str, port: int) -> None:
        """Wait until the way is free, there and back."""
        while self.is_cut(source, target, port) or self.is_cut(target, source, port):
            future: asyncio.Future[None] = self.loop.create_future()
            self._healed.append(future)
            await future

    def free_port(self) -> int:
        """Find a port that no listener has."""
        self._port += 1
        return self._port

    def reset(self, index: int) -> None:
        """Break one open connection, if there is any, both ends at once."""
        if not self.connections:
            return
        for end in self.connections[index % len(self.connections)]:
            end.break_off(ConnectionResetError(errno.ECONNRESET, "reset"))

    def drop_host(self, host: str) -> None:
        """The host is gone: its listeners close, its peers see resets, it sees nothing."""
        for address in [key for key, value in self.listeners.items() if value.host == host]:
            del self.listeners[address]
        for pair in list(self.connections):
            if host in (pair[0].host, pair[1].host):
                for end in pair:
                    if end.host == host:
                        end.vanish()
                for end in pair:
                    end.break_off_unless_cut(ConnectionResetError(errno.ECONNRESET, "peer died"))
                if all(end.is_closing() for end in pair):
                    self.connections.remove(pair)


class SimListener:
    """A listening address."""

    def __init__(
        self, network: SimNetwork, host: str, port: int, factory: Callable[[], Any]
    ) -> None:
        self.network, self.host, self.port, self.factory = network, host, port, factory
        self.lane = LANE.get()

    def close(self) -> None:
        """Take no more connections."""
        self.network.listeners.pop((self.host, self.port), None)


class SimDoor:
    """The `Network` seam of one host."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self.network, self.host = network, host

    async def listen(
        self, host: str, port: int, protocol_factory: Callable[[], Any], tls: object = None
    ) -> SimListener:
        """Listen on this host; the address in `host` only names it."""
        port = port or self.network.free_port()
        if (self.host, port) in self.network.listeners:
            raise OSError(errno.EADDRINUSE, f"{self.host}:{port} is taken")
        listener = SimListener(self.network, self.host, port, protocol_factory)
        self.network.listeners[self.host, port] = listener
        return listener

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], Any], tls: object = None
    ) -> tuple[SimTransport, Any]:
        """Connect to (host, port), after a latency."""
        await asyncio.sleep(self.network.draw_latency(self.host, host))
        await self.network.reachable(self.host, host, port)
        listener = self.network.listeners.get((host, port))
        if host in self.network.crowded:
            raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port}")
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port}")
        here = SimTransport(self.network, self.host, LANE.get(), self.network.free_port())
        there = SimTransport(self.network, listener.host, listener.lane, port)
        here.peer, there.peer = there, here
        here.listening_port = there.listening_port = port
        self.network.connections.append((here, there))
        here.attach(protocol_factory())
        there.in_lane(lambda: there.attach(listener.factory()))
        return here, here.protocol


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimTransport
    listening_port: int  # the same at both ends

    def __init__(self, network: SimNetwork, host: str, lane: str, port: int) -> None:
        super().__init__()
        self.network, self.host, self.lane, self.port = network, host, lane, port
        self.protocol: Any = None
        self._arrived = bytearray()  # bytes here that the protocol has not taken
        self._travelling = 0  # bytes written and not yet taken at the other end
        self._last_arrival = 0.0
        self._held: list[Callable[[], Any]] = []  # sent here over a link that is cut
        self._reading = True
        self._delivering = False
        self._paused_writing = False
        self._closing = False
        self._lost = False
        self._ended = False  # the peer's end of stream has arrived

    # asyncio's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses, as sockets give them."""
        known = {"peername": (self.peer.host, self.peer.port), "sockname": (self.host, self.port)}
        return known.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        """Another protocol takes over."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """The protocol."""
        return self.protocol

    def is_closing(self) -> bool:
        """Closed, or about to be."""
        return self._closing or self._lost

    def is_reading(self) -> bool:
        """Whether arrived bytes are given to the protocol."""
        return self._reading and not self.is_closing()

    def pause_reading(self) -> None:
        """Let bytes pile up."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take them again."""
        self._reading = True
        self._schedule_delivery(0)

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not taken."""
        return self._travelling

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high water."""
        return LOW_WATER_BYTES, HIGH_WATER_BYTES

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Fixed here."""

    def can_write_eof(self) -> bool:
        """No half-closed connections."""
        return False

    def write(self, data: Any) -> None:
        """Send a copy: the writer may reuse the buffer, as with a socket that took it."""
        if self.is_closing() or not data:
            return
        payload = bytes(data)
        self._travelling += len(payload)
        peer = self.peer
        peer._arrive_later(lambda: peer._arrived.extend(payload))
        if self._travelling > HIGH_WATER_BYTES and not self._paused_writing:
            self._paused_writing = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several buffers."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what is written, then end."""
        if self.is_closing():
            return
        self._closing = True
        self.peer._arrive_later(self.peer._end_of_stream)
        self.network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """End at once."""
        self.break_off(None)
        self.peer.break_off_unless_cut(ConnectionResetError(errno.ECONNRESET, "aborted"))

    # the wire

    @property
    def _is_cut(self) -> bool:
        """Whether what the peer sends does not get here."""
        return self.network.is_cut(self.peer.host, self.host, self.listening_port)

    def in_lane(self, action: Callable[[], Any], delay: float = 0.0) -> None:
        """Run something on this end's machine."""
        token = LANE.set(self.lane)
        try:
            self.network.loop.call_later(delay, action)
        finally:
            LANE.reset(token)

    def attach(self, protocol: Any) -> None:
        """The connection is made at this end."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._schedule_delivery(0)

    def _arrive_later(self, action: Callable[[], Any]) -> None:
        """Do it here after the network's latency, never before what was sent earlier."""
        loop = self.network.loop
        if self._held or self._is_cut:
            self._held.append(action)
            return
        latency_s = self.network.draw_latency(self.peer.host, self.host)
        at = max(self._last_arrival, loop.time() + latency_s)
        self._last_arrival = at

        def arrive() -> None:
            if not self._lost:
                action()
                self._deliver()

        self.in_lane(arrive, at - loop.time())

    def release_held(self) -> None:
        """What waited for the link is on its way, if it is free."""
        if self._held and not self._is_cut:
            held, self._held = self._held, []
            for action in held:
                self._arrive_later(action)

    def _schedule_delivery(self, delay: float) -> None:
        if not self._delivering and not self._lost:
            self._delivering = True
            self.in_lane(self._deliver_scheduled, delay)

    def _deliver_scheduled(self) -> None:
        self._delivering = False
        self._deliver()

    def _deliver(self) -> None:
        """Give the protocol one piece of what has arrived; the rest follows at another step."""
        if self._lost or self.protocol is None or not self._reading:
            return
        if self._arrived:
            size = len(self._arrived)
            if size > 1 and self.network.rng.random() < TORN:
                size = self.network.rng.randrange(1, size)  # torn
            taken = self._give(size)
            del self._arrived[:taken]
            self.peer._taken(taken)
            if self._arrived:
                self._schedule_delivery(self.network.draw_latency() / 10)
                return
        if self._ended and not self._arrived:
            self._lose(None)

    def _give(self, size: int) -> int:
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(size))
            size = min(size, len(buffer))
            buffer[:size] = self._arrived[:size]
            protocol.buffer_updated(size)
        else:
            protocol.data_received(bytes(self._arrived[:size]))
        return size

    def _taken(self, size: int) -> None:
        self._travelling -= size
        if self._paused_writing and self._travelling <= LOW_WATER_BYTES and not self._lost:
            self._paused_writing = False
            self.in_lane(lambda: None if self._lost else self.protocol.resume_writing())

    def _end_of_stream(self) -> None:
        self._ended = True

    def break_off(self, error: Exception | None) -> None:
        """The connection is gone at this end, whatever was under way."""
        if not self._lost and not self._closing:
            self._closing = True
            self.in_lane(lambda: self._lose(error))

    def vanish(self) -> None:
        """This end's machine is gone: its protocol is not called again."""
        self._closing = self._lost = True

    def break_off_unless_cut(self, error: Exception) -> None:
        """What the peer's machine tells of the connection's end, as soon as it can."""
        if self._held or self._is_cut:
            self._held.append(lambda: self.break_off(error))
        else:
            self.break_off(error)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        pair = next((p for p in self.network.connections if self in p), None)
        if pair is not None and (pair[0]._lost and pair[1]._lost):
            self.network.connections.remove(pair)
        if not self.peer.is_closing() and error is None:
            self.peer._arrive_later(self.peer._end_of_stream)
        if self.protocol is not None:
            self.protocol.connection_lost(error)
