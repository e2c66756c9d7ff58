"""Ports, and asking a broker whether it serves: one Metadata request by hand."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["free_port", "live_brokers", "parse_address", "wait_until_serving"]

START_TIMEOUT_S = 60.0
_RETRY_S = 0.001
# Metadata v1 of no topics, correlation id 7, no client id: its answer begins with the live brokers.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 7, -1, 0)
_ANSWER_HEAD = struct.Struct(">iii")


def parse_address(bootstrap: str) -> tuple[str, int]:
    """The host and port of a bootstrap string."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def free_port() -> int:
    """A port of 127.0.0.1 nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def live_brokers(bootstrap: str, timeout_s: float = START_TIMEOUT_S) -> int:
    """How many brokers the Metadata answer names; OSError when nobody listens or answers."""
    with socket.create_connection(parse_address(bootstrap), timeout=timeout_s) as connection:
        connection.sendall(_METADATA_REQUEST)
        head = b""
        while len(head) < _ANSWER_HEAD.size:
            data = connection.recv(4096)
            if not data:
                raise ConnectionResetError("closed before the answer")
            head += data
        _, _, brokers = _ANSWER_HEAD.unpack_from(head)
        return int(brokers)


def wait_until_serving(
    bootstrap: str, check: Callable[[], None], timeout_s: float = START_TIMEOUT_S
) -> None:
    """Return at the first Metadata answer that names a broker. `check` raises when it is dead."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if live_brokers(bootstrap) > 0:
                return
        except OSError:
            check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{bootstrap} does not serve after {timeout_s:.0f} s")
        time.sleep(_RETRY_S)
