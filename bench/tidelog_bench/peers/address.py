"""Ports, and asking a broker whether it serves: one Metadata request by hand."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "active_controller",
    "free_port",
    "free_ports",
    "free_range",
    "live_brokers",
    "parse_address",
    "wait_until_listening",
    "wait_until_serving",
]

START_TIMEOUT_S = 240.0  # the machine may be busy; a dead process is detected separately
_RETRY_S = 0.001
_SLOW_AFTER_S, _SLOW_RETRY_S = 10.0, 0.05  # as long as starts are measured, and from then on
_PORT_MIN = 15_000
_chance = random.SystemRandom()  # of many harnesses at once each has its own
# Metadata v1 of no topics, correlation id 7, no client id: its answer begins with the live brokers.
_METADATA_REQUEST = struct.pack(">hhihi", 3, 1, 7, -1, 0)
# DescribeQuorum v0 of __cluster_metadata-0, no client id, and what its answer has up to the leader.
_QUORUM = b"__cluster_metadata"
_QUORUM_REQUEST = struct.pack(">hhihx BB18sB ixxx", 55, 0, 7, -1, 2, 19, _QUORUM, 2, 0)
_QUORUM_ANSWER = struct.Struct(">ix h BB18sB ihi")
_ANSWER_HEAD = struct.Struct(">iii")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


def parse_address(bootstrap: str) -> tuple[str, int]:
    """The host and port of a bootstrap string."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens now."""
    return free_range(1)


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def free_range(count: int) -> int:
    """The first of so many neighbouring ports, all free.

    None of those that the system gives to outgoing connections: a broker that is away for a while
    finds its port as it left it.
    """
    while True:
        first = _chance.randrange(_PORT_MIN, _first_ephemeral_port() - count)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def _first_ephemeral_port() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as limits:
            return max(_PORT_MIN + 1000, int(limits.read().split()[0]))
    except OSError:
        return 32768


def _connected(
    bootstrap: str, timeout_s: float = START_TIMEOUT_S, authority: Path | None = None
) -> socket.socket:
    """Connect, with TLS if the certificate of an authority is given; OSError."""
    address = parse_address(bootstrap)
    connection = socket.create_connection(address, timeout=timeout_s)
    if authority is None:
        return connection
    try:
        context = ssl.create_default_context(cafile=authority)
        return context.wrap_socket(connection, server_hostname=address[0])
    except OSError:
        connection.close()
        raise


def _ask(connecting: socket.socket, request: bytes) -> bytes:
    """Receive one response with its size before it; OSError if there is none."""
    with connecting as connection:
        connection.sendall(_INT32.pack(len(request)) + request)
        answer = b""
        while len(answer) < _INT32.size or len(answer) < _INT32.unpack_from(answer)[0] + 4:
            data = connection.recv(4096)
            if not data:
                raise ConnectionResetError("closed before the answer")
            answer += data
    return answer


def active_controller(bootstrap: str) -> int:
    """Node id of the metadata quorum's leader; -1 if the broker that is asked knows none."""
    fields = _QUORUM_ANSWER.unpack_from(_ask(_connected(bootstrap), _QUORUM_REQUEST), _INT32.size)
    return -1 if fields[1] or fields[-2] else int(fields[-1])


def live_brokers(
    bootstrap: str, timeout_s: float = START_TIMEOUT_S, authority: Path | None = None
) -> frozenset[int]:
    """Return the ids of the brokers in a Metadata response; OSError if there is none."""
    answer = _ask(_connected(bootstrap, timeout_s, authority), _METADATA_REQUEST)
    _, _, count = _ANSWER_HEAD.unpack_from(answer)
    position = _ANSWER_HEAD.size
    ids = []
    for _ in range(count):  # node id, host, port, rack
        ids.append(_INT32.unpack_from(answer, position)[0])
        position = _after_string(answer, position + 4) + 4
        position = _after_string(answer, position)
    return frozenset(ids)


def _after_string(answer: bytes, position: int) -> int:
    """The place behind a nullable string (length -1 for null)."""
    return position + 2 + max(0, int(_INT16.unpack_from(answer, position)[0]))


def wait_until_listening(port: int, check: Callable[[], None]) -> None:
    """Return when something listens at a port of 127.0.0.1. `check` raises when it is dead."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            check()
        else:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing listens on port {port} after {START_TIMEOUT_S:.0f} s")
        time.sleep(_RETRY_S)


def wait_until_serving(
    bootstrap: str,
    check: Callable[[], None],
    timeout_s: float = START_TIMEOUT_S,
    *,
    nodes: frozenset[int] = frozenset(),
    authority: Path | None = None,
) -> None:
    """Return at the first Metadata answer that names a broker, and all of `nodes`. `check` raises
    when it is dead. With the certificate of an `authority` over TLS."""
    began = time.monotonic()
    while True:
        try:
            alive = live_brokers(bootstrap, authority=authority)
        except OSError:
            check()
        else:
            if alive and alive >= nodes:
                return
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise TimeoutError(f"{bootstrap} does not serve after {timeout_s:.0f} s")
        time.sleep(_RETRY_S if waited < _SLOW_AFTER_S else _SLOW_RETRY_S)
