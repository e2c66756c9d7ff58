"""A raw client on the simulated network: requests out, responses in, nothing hidden.

    connection = await WireConnection.open(machine, "client")
    response = await connection.ask(MetadataRequest(topics=None), 12)

Requests may be pipelined (`send`). Everything that can go wrong is a `Lost`: refused, reset,
no answer in time. What a response says belongs to the broker's `life` at the time of connecting.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from support.wire_client import request_bytes, response_of
from tidelog.simulation.machine import PORT
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.messages.share_consumers import ShareFetchRequest

if TYPE_CHECKING:
    from sim.observed import Asked, Observer
    from tidelog.simulation.machine import Machine
    from tidelog_protocol.schema import Message

ANSWER_S_MAX = 3.0


class Lost(Exception):  # noqa: N818 - what has happened, to be waited out
    """The connection is gone, or no answer came in time: what was asked may have been done."""


class _Waiting(NamedTuple):
    """A request whose answer has not come."""

    correlation_id: int
    message: Message
    version: int
    future: asyncio.Future[Any]
    asked: Asked | None  # what the observer keeps of it


class WireConnection(asyncio.Protocol):
    """One connection; answers come in the order of the requests."""

    def __init__(self) -> None:
        self.life = -1
        self.client = self.host = ""
        self.observer: Observer | None = None
        self.transport: Any = None
        self.is_open = True
        self._buffer = bytearray()
        self._correlation_id = 0
        self._waiting: deque[_Waiting] = deque()

    @classmethod
    async def open(cls, machine: Machine, host: str) -> WireConnection:
        """Connect to the machine's broker."""
        try:
            _, connection = await machine.network.door(host).connect(machine.host, PORT, cls)
        except OSError as error:
            raise Lost(str(error)) from error
        connection.life = machine.life
        connection.client, connection.host = host, machine.host
        connection.observer = getattr(machine.loop, "observer", None)
        return connection

    async def ask(self, message: Message, version: int) -> Any:
        """Send a request and wait for its response."""
        return await self.receive(self.send(message, version))

    def send(self, message: Message, version: int, *, answered: bool = True) -> Any:
        """Send a request; what comes back is for `receive`."""
        self._correlation_id += 1
        future = asyncio.get_running_loop().create_future()
        asked = None
        if self.is_open and self.observer is not None:
            asked = self.observer.invoked(self.client, self.host, message)
        if answered and self.is_open:
            waiting = _Waiting(self._correlation_id, message, version, future, asked)
            self._waiting.append(waiting)
        elif answered:
            future.set_result(None)
        if self.is_open:
            self.transport.write(request_bytes(message, version, self._correlation_id))
        return future

    async def receive(self, future: asyncio.Future[Any]) -> Any:
        """The response to a request that was sent."""
        await asyncio.wait([future], timeout=ANSWER_S_MAX)
        if not future.done():
            self.close()
        response = future.result() if future.done() else None
        if response is None:
            raise Lost("no answer")
        return response

    def close(self) -> None:
        """Close, and give up what waits."""
        if self.transport is not None:
            self.transport.close()
        self._give_up()

    def _give_up(self) -> None:
        self.is_open = False
        while self._waiting:
            future = self._waiting.popleft().future
            if not future.done():
                future.set_result(None)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            (size,) = struct.unpack_from(">i", buffer)
            if len(buffer) < 4 + size:
                return
            frame = bytes(memoryview(buffer)[4 : 4 + size])
            del buffer[: 4 + size]
            if not self._waiting:
                assert not self.is_open, "an answer nobody asked for"
                return
            waiting = self._waiting.popleft()
            answered, response = response_of(waiting.message, waiting.version, frame)
            assert answered == waiting.correlation_id, "answers come in the order of requests"
            if self.observer is not None:
                is_read = isinstance(waiting.message, FetchRequest | ShareFetchRequest)
                if is_read and self.host in self.observer.distrusted:
                    waiting.future.set_result(None)
                    self.close()
                    return
                self.observer.answered(waiting.asked, response)
            if not waiting.future.done():
                waiting.future.set_result(response)


class Client:
    """A host that keeps a connection, and opens another when it is lost."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        self._connection: WireConnection | None = None

    async def connection(self) -> WireConnection:
        """The open connection, or a new one; waits while the broker is down."""
        while self._connection is None or not self._connection.is_open:
            try:
                self._connection = await WireConnection.open(self.machine, self.name)
            except Lost:
                await asyncio.sleep(0.05)
        return self._connection

    async def ask(self, message: Message, version: int) -> Any:
        """One request, one response, or `Lost`."""
        return await (await self.connection()).ask(message, version)

    @property
    def life(self) -> int:
        """The broker's life that the last answer came from."""
        return -1 if self._connection is None else self._connection.life

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
