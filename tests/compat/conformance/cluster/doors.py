"""Three brokers with racks, of either kind, as the cluster cases need them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol

import tidelog
from compat.brokers import SETTINGS
from compat.jvm import FAST_START
from compat.reference import SMALL
from tidelog_bench.peers import apache_kafka
from tidelog_bench.peers.address import free_ports
from tidelog_bench.peers.cluster import PeerCluster, of_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NODES = (1, 2, 3)
RACKS = {1: "a", 2: "b", 3: "c"}
OF_ONE = ("node.id", "offsets.topic.replication", "transaction.state.log.")
CLUSTER_SETTINGS: Mapping[str, str] = {
    **{key: value for key, value in SETTINGS.items() if not key.startswith(OF_ONE)},
    "default.replication.factor": "1",  # Kafka's; a developer's profile has three
    "auto.leader.rebalance.enable": "false",  # elections are the cases' own
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
# JVMs that a busy machine holds up for seconds stay what they were in their cluster.
PATIENT: Mapping[str, str] = {
    "broker.session.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "15000",
    "controller.quorum.request.timeout.ms": "15000",
    "replica.lag.time.max.ms": "120000",
}


class ClusterDoor(Protocol):
    """What cases may do to three brokers."""

    name: str
    addresses: Mapping[int, str]  # `host:port` by node id, once it is started

    def start(self) -> None: ...
    def stop_one(self, node_id: int) -> None: ...
    def start_one(self, node_id: int) -> None: ...
    def stop(self) -> None: ...


class TidelogCluster:
    """Three tidelogs in one process beside this one."""

    name = "tidelog"

    def __init__(self, folder: Path) -> None:
        del folder  # its data is temporary anyway
        self._running = tidelog.run(CLUSTER_SETTINGS, brokers=3, racks=list(RACKS.values()))
        self.addresses: Mapping[int, str] = {}

    def start(self) -> None:
        """Start all."""
        servers = self._running.start().bootstrap_servers
        self.addresses = dict(zip(NODES, servers.split(","), strict=True))

    def stop_one(self, node_id: int) -> None:
        """A controlled shutdown."""
        self._running.brokers[node_id - 1].stop()

    def start_one(self, node_id: int) -> None:
        """Start one again."""
        self._running.brokers[node_id - 1].start()

    def stop(self) -> None:
        """Kill all: how they stop is not what is compared."""
        self._running.kill()
        self._running.stop()


class KafkaCluster:
    """Three Apache Kafkas, a JVM each."""

    name = "kafka"

    def __init__(self, folder: Path) -> None:
        ports = free_ports(6)
        voters = {node_id: f"127.0.0.1:{ports.pop()}" for node_id in NODES}
        nodes = {
            node_id: apache_kafka.ApacheKafka(
                folder / f"broker-{node_id}",
                {**of_cluster(3), **CLUSTER_SETTINGS, **SMALL, **PATIENT, "broker.rack": rack},
                ["-Xmx400m", *FAST_START],
                node_id=node_id,
                voters=voters,
                port=ports.pop(),
            )
            for node_id, rack in RACKS.items()
        }
        self._peer = PeerCluster(folder, "kafka", nodes)
        self._folder = folder
        self.addresses = {node_id: node.bootstrap for node_id, node in nodes.items()}

    def start(self) -> None:
        """Start all."""
        self._peer.start()

    def stop_one(self, node_id: int) -> None:
        """A controlled shutdown."""
        self._peer.stop(node_id)

    def start_one(self, node_id: int) -> None:
        """Start one again."""
        self._peer.start(node_id)

    def stop(self) -> None:
        """Kill all: nobody needs their data."""
        self._peer.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
