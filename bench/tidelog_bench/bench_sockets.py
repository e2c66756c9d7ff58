"""Broker CPU per request and per MB over sockets, beside the ceilings: `python -m
tidelog_bench.bench_sockets [--quick]`.

Starts a broker, sends it ready frames, `DEPTH` of them at a time on each connection, and reads its
CPU clock before and after: what the prototype behind `ceilings.py` was asked, in the same way. The
load runs on another core where there is one. A further partition is what each of ten adds to one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.embedded.simple_client import create_topic
from tidelog_bench.bench_broker import TOPIC, fetch_frame, produce_frame
from tidelog_bench.ceilings import line
from tidelog_bench.peers.process import apart
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_protocol.records import Record, build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog_bench.peers.peer import Peer

__all__ = ["measure"]

DEPTH = 5
CONNECTIONS = 10
PARTITIONS = 10
ROUNDS = 3  # the least of them counts: others use the machine as well
VERSION = 12
_SIZE = struct.Struct(">i")
_KIB = 1 << 10


class Load(NamedTuple):
    """Requests of one kind; `value_bytes` of the one record in each batch."""

    api: str
    requests: int
    value_bytes: int
    partitions: int = 1
    answer_bytes: int = 1  # at most, but one batch


LOADS = {
    "produce 100 B": Load("produce", 40_000, 100),
    "produce 1 KiB": Load("produce", 20_000, _KIB),
    "produce 10 x 1 KiB": Load("produce", 4_000, _KIB, PARTITIONS),
    "produce 16 KiB": Load("produce", 10_000, 16 * _KIB - 100),
    "produce 1 MiB": Load("produce", 200, 1000 * _KIB),
    "fetch 100 B": Load("fetch", 40_000, 100),
    "fetch 1 KiB": Load("fetch", 20_000, _KIB, 1, 2 * _KIB),
    "fetch 10 x 1 KiB": Load("fetch", 4_000, _KIB, PARTITIONS, 2 * _KIB),
    "fetch 64 KiB": Load("fetch", 10_000, 16_000, 1, 64 * _KIB),
    "fetch 1 MiB": Load("fetch", 1_000, 16_000, 1, 1024 * _KIB),
}


class Cost(NamedTuple):
    """CPU of one request, and the bytes that it moved."""

    microseconds: float
    bytes_moved: int

    @property
    def ms_per_mb(self) -> float:
        """CPU milliseconds for 10**6 bytes."""
        return self.microseconds * 1e3 / self.bytes_moved


class _Connection:
    """A blocking connection that sends one frame again and again."""

    def __init__(self, peer: Peer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", peer.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> int:
        """Read one answer; its bytes, with its size."""
        head = self._socket.recv(_SIZE.size)
        assert len(head) == _SIZE.size, "the beginning of an answer comes as one"
        size: int = _SIZE.unpack(head)[0]
        self.skip(size)
        return _SIZE.size + size

    def skip(self, length: int) -> None:
        """Read that many bytes of answers."""
        while length > 0:
            received = self._socket.recv_into(self._buffer[: min(length, len(self._buffer))])
            if not received:
                raise ConnectionError("the broker closed the connection")
            length -= received

    def close(self) -> None:
        self._socket.close()


def _frame(load: Load, topic: str) -> bytes:
    if load.api == "produce":
        batch = build_batch([Record(0, 1, None, b"x" * load.value_bytes)])
        body = produce_frame(VERSION, load.partitions, batch, -1, topic)
    else:
        body = fetch_frame(VERSION, [0] * load.partitions, load.answer_bytes, topic)
    return _SIZE.pack(len(body)) + bytes(body)


def _fill(peer: Peer, load: Load, topic: str) -> None:
    """Batches for a Fetch to find."""
    connection = _Connection(peer)
    frame = _frame(load._replace(api="produce"), topic)
    for _ in range(max(2, 2 * load.answer_bytes // load.value_bytes)):
        connection.send(frame)
        connection.answer()
    connection.close()


def _cost(peer: Peer, load: Load, topic: str, requests: int) -> Cost:
    """Send the load over some connections, each with `DEPTH` requests in flight."""
    create_topic(peer.bootstrap, topic, load.partitions, {"retention.ms": "-1"})
    if load.api == "fetch":
        _fill(peer, load, topic)
    frame = _frame(load, topic)
    depth = DEPTH if len(frame) < 100 * _KIB and load.answer_bytes < 100 * _KIB else 1
    connections = [_Connection(peer) for _ in range(CONNECTIONS if depth > 1 else 2)]
    for connection in connections:
        connection.send(frame)
        answer = connection.answer()
    moved = len(frame) if load.api == "produce" else answer
    if load.api == "fetch":
        assert moved > load.value_bytes * load.partitions, "nothing was fetched"
    burst = frame * depth
    turns = max(1, requests // (depth * len(connections)))
    before = peer.cpu_seconds()
    for _ in range(turns):
        for connection in connections:
            connection.send(burst)
        for connection in connections:
            connection.skip(answer * depth)
    spent = peer.cpu_seconds() - before
    for connection in connections:
        connection.close()
    return Cost(spent * 1e6 / (turns * depth * len(connections)), moved)


def measure(*, share: float = 1.0, rounds: int = ROUNDS) -> dict[str, Cost]:
    """Every load against one broker; `share` of its requests."""
    costs: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as folder, _running(Path(folder) / "broker") as peer:
        for number in range(rounds):
            for name, load in LOADS.items():
                topic = f"{TOPIC}-{number}-{name.replace(' ', '-')}"
                requests = max(1, int(load.requests * share))
                cost = _cost(peer, load, topic, requests)
                costs[name] = min(cost, costs.get(name, cost))
    return costs


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[Peer]:
    peer = Tidelog(folder)
    peer.start()
    try:
        with apart(peer.child.pid):
            yield peer
    finally:
        peer.end()


def table(costs: dict[str, Cost]) -> list[str]:
    """The figures beside their ceilings, a line each."""
    further = {
        api: (costs[f"{api} {PARTITIONS} x 1 KiB"][0] - costs[f"{api} 1 KiB"][0]) / (PARTITIONS - 1)
        for api in ("produce", "fetch")
    }
    return [
        line("produce request", costs["produce 100 B"].microseconds),
        line("produce, further partition", further["produce"]),
        line("produce, batches of 16 KiB", costs["produce 16 KiB"].ms_per_mb),
        line("produce, batches of 1 MiB", costs["produce 1 MiB"].ms_per_mb),
        line("fetch request", costs["fetch 100 B"].microseconds),
        line("fetch, further partition", further["fetch"]),
        line("fetch, answers of 64 KiB", costs["fetch 64 KiB"].ms_per_mb),
        line("fetch, answers of 1 MiB", costs["fetch 1 MiB"].ms_per_mb),
    ]


def main() -> None:
    """Measure and print."""
    quick = "--quick" in sys.argv
    for text in table(measure(share=0.1 if quick else 1.0, rounds=1 if quick else ROUNDS)):
        print(text)


if __name__ == "__main__":
    main()
