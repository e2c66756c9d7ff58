"""Two brokers with one remote tier, of either kind, set up as Kafka's own tiered tests are."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import tidelog
from compat.conformance.cluster.doors import CLUSTER_SETTINGS, PATIENT
from compat.jvm import FAST_START
from compat.reference import SMALL
from tidelog_bench.peers import apache_kafka
from tidelog_bench.peers.address import free_ports
from tidelog_bench.peers.cluster import PeerCluster, of_cluster
from tidelog_bench.peers.tiered import kafkas_tier, tier_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NODES = (1, 2)
_METADATA = "rlmm.config.remote.log.metadata"
TIERED_SETTINGS: Mapping[str, str] = {
    **CLUSTER_SETTINGS,
    "remote.log.manager.task.interval.ms": "150",
    "log.retention.check.interval.ms": "150",
    "log.initial.task.delay.ms": "0",
    "replica.fetch.wait.max.ms": "100",  # how soon followers hear of a new log start
    "remote.fetch.max.wait.ms": "40000",  # a busy machine is no reason for an empty answer
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    f"{_METADATA}.initialization.retry.interval.ms": "300",
    f"{_METADATA}.topic.num.partitions": "5",
    f"{_METADATA}.topic.replication.factor": "2",
    f"{_METADATA}.topic.min.isr": "1",
}


class TieredTidelogs:
    """Two tidelogs in one process beside this one."""

    name = "tidelog"

    def __init__(self, folder: Path) -> None:
        self.tier = folder / "tier"
        self._running = tidelog.run(TIERED_SETTINGS, brokers=len(NODES), tiered=self.tier)
        self.addresses: Mapping[int, str] = {}

    def start(self) -> None:
        """Start both."""
        servers = self._running.start().bootstrap_servers
        self.addresses = dict(zip(NODES, servers.split(","), strict=True))

    def stop(self) -> None:
        """Kill both: how they stop is not what is compared."""
        self._running.kill()
        self._running.stop()


class TieredKafkas:
    """Two Apache Kafkas, a JVM each; the first alone is the controller."""

    name = "kafka"

    def __init__(self, folder: Path) -> None:
        self.tier = tier_of(folder / "kafka")
        ports = free_ports(1 + len(NODES))
        voters = {NODES[0]: f"127.0.0.1:{ports.pop()}"}
        settings = {
            **of_cluster(len(NODES)),
            **kafkas_tier(folder / "kafka"),
            **TIERED_SETTINGS,
            **SMALL,
            **PATIENT,
        }
        nodes = {
            node_id: apache_kafka.ApacheKafka(
                folder / f"broker-{node_id}",
                settings,
                ["-Xmx400m", *FAST_START],
                node_id=node_id,
                voters=voters,
                port=ports.pop(),
            )
            for node_id in NODES
        }
        self._peer = PeerCluster(folder, "kafka", nodes)
        self._folder = folder
        self.addresses = {node_id: node.bootstrap for node_id, node in nodes.items()}

    def start(self) -> None:
        """Start both."""
        self._peer.start()

    def stop(self) -> None:
        """Kill both: nobody needs their data."""
        self._peer.kill()
        shutil.rmtree(self.tier, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)
