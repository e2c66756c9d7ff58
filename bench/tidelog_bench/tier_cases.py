"""What a remote tier costs and gives, beside Apache Kafka with its LocalTieredStorage (KIP-405).

Each figure of tiered data has its counterpart without a tier, from the same broker a moment
before or after.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import time
from typing import TYPE_CHECKING

from tidelog_bench.cases import Case, names_of
from tidelog_bench.loads.franz_go import FranzGo
from tidelog_bench.loads.java_tools import JavaTools
from tidelog_bench.loads.librdkafka import Librdkafka
from tidelog_bench.loads.load import LARGE, Work
from tidelog_bench.loads.tier import TierTopic
from tidelog_bench.peers.go_programs import GoUnavailableError
from tidelog_bench.peers.kafka_jars import JarsUnavailableError
from tidelog_bench.peers.tiered import (
    EAGER,
    S3_NAME,
    TIERED_CLUSTERS,
    TIERED_PEERS,
    MeasuredTidelog,
    TieredS3,
)
from tidelog_bench.rounds import run_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from tidelog_bench.loads.load import Load
    from tidelog_bench.peers.cluster import PeerCluster
    from tidelog_bench.peers.peer import Peer, Served
    from tidelog_bench.peers.process import Child
    from tidelog_bench.rounds import Plan

__all__ = ["TIER_NAMES", "measure_tiers"]

OF = "tiered: "
RECORD_BYTES = 1024
REMOTE_SHARE = 0.95
PLAIN = {"segment.bytes": 8 << 20}
REMOTE = {**PLAIN, "remote.storage.enable": "true", "local.retention.bytes": 1}
INDEXED = {**REMOTE, "segment.bytes": 16 << 20}  # what is one chunk is read without its index
COPIED_BYTES = 4 << 20
COPIED = {"segment.bytes": COPIED_BYTES, "remote.storage.enable": "true"}
NOT_COPIED = {"segment.bytes": COPIED_BYTES}
ROLLED = {"segment.bytes": 1 << 20, "remote.storage.enable": "true"}
KAFKAS_INTERVAL = "30s"
FEW_RECORDS = 50_000
SOME_SHARE = 0.5
DESCRIPTOR_LOOKS, LOOK_S = 100, 0.05
SETTLE_S = 3.0  # longer than remote.fetch.max.wait.ms and log.segment.delete.delay.ms

_chance = random.Random(1)


class RemoteRead(Case):
    """Read a topic from its start that is nearly all remote, and one that is all local.

    What a client makes of the bytes takes most of the time, and it shares the machine's processors
    with the broker and with an S3 server: so there is more than one client.
    """

    warm_up_share = 1.0

    def __init__(self, megabytes: int, load: Load | None = None) -> None:
        self.megabytes = 2 * megabytes
        self._megabytes = megabytes
        self._load = load or FranzGo()
        by = f", {load.name}" if load else ""
        self.name = f"{OF}read of a topic 95 % remote{by}"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Rates by the client's clock, what broker, client (with its start) and S3 server spent;
        each topic is read once."""
        figures = {}
        records = int(self._megabytes * scale * 1e6 / RECORD_BYTES)
        megabytes = records * RECORD_BYTES / 1e6
        with TierTopic(peer, PLAIN) as local, TierTopic(peer, REMOTE) as remote:
            works = {
                kind: Work(topic.name, 1, records, RECORD_BYTES, LARGE)
                for kind, topic in (("local", local), ("remote", remote))
            }
            for work in works.values():
                FranzGo().produce(peer, work)
            remote.wait_until_remote(REMOTE_SHARE)
            time.sleep(SETTLE_S)  # its local files are being removed
            for kind in _chance.sample(list(works), len(works)):
                before = _spent(peer)
                moved = self._load.consume(peer, works[kind])
                for whose, seconds in _spent(peer).items():
                    spent = seconds - before[whose]
                    figures[f"{kind} read{whose} CPU"] = 1e3 * spent / megabytes
                figures[f"{kind} read"] = moved.records * RECORD_BYTES / 1e6 / moved.seconds
        figures["remote by local"] = figures["remote read"] / figures["local read"]
        return figures


def _spent(peer: Served) -> dict[str, float]:
    """Seconds of CPU until now: of the broker, of clients that have ended, of an S3 server."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"": peer.cpu_seconds(), " client": children.ru_utime + children.ru_stime}
    if isinstance(peer, TieredS3):
        spent[" store"] = peer.store_cpu_seconds()
    return spent


class CopyingProduce(Case):
    """Produce at a steady rate while segments are copied as they roll, and without a tier, in short
    turns: what else the machine does meets both."""

    warm_up_share = 0.5

    def __init__(self, megabytes_per_second: int, seconds: int, turns: int) -> None:
        self.megabytes = 2 * megabytes_per_second * seconds * turns
        self._rate = int(megabytes_per_second * 1e6 / RECORD_BYTES)
        self._seconds = seconds
        self._turns = turns
        self.name = f"{OF}produce at {megabytes_per_second} MB/s"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """99th percentile from before Produce to the acknowledgement: the medians of all turns, and
        of what two that follow each other make of it."""
        options = {"rate": self._rate, "count": self._rate * self._seconds}
        found: dict[str, list[float]] = {"p99 plain": [], "p99 copying": []}
        with TierTopic(peer, NOT_COPIED) as plain, TierTopic(peer, COPIED) as copied:
            kinds = {"p99 plain": plain, "p99 copying": copied}
            os.sync()  # what was written before costs nothing now, and neither topic goes yet
            for _ in range(max(1, round(self._turns * scale))):
                for kind in _chance.sample(list(kinds), len(kinds)):
                    pace = kinds[kind].run("pace", size=RECORD_BYTES, **options)
                    found[kind].append(pace["p99_us"])
                    if kinds[kind] is copied:
                        copied.wait_until_copied(2 * COPIED_BYTES // RECORD_BYTES)
        pairs = zip(found["p99 copying"], found["p99 plain"], strict=True)
        return {
            **{kind: statistics.median(times) for kind, times in found.items()},
            "copying by plain": statistics.median(one / other for one, other in pairs),
        }


class CancelledReads(Case):
    """Clients that ask for remote records and are gone before they come."""

    warm_up_share = 0.1

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.name = f"{OF}{requests} cancelled remote reads"

    def run(self, peer: Peer, scale: float) -> dict[str, float]:  # type: ignore[override]
        """What is left of them when all waits are over."""
        requests = int(self.requests * scale)
        with TierTopic(peer, INDEXED) as topic:
            work = Work(topic.name, 1, FEW_RECORDS, RECORD_BYTES, LARGE)
            FranzGo().produce(peer, work)
            topic.wait_until_remote(SOME_SHARE)
            FranzGo().consume(peer, work)  # what readers leave in caches for a minute is there
            topic.run("cancel", count=requests // 10)
            time.sleep(SETTLE_S)
            descriptors, memory = peer.child.descriptors(), peer.child.memory()
            before = peer.cpu_seconds()
            reads = peer.remote_reads() if isinstance(peer, MeasuredTidelog) else 0.0
            topic.run("cancel", count=requests)
            figures = {}
            if isinstance(peer, MeasuredTidelog):  # Kafka reports it only by JMX
                figures["index cache used"] = peer.index_bytes() / 1e3
                figures["remote reads"] = (peer.remote_reads() - reads) / requests
            time.sleep(SETTLE_S)
            figures["CPU"] = 1e6 * (peer.cpu_seconds() - before) / requests
            grown = peer.child.memory().anonymous_bytes - memory.anonymous_bytes
            figures["memory left"] = grown / 1e6
            if isinstance(peer, MeasuredTidelog):
                peer.wait_until_no_index_is_left()
            # Before it is asked for more: it may close that connection a moment later than we.
            figures["descriptors left"] = _descriptors_left(peer.child, descriptors)
            if isinstance(peer, MeasuredTidelog):
                figures["purgatory"] = peer.waiting_reads()
                figures["index cache"] = peer.index_bytes() / 1e3
            return figures


class CopyDelay(Case):
    """Return the time from the roll of a segment until the broker reports it in the tier."""

    warm_up_share = 0.0  # one roll
    name = f"{OF}from roll to copied"

    def run(self, peer: Served, scale: float) -> dict[str, float]:
        """Rolls come at any moment between two runs of Kafka's task."""
        count = 3 if scale else 1
        with TierTopic(peer, ROLLED) as topic:
            spread = KAFKAS_INTERVAL if scale else "1ms"
            delays = topic.run("copied", count=count, spread=spread, patience="4m")["ms"]
        return {"copy delay": statistics.median(delays)}


class Rebuild(Case):
    """A replica more, empty, of a topic that is nearly all remote, and of one without a tier."""

    warm_up_share = 1.0

    def __init__(self, megabytes: int) -> None:
        self.megabytes = 2 * megabytes
        self._megabytes = megabytes
        self.name = f"{OF}follower of a topic 95 % remote"

    def run(self, peer: PeerCluster, scale: float) -> dict[str, float]:  # type: ignore[override]
        """Until it is in sync, and what it then has on its disk."""
        first, *_, last = sorted(peer.nodes)
        records = int(self._megabytes * scale * 1e6 / RECORD_BYTES)
        figures = {}
        for kind, settings in (("local", PLAIN), ("remote", REMOTE)):
            with TierTopic(peer, settings, str(first)) as topic:
                FranzGo().produce(peer, Work(topic.name, 1, records, RECORD_BYTES, LARGE))
                if settings is REMOTE:
                    topic.wait_until_remote(REMOTE_SHARE)
                moved = topic.run("move", replicas=f"{first},{last}")
                figures[f"{kind} rebuild"] = 1e3 * moved["seconds"]
                figures[f"{kind} bytes"] = _bytes_of(peer.nodes[last].folder, topic.name) / 1e6
        return figures


def _bytes_of(folder: Path, topic: str) -> int:
    """Of all files of its only partition, without the holes: Kafka makes its indexes large."""
    return sum(file.stat().st_blocks * 512 for file in (folder / "data" / f"{topic}-0").glob("*"))


EAGER_CASES: Sequence[Case] = (
    RemoteRead(250),
    RemoteRead(250, JavaTools()),
    RemoteRead(250, Librdkafka()),
    CopyingProduce(10, 3, 6),
    CancelledReads(10_000),
)
USUAL_CASES: Sequence[Case] = (CopyDelay(),)
CLUSTER_CASES: Sequence[Case] = (Rebuild(500),)
GROUPS: Sequence[tuple[Sequence[Case], Mapping[str, Callable[..., Any]], Mapping[str, str]]] = (
    (EAGER_CASES, {**TIERED_PEERS, S3_NAME: TieredS3}, EAGER),
    (USUAL_CASES, TIERED_PEERS, {}),
    (CLUSTER_CASES, TIERED_CLUSTERS, EAGER),
)
TIER_NAMES = [name for cases, _, _ in GROUPS for name in names_of(cases)]


def measure_tiers(plan: Plan) -> list[str]:
    """Run the cases of a remote tier; return the peers that ran."""
    names: dict[str, None] = {}
    for number, (every, makers, settings) in enumerate(GROUPS):
        cases = [case for case in every if plan.only in case.name]
        if not cases:
            continue
        chosen = []
        for name, make in makers.items():
            if plan.peers and name not in plan.peers:
                continue
            peer = make(plan.folder / f"{name}-tiered-{number}", settings)
            try:
                peer.prepare()
            except (JarsUnavailableError, GoUnavailableError) as missing:
                plan.say(f"without a tiered {name}: {missing}")
            else:
                chosen.append(peer)
                names[name] = None
        try:
            for peer in chosen:
                peer.start()
            run_rounds(plan, cases, chosen)
        finally:
            for peer in chosen:
                peer.remove()
    return list(names)


def _descriptors_left(child: Child, before: int) -> int:
    """Return how many files more than before a broker keeps open. One that is open for a moment
    does not count: a busy machine takes its time to close a connection."""
    left = child.descriptors() - before
    for _ in range(DESCRIPTOR_LOOKS):
        if left <= 0:
            break
        time.sleep(LOOK_S)
        left = min(left, child.descriptors() - before)
    return left
