"""A transport without a socket, whose peer takes as many bytes as the test lets it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class MemoryTransport(asyncio.Transport):
    """Connects to a `BufferedProtocol` at once; `feed` is the client's side.

    `room` is how many bytes the peer takes before it stops reading (None: all). As in asyncio's own
    transports, a write beyond the room pauses the protocol until `make_room` has drained it.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, *, room: int | None = None) -> None:
        super().__init__()
        self.protocol = protocol
        self.room = room
        self.received = bytearray()  # what the peer has taken
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.waiting = bytearray()
        self.waiting_max = 0
        self.protocol_paused = False
        self._unread = bytearray()
        self._lost = False
        protocol.connection_made(self)

    # -- the peer's side

    def feed(self, data: bytes, chunk: int | None = None) -> None:
        """Deliver bytes, `chunk` at a time; while reading is paused they wait, as in a socket."""
        self._unread += data
        self._deliver(chunk)

    def _deliver(self, chunk: int | None = None) -> None:
        while self._unread and self.reading and not self.closed:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self._unread), chunk or len(self._unread))
            buffer[:count] = self._unread[:count]
            del self._unread[:count]
            self.protocol.buffer_updated(count)

    @property
    def unread(self) -> int:
        """Bytes the protocol has not asked for yet."""
        return len(self._unread)

    def make_room(self, count: int | None) -> None:
        """Let the peer take `count` more bytes (None: all from now on)."""
        self.room = None if count is None else (self.room or 0) + count
        waiting, self.waiting = self.waiting, bytearray()
        self._take(waiting)
        if not self.waiting and self.protocol_paused:
            self.protocol_paused = False
            self.protocol.resume_writing()
        self._finish()

    def lose(self, error: Exception | None = None) -> None:
        """The connection is gone."""
        if not self._lost:
            self._lost = self.closed = True
            self.protocol.connection_lost(error)

    def _take(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        count = len(data) if self.room is None else min(self.room, len(data))
        if self.room is not None:
            self.room -= count
        self.received += data[:count]
        self.waiting += data[count:]
        self.waiting_max = max(self.waiting_max, len(self.waiting))

    # -- the protocol's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._lost
        if self.closed:
            return
        self.writes += 1
        if self.waiting:
            self.waiting += data
            self.waiting_max = max(self.waiting_max, len(self.waiting))
        else:
            self._take(data)
        if self.waiting and not self.protocol_paused:
            self.protocol_paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True
        if self._unread:
            asyncio.get_running_loop().call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self._finish()

    def abort(self) -> None:
        self.aborted = self.closed = True
        self.waiting.clear()
        self._finish()

    def _finish(self) -> None:
        if self.closed and not self.waiting and not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        addresses = {"peername": ("192.0.2.1", 51234), "sockname": ("127.0.0.1", 9092)}
        return addresses.get(name, default)
