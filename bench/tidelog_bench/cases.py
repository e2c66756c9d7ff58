"""What is measured: each case runs once against one peer and gives named figures."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog_bench.loads.franz_go import (
    FranzGo,
    create_topic,
    delete_topic,
    raw_requests,
    round_trip,
)
from tidelog_bench.loads.java_tools import JavaTools
from tidelog_bench.loads.librdkafka import Librdkafka
from tidelog_bench.loads.load import LARGE, SMALL, Batches, Load, Work
from tidelog_bench.peers.peer import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog_bench.peers.peer import Peer, Served

__all__ = [
    "CASES",
    "METRICS",
    "START_CASE",
    "Case",
    "Metric",
    "Requests",
    "RoundTrip",
    "Throughput",
    "Topic",
    "cold_start",
    "import_asyncio",
    "names_of",
]

START_CASE = "start"
MEBIBYTE = 1 << 20
IDLE_S = 1.0  # a started broker is left alone before its memory is read


class Metric(NamedTuple):
    """A figure's unit, and whether more of it is better."""

    unit: str
    more_is_better: bool
    digits: int = 1


METRICS = {
    "cold start": Metric("ms", more_is_better=False, digits=0),
    "start CPU": Metric("CPU ms", more_is_better=False, digits=0),
    "failover": Metric("ms", more_is_better=False, digits=0),
    "idle RSS": Metric("MB", more_is_better=False),
    "idle RssAnon": Metric("MB", more_is_better=False),
    "produce": Metric("MB/s", more_is_better=True, digits=0),
    "produce CPU": Metric("broker CPU ms/MB", more_is_better=False, digits=2),
    "consume": Metric("MB/s", more_is_better=True, digits=0),
    "consume CPU": Metric("broker CPU ms/MB", more_is_better=False, digits=2),
    "p50": Metric("us", more_is_better=False, digits=0),
    "p99": Metric("us", more_is_better=False, digits=0),
    "rate": Metric("requests/s", more_is_better=True, digits=0),
    "query": Metric("ms", more_is_better=False, digits=0),
    "transactions": Metric("transactions/s", more_is_better=True, digits=0),
    "transaction CPU": Metric("broker CPU us/transaction", more_is_better=False, digits=0),
    "copied": Metric("records/s", more_is_better=True, digits=0),
    "copy CPU": Metric("broker CPU us/record", more_is_better=False),
    "local read": Metric("MB/s", more_is_better=True, digits=0),
    "remote read": Metric("MB/s", more_is_better=True, digits=0),
    "remote by local": Metric("", more_is_better=True, digits=2),
    "local read CPU": Metric("broker CPU ms/MB", more_is_better=False, digits=2),
    "remote read CPU": Metric("broker CPU ms/MB", more_is_better=False, digits=2),
    "local read client CPU": Metric("client CPU ms/MB", more_is_better=False, digits=2),
    "remote read client CPU": Metric("client CPU ms/MB", more_is_better=False, digits=2),
    "local read store CPU": Metric("store CPU ms/MB", more_is_better=False, digits=2),
    "remote read store CPU": Metric("store CPU ms/MB", more_is_better=False, digits=2),
    "p99 plain": Metric("us", more_is_better=False, digits=0),
    "p99 copying": Metric("us", more_is_better=False, digits=0),
    "copying by plain": Metric("", more_is_better=False, digits=2),
    **{
        f"{what} {name}": metric
        for what, metric in {
            "p99": Metric("us", more_is_better=False, digits=0),
            "CPU": Metric("broker CPU us/record", more_is_better=False),
        }.items()
        for name in (
            "closed",
            "open",
            *(
                f"{kind} less closed{bound}"
                for kind in ("open", "another closed")
                for bound in ("", ", at least", ", at most")
            ),
        )
    },
    "copy delay": Metric("ms", more_is_better=False, digits=0),
    "local rebuild": Metric("ms", more_is_better=False, digits=0),
    "remote rebuild": Metric("ms", more_is_better=False, digits=0),
    "memory left": Metric("MB", more_is_better=False),
    "descriptors left": Metric("", more_is_better=False, digits=0),
    "purgatory": Metric("", more_is_better=False, digits=0),
    "remote reads": Metric("a request", more_is_better=True, digits=2),
    "index cache used": Metric("kB", more_is_better=False),
    "index cache": Metric("kB", more_is_better=False),
    "local bytes": Metric("MB", more_is_better=False),
    "remote bytes": Metric("MB", more_is_better=False),
    "CPU": Metric("broker CPU us/request", more_is_better=False),
}


class Case(Protocol):
    """One measurement; `scale` shrinks its amount of work for warm-ups and quick runs."""

    name: str
    warm_up_share: float
    megabytes: int = 0  # of records that it writes, if they are many

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Figures by metric name."""
        ...


_numbers = itertools.count()


class Topic:
    """A fresh topic for one measurement, gone afterwards."""

    def __init__(self, peer: Served, partitions: int) -> None:
        self._peer = peer
        self._partitions = partitions
        self.name = f"bench-{next(_numbers)}"

    def __enter__(self) -> str:
        create_topic(self._peer, self.name, self._partitions)
        return self.name

    def __exit__(self, *_: object) -> None:
        delete_topic(self._peer, self.name)


class Throughput(Case):
    """Fill a topic with one client, then read it with the same (`verbs`)."""

    warm_up_share = 0.25

    def __init__(
        self,
        load: Load,
        record_bytes: int,
        batches: Batches,
        megabytes: int,
        *,
        verbs: Sequence[str] = ("produce", "consume"),
        of: str = "",
    ) -> None:
        """`of` says what is measured, before the name."""
        self.verbs = verbs
        self.load = load
        self.record_bytes = record_bytes
        self.batches = batches
        self.megabytes = megabytes
        size = "1 KiB" if record_bytes == 1024 else f"{record_bytes} B"
        self.name = f"{of}{load.name}, {size}, {batches.name}"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Rates by the client's clock; the broker's CPU over the whole life of the client."""
        records = max(10_000, int(self.megabytes * scale * MEBIBYTE / self.record_bytes))
        figures = {}
        with Topic(peer, PARTITIONS) as topic:
            work = Work(topic, PARTITIONS, records, self.record_bytes, self.batches)
            for verb in self.verbs:
                move = self.load.produce if verb == "produce" else self.load.consume
                before = peer.cpu_seconds()
                moved = move(peer, work)
                spent = peer.cpu_seconds() - before
                megabyte = self.record_bytes / 1e6
                figures[verb] = moved.records * megabyte / moved.seconds
                figures[f"{verb} CPU"] = 1e3 * spent / (records * megabyte)
        return figures


class RoundTrip(Case):
    """A record from producer to a waiting consumer, at a steady low rate."""

    warm_up_share = 1.0

    def __init__(self, rate: int, records: int, *, of: str = "") -> None:
        """`of` says what is measured, before the name."""
        self.rate = rate
        self.records = records
        self.name = f"{of}round trip at {rate}/s"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """One partition, linger 0."""
        records = max(200, int(self.records * scale))
        with Topic(peer, 1) as topic:
            figures = round_trip(peer, topic, records=records, rate=self.rate)
        return {"p50": figures["p50_us"], "p99": figures["p99_us"]}


class Requests(Case):
    """As many small requests as the broker takes: what a request costs."""

    warm_up_share = 1.0

    def __init__(self, api: str, connections: int, requests: int, *, of: str = "") -> None:
        """`of` says what is measured, before the name."""
        self.api = api
        self.connections = connections
        self.requests = requests
        plural = "s" if connections > 1 else ""
        self.name = f"{of}one-record {api} requests, {connections} connection{plural}"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Rate of the measured part; CPU over warm-up and measured part."""
        requests = max(1000, int(self.requests * scale))
        with Topic(peer, 1) as topic:
            if self.api == "fetch":
                raw_requests(peer, topic, api="produce", requests=10, connections=1)
            before = peer.cpu_seconds()
            figures = raw_requests(
                peer, topic, api=self.api, requests=requests, connections=self.connections
            )
            spent = peer.cpu_seconds() - before
        rate = figures["requests"] / figures["seconds"]
        return {"rate": rate, "CPU": 1e6 * spent / figures["sent"]}


def names_of(cases: Sequence[Case]) -> list[str]:
    """As they are called in tables and on the command line."""
    return [case.name for case in cases]


def cold_start(peer: Peer) -> dict[str, float]:
    """Start a stopped peer on a new folder: time to its first Metadata answer, memory when idle."""
    seconds = peer.start()
    time.sleep(IDLE_S)
    memory = peer.child.memory()
    return {
        "cold start": 1e3 * seconds,
        "idle RSS": memory.resident_bytes / 1e6,
        "idle RssAnon": memory.anonymous_bytes / 1e6,
    }


def import_asyncio(folder: Path) -> dict[str, float]:
    """The yardstick of cold starts: the interpreter and its event loop, nothing else."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True, cwd=folder)
    return {"cold start": 1e3 * (time.perf_counter() - started)}


def _cases() -> Iterator[Case]:
    loads: Sequence[tuple[Load, int]] = ((JavaTools(), 300), (FranzGo(), 300), (Librdkafka(), 150))
    for load, megabytes in loads:
        for record_bytes in (100, 1024):
            for batches in (SMALL, LARGE):
                amount = megabytes if record_bytes == 1024 else megabytes // 2
                yield Throughput(load, record_bytes, batches, amount)
    yield RoundTrip(500, 3000)
    for api in ("produce", "fetch"):
        yield Requests(api, 1, 50_000)
        yield Requests(api, 10, 100_000)


CASES: Sequence[Case] = tuple(_cases())
