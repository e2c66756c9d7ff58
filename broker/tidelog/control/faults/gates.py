"""Gates on the connections of one broker: what passes them waits while they are closed, or is slow.

A gate stands between a protocol and its transport. Nothing is lost: bytes wait as they do for a
retransmission, and travel when the gate opens. A broker gets gates with its first fault of links.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from tidelog.seams import Listener, Network

__all__ = ["Gate", "GatedNetwork", "Passage"]


class Passage(NamedTuple):
    """What may pass a gate: `sends` and `receives` as the broker does; `delay_s` for what it
    sends."""

    sends: bool = True
    receives: bool = True
    delay_s: float = 0.0


OPEN = Passage()


@runtime_checkable
class Gateable(Protocol):
    """A protocol of requests whose transport can be replaced."""

    @property
    def awaited(self) -> int:
        """The number of its requests that have no answer yet."""
        ...

    def go_through(self, gate: Callable[[Any], Any]) -> None:
        """Use what `gate` returns in the place of the transport."""
        ...


class Gate:
    """A transport that may hold what is sent and what is received."""

    def __init__(self, transport: Any, held: Callable[[int], None] = lambda count: None) -> None:
        """`held` is called with the number of requests that begin to wait, for the gate or for
        answers behind it."""
        self._transport = transport
        self._held = held
        self._passage = OPEN
        self._waiting: deque[tuple[float, bytes]] = deque()  # when to send, what
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False  # by the protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def set(self, passage: Passage) -> None:
        """Open or close it; what waited goes on if it may."""
        shuts = self._passage.receives and not passage.receives
        self._passage = passage
        if shuts and isinstance(protocol := self._transport.get_protocol(), Gateable):
            self._held(protocol.awaited)
        self._read_or_pause()
        self._send()

    def pause_reading(self) -> None:
        """Pause for the protocol."""
        self._is_paused = True
        self._read_or_pause()

    def resume_reading(self) -> None:
        """Resume for the protocol, when the gate is open."""
        self._is_paused = False
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_paused or not self._passage.receives:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def write(self, data: Any) -> None:
        """Send now, later or when the gate opens."""
        if self._passage == OPEN and not self._waiting:
            self._transport.write(data)
            return
        self._held(1)
        due = asyncio.get_running_loop().time() + self._passage.delay_s
        self._waiting.append((due, bytes(data)))
        self._send()

    def writelines(self, parts: Any) -> None:
        """Send several parts."""
        self.write(b"".join(parts))

    def _send(self) -> None:
        """Send what may go, in order."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._passage.sends:
            due, data = self._waiting[0]
            if due > loop.time() and self._passage.delay_s:
                self._timer = loop.call_at(due, self._send)
                return
            self._waiting.popleft()
            if not self._transport.is_closing():
                self._transport.write(data)


class GatedNetwork:
    """The network of a broker whose connections to other brokers have gates."""

    def __init__(
        self,
        network: Network,
        passage: Callable[[str, int], Passage],
        held: Callable[[str, int, int], None],
    ) -> None:
        """`passage` returns what may pass to and from an address now; `held` is called with an
        address and the number of requests or connections to it that begin to wait."""
        self._network = network
        self._passage = passage
        self._held = held
        self._gates: dict[Gate, tuple[str, int]] = {}
        self._changed = asyncio.Event()

    def gate(self, transport: Any, host: str, port: int) -> Gate:
        """Return a gate before a connection to an address."""
        for other in [other for other in self._gates if other.is_closing()]:
            del self._gates[other]
        gate = Gate(transport, partial(self._held, host, port))
        self._gates[gate] = (host, port)
        gate.set(self._passage(host, port))
        return gate

    def change(self) -> None:
        """Set all gates as the passages are now."""
        for gate, address in self._gates.items():
            gate.set(self._passage(*address))
        self._changed.set()
        self._changed = asyncio.Event()

    async def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> Listener:
        """Listen as ever."""
        return await self._network.listen(host, port, protocol_factory, tls)

    async def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        tls: SSLContext | None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, once both ways are open."""
        if not self._is_open(host, port):
            self._held(host, port, 1)
        while not self._is_open(host, port):
            await self._changed.wait()
        transport, protocol = await self._network.connect(host, port, protocol_factory, tls)
        if isinstance(protocol, Gateable):
            protocol.go_through(lambda transport: self.gate(transport, host, port))
        return transport, protocol

    def _is_open(self, host: str, port: int) -> bool:
        passage = self._passage(host, port)
        return passage.sends and passage.receives
