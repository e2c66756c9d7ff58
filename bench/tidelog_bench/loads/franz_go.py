"""franz-go: our program `go/load`, throughput as well as round trips and raw requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidelog_bench.loads.load import Load, Moved, output_of
from tidelog_bench.peers.go_programs import go_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_bench.loads.load import Work
    from tidelog_bench.peers.peer import Served

__all__ = ["FranzGo", "create_topic", "delete_topic", "raw_requests", "round_trip"]


class FranzGo(Load):
    """The Go client."""

    name = "franz-go"

    def produce(self, peer: Served, work: Work) -> Moved:
        """Idempotent, acks=all: the client's defaults."""
        options: dict[str, object] = {"count": work.records, "size": work.record_bytes}
        if work.batches.bytes_max is not None:
            options["batch-bytes"] = work.batches.bytes_max
        if work.batches.linger_ms is not None:
            options["linger"] = f"{work.batches.linger_ms}ms"
        figures = _run("produce", peer, work.topic, options)
        return Moved(int(figures["records"]), figures["seconds"])

    def consume(self, peer: Served, work: Work) -> Moved:
        """All partitions from the start, without a group; from the first answer on."""
        options = {"count": work.records, "partitions": work.partitions}
        figures = _run("consume", peer, work.topic, options)
        return Moved(int(figures["records"]), figures["seconds"])


def create_topic(peer: Served, name: str, partitions: int) -> None:
    """Create it."""
    options = {"partitions": partitions, "replicas": peer.replication_factor}
    _run("create", peer, name, options)


def delete_topic(peer: Served, name: str) -> None:
    """Delete it: disks and kfake's memory are finite."""
    _run("delete", peer, name, {})


def round_trip(peer: Served, topic: str, *, records: int, rate: int) -> dict[str, float]:
    """Microseconds from before Produce until a consumer at the log's end has the record."""
    return _run("roundtrip", peer, topic, {"count": records, "rate": rate, "size": 100})


def raw_requests(
    peer: Served, topic: str, *, api: str, requests: int, connections: int
) -> dict[str, float]:
    """One-record Produce, or one-batch Fetch, requests with five in flight on a connection."""
    options = {"api": api, "count": requests, "connections": connections, "size": 100}
    return _run("requests", peer, topic, options)


def _run(op: str, peer: Served, topic: str, options: Mapping[str, object]) -> dict[str, float]:
    words = [f"-{name}={value}" for name, value in options.items()]
    program = str(go_program("load"))
    if peer.authority is not None:
        words.append(f"-authority={peer.authority}")
    output = output_of([program, op, f"-bootstrap={peer.bootstrap}", f"-topic={topic}", *words])
    figures: dict[str, float] = json.loads(output)
    return figures
