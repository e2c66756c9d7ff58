"""What is measured of a listener with TLS: throughput, small requests and round trips.

tidelog and Apache Kafka have the same certificate, and clients that check it. Both choose TLS 1.3
with AES-256-GCM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_bench.cases import Case, Requests, RoundTrip, Throughput, names_of
from tidelog_bench.loads.franz_go import FranzGo
from tidelog_bench.loads.java_tools import JavaTools
from tidelog_bench.loads.librdkafka import Librdkafka
from tidelog_bench.loads.load import LARGE, SMALL
from tidelog_bench.peers.kafka_jars import JarsUnavailableError
from tidelog_bench.peers.secured import SECURED_PEERS
from tidelog_bench.rounds import run_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_bench.loads.load import Load
    from tidelog_bench.peers.peer import Peer
    from tidelog_bench.rounds import Plan

__all__ = ["TLS_NAMES", "measure_tls"]

OF = "TLS: "


def _cases() -> Iterator[Case]:
    loads: Sequence[tuple[Load, int]] = ((JavaTools(), 200), (FranzGo(), 200), (Librdkafka(), 100))
    for load, megabytes in loads:
        for batches in (SMALL, LARGE):
            yield Throughput(load, 1024, batches, megabytes, of=OF)
    yield RoundTrip(500, 3000, of=OF)
    for api in ("produce", "fetch"):
        for connections in (1, 10):
            yield Requests(api, connections, 40_000, of=OF)


TLS_CASES: Sequence[Case] = tuple(_cases())
TLS_NAMES = names_of(TLS_CASES)


def measure_tls(plan: Plan) -> list[str]:
    """Run the cases of TLS; return the peers that ran."""
    cases = [case for case in TLS_CASES if plan.only in case.name]
    if not cases:
        return []
    peers: list[Peer] = []
    for name, make in SECURED_PEERS.items():
        if plan.peers and name not in plan.peers:
            continue
        peer = make(plan.folder / f"{name}-tls")
        try:
            peer.prepare()
        except JarsUnavailableError as missing:
            plan.say(f"without a {name} of TLS: {missing}")
        else:
            peers.append(peer)
    try:
        for peer in peers:
            peer.start()
        run_rounds(plan, cases, peers)
    finally:
        for peer in peers:
            peer.remove()
    return [peer.name for peer in peers]
