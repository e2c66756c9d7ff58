"""Apache Kafka from its Maven jars: KRaft nodes, each broker and controller in one JVM."""

from __future__ import annotations

import base64
import fcntl
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING

from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.address import free_port, free_ports
from tidelog_bench.peers.cluster import PeerCluster, of_cluster
from tidelog_bench.peers.peer import PARTITIONS, Peer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["SERVER_JVM", "SMALL_JVM", "ApacheKafka", "ApacheKafkaCluster"]

CLUSTER_ID = "tidelogReference_01AAA"
# As bin/kafka-server-start.sh and kafka-run-class.sh of the distribution set them.
SERVER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Several JVMs on a developer's machine; all the rest as above.
SMALL_JVM = ("-Xmx400m", *SERVER_JVM[2:])
# Warnings of expected trouble would only bury real failures.
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_FORMAT_TIMEOUT_S = 60
_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


class ApacheKafka(Peer):
    """One node with Kafka's defaults under `settings`: a broker that is its own controller, or one
    of several by `voters`."""

    name = "kafka"
    protocol = "PLAINTEXT"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = _SETTINGS,
        jvm_options: Sequence[str] = SERVER_JVM,
        *,
        node_id: int = 1,
        voters: Mapping[int, str] | None = None,
        port: int | None = None,
    ) -> None:
        """`voters` are the `host:port` of all controllers by node id, its own among them
        unless it is a broker alone."""
        super().__init__(folder, port=port)
        self._settings = settings
        self._jvm_options = jvm_options
        self._node_id = node_id
        self._voters = voters or {node_id: f"127.0.0.1:{free_port()}"}
        self.controller = self._voters.get(node_id, "")  # its address as one, if it is one

    def prepare(self) -> None:
        """Format the storage the first time: a copy of one that Kafka's own tool formatted."""
        super().prepare()
        data = self.folder / "data"
        if not data.exists():
            shutil.copytree(_formatted_storage(), data)
            _make_own(data / "meta.properties", self._node_id)
        properties = _properties(
            f"{self.protocol}://{self.bootstrap}", self._node_id, self._voters, data
        )
        _write_properties(self.folder / "server.properties", {**self._settings, **properties})

    def command(self) -> Sequence[str]:
        """The JVM on the prepared properties."""
        classpath = ["-cp", kafka_jars.classpath()]
        server = ["kafka.Kafka", str(self.folder / "server.properties")]
        return [kafka_jars.java(), *self._jvm_options, _QUIET, *classpath, *server]


class ApacheKafkaCluster(PeerCluster):
    """Several combined nodes (broker and controller), each in a JVM and a folder of its own."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SMALL_JVM,
        *,
        brokers: int = 3,
        name: str = "kafka",
    ) -> None:
        """`settings` go over the developer's ones and decide for all nodes."""
        ports = free_ports(2 * brokers)
        voters = {node_id: f"127.0.0.1:{ports.pop()}" for node_id in range(1, brokers + 1)}
        settings = {**_SETTINGS, **of_cluster(brokers), **(settings or {})}
        nodes = {
            node_id: ApacheKafka(
                folder / f"broker-{node_id}",
                settings,
                jvm_options,
                node_id=node_id,
                voters=voters,
                port=ports.pop(),
            )
            for node_id in voters
        }
        super().__init__(folder, name, nodes)


def _properties(
    listener: str, node_id: int, voters: Mapping[int, str], data: Path
) -> dict[str, str]:
    """Return the properties of a node's place in its cluster; a node that is not a voter is only a
    broker."""
    protocol = listener.partition(":")[0]
    roles, listeners = "broker", listener
    if node_id in voters:
        roles, listeners = "broker,controller", f"{listeners},CONTROLLER://{voters[node_id]}"
    return {
        "process.roles": roles,
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{n}@{at}" for n, at in sorted(voters.items())),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": protocol,
        "listeners": listeners,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
    }


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def _make_own(meta: Path, node_id: int) -> None:
    """Give a copied log directory the ids that differ between directories of one cluster."""
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("#")]
    known = dict(line.split("=", 1) for line in lines)
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    _write_properties(meta, {**known, "directory.id": directory_id, "node.id": str(node_id)})


def _formatted_storage() -> Path:
    """A log directory as StorageTool leaves it. Formatting takes a JVM and a second: once."""
    jars = kafka_jars.classpath()
    target = kafka_jars.cache_dir() / f"formatted-{CLUSTER_ID}"
    with (kafka_jars.cache_dir() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            work = target.with_suffix(".work")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            settings = work / "server.properties"
            voters = {1: "127.0.0.1:9093"}
            properties = _properties("PLAINTEXT://127.0.0.1:9092", 1, voters, work / "data")
            _write_properties(settings, properties)
            tool = [kafka_jars.java(), _QUIET, "-cp", jars, "kafka.tools.StorageTool"]
            result = subprocess.run(
                [*tool, "format", "-t", CLUSTER_ID, "-c", str(settings)],
                capture_output=True,
                text=True,
                cwd=work,
                timeout=_FORMAT_TIMEOUT_S,
                check=False,
            )
            if result.returncode:
                raise RuntimeError(f"could not format Kafka's storage: {result.stderr[-500:]}")
            (work / "data").rename(target)
            shutil.rmtree(work)
    return target
