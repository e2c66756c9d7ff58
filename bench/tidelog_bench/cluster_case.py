"""What is measured of three brokers: start, failover, and replicated produce and round trips.

tidelog's nodes and Apache Kafka's are each in a process of their own, with three replicas of every
partition and acks=all; `serve --brokers 3` in one process is measured where it starts.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from typing import TYPE_CHECKING

from tidelog_bench.cases import Case, RoundTrip, Throughput, names_of
from tidelog_bench.loads.failover import failover_s
from tidelog_bench.loads.franz_go import delete_topic
from tidelog_bench.loads.java_tools import JavaTools
from tidelog_bench.loads.librdkafka import Librdkafka
from tidelog_bench.loads.load import LARGE, SMALL, Load
from tidelog_bench.peers.address import active_controller
from tidelog_bench.peers.apache_kafka import ApacheKafkaCluster
from tidelog_bench.peers.kafka_jars import JarsUnavailableError
from tidelog_bench.peers.tidelog import TidelogCluster, TidelogServe
from tidelog_bench.rounds import run_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tidelog_bench.peers.cluster import PeerCluster
    from tidelog_bench.rounds import Plan

__all__ = ["CLUSTER_NAMES", "measure_clusters"]

OF = "3 brokers: "
SETTLE_S = 1.0  # a killed node that is back is left alone before the next case
CLUSTERS: dict[str, Callable[[Path], PeerCluster]] = {
    "tidelog": TidelogCluster,
    "kafka": ApacheKafkaCluster,
}

_numbers = itertools.count()


class ClusterStart:
    """From the first exec until each of three brokers names all of them; and what that cost."""

    def __init__(self, how: str, ours: Callable[[Path], PeerCluster | TidelogServe]) -> None:
        self.name = f"{OF}start, {how}"
        self._peers = {**CLUSTERS, "tidelog": ours}

    def run(self, peer: str, folder: Path) -> dict[str, float]:
        """Start on a new folder, and end."""
        made = self._peers[peer](folder)
        folder.mkdir(parents=True)
        try:
            made.prepare()
            seconds = made.start()
            return {"cold start": 1e3 * seconds, "start CPU": 1e3 * made.cpu_seconds()}
        finally:
            made.remove()
            shutil.rmtree(folder, ignore_errors=True)


class Failover(Case):
    """A producer's wait while the leader of its partition is killed, all settings as they come."""

    warm_up_share = 1.0

    def __init__(self, *, of_controller: bool) -> None:
        self.of_controller = of_controller
        target = "the leader, which is the active controller" if of_controller else "the leader"
        self.name = f"{OF}kill -9 of {target}"

    def run(self, peer: PeerCluster, scale: float) -> dict[str, float]:  # type: ignore[override]
        """One kill; the node is back in its cluster afterwards."""
        del scale
        nodes = sorted(peer.nodes)
        controller = active_controller(peer.nodes[nodes[0]].bootstrap)
        leader = next(n for n in nodes if (n == controller) == self.of_controller)
        replicas = [leader, *(n for n in nodes if n != leader)]
        topic = f"failover-{next(_numbers)}"
        try:
            seconds = failover_s(peer, topic, replicas, lambda: peer.kill(leader))
        finally:
            if not peer.nodes[leader].is_running:
                peer.start(leader)
        delete_topic(peer, topic)
        time.sleep(SETTLE_S)
        return {"failover": 1e3 * seconds}


STARTS = (
    ClusterStart("in one process", lambda folder: TidelogServe(folder, isolated=False)),
    ClusterStart("isolated", lambda folder: TidelogServe(folder, isolated=True)),
)


def _cases() -> Iterator[Case]:
    loads: Sequence[tuple[Load, int]] = ((JavaTools(), 200), (Librdkafka(), 100))
    for load, megabytes in loads:
        for batches in (SMALL, LARGE):
            yield Throughput(load, 1024, batches, megabytes, verbs=["produce"], of=OF)
    yield RoundTrip(500, 3000, of=OF)
    yield Failover(of_controller=False)
    yield Failover(of_controller=True)


CLUSTER_CASES: Sequence[Case] = tuple(_cases())
CLUSTER_NAMES = [*(case.name for case in STARTS), *names_of(CLUSTER_CASES)]


def measure_clusters(plan: Plan) -> list[str]:
    """Run the cases of three brokers; return the peers that are installed."""
    if not any(plan.only in name for name in CLUSTER_NAMES):
        return []
    names = [name for name in CLUSTERS if not plan.peers or name in plan.peers]
    clusters = []
    for name in names:
        cluster = CLUSTERS[name](plan.folder / f"{name}-cluster")
        try:
            cluster.prepare()
        except JarsUnavailableError as missing:
            plan.say(f"without a cluster of {name}: {missing}")
        else:
            clusters.append(cluster)
    names = [cluster.name for cluster in clusters]
    for start in STARTS:
        if plan.only in start.name:
            _measure_start(plan, start, names)
    cases = [case for case in CLUSTER_CASES if plan.only in case.name]
    if cases:
        try:
            for cluster in clusters:
                cluster.start()
            run_rounds(plan, cases, clusters)
        finally:
            for cluster in clusters:
                cluster.remove()
    return names


def _measure_start(plan: Plan, case: ClusterStart, names: Sequence[str]) -> None:
    """In turn, the first of each left out: it warms the page cache."""
    rng = random.Random(plan.rounds)
    for number in range(plan.rounds + 1):
        for name in rng.sample(names, len(names)):
            figures = case.run(name, plan.folder / f"start-{name}")
            plan.say(f"  {case.name}: {name}: {figures['cold start']:.0f} ms")
            if number:
                plan.samples.add(case.name, name, figures)
