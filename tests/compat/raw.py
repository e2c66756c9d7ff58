"""Frames over a plain socket: requests exactly as a test wants them, right or wrong."""

from __future__ import annotations

import select
import socket
import struct
from typing import TYPE_CHECKING

from compat.brokers import address

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

TIMEOUT_S = 60.0


class RawConnection:
    """One blocking connection. Every wait is bounded by `timeout_s`; `source` is the address of
    the client, such as 127.0.0.2."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S, source: str = "") -> None:
        self._socket = socket.create_connection(
            address(bootstrap), timeout=timeout_s, source_address=(source, 0) if source else None
        )
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send these very bytes."""
        self._socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        """Send a size prefix and the payload (header and body)."""
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)

    def read_frame(self) -> bytes | None:
        """The next answer without its size prefix; None when the broker closed the connection."""
        prefix = self._read(4)
        if prefix is None:
            return None
        return self._read(struct.unpack(">i", prefix)[0])

    def has_answer(self, wait_s: float) -> bool:
        """Whether anything arrives within this time."""
        return bool(select.select([self._socket], [], [], wait_s)[0])

    def _read(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            try:
                data = self._socket.recv(count - len(parts))
            except ConnectionResetError:
                return None
            if not data:
                return None
            parts += data
        return bytes(parts)

    def shutdown_sending(self) -> None:
        """Half-close: no more requests will come."""
        self._socket.shutdown(socket.SHUT_WR)

    def ask_bytes(self, api_key: int, version: int, body: bytes, client_id: str = "raw") -> bytes:
        """One non-flexible request (header v1) and the body of its answer (header v0)."""
        self._correlation_id += 1
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id))
        self.send_frame(header + client_id.encode() + body)
        answer = self.read_frame()
        if answer is None:
            raise ConnectionError(f"closed after api {api_key} version {version}")
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer[4:]
