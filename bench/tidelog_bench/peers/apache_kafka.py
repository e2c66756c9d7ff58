"""Apache Kafka from its Maven jars: one KRaft node, broker and controller, in one JVM."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from typing import TYPE_CHECKING

from tidelog_bench.peers import kafka_jars
from tidelog_bench.peers.address import free_port
from tidelog_bench.peers.peer import PARTITIONS, Peer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["SERVER_JVM", "ApacheKafka"]

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
# Warnings of expected trouble would only bury real failures.
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_FORMAT_TIMEOUT_S = 60
_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.delete.delay.ms": "1000",
    "num.partitions": str(PARTITIONS),
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


class ApacheKafka(Peer):
    """One broker that is its own controller, with Kafka's defaults under `settings`."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = _SETTINGS,
        jvm_options: Sequence[str] = SERVER_JVM,
    ) -> None:
        super().__init__(folder)
        self._settings = settings
        self._jvm_options = jvm_options
        self._controller_port = free_port()

    def prepare(self) -> None:
        """Format the storage the first time: a copy of one that Kafka's own tool formatted."""
        super().prepare()
        data = self.folder / "data"
        if not data.exists():
            shutil.copytree(_formatted_storage(), data)
        properties = self._properties(self.bootstrap, f"127.0.0.1:{self._controller_port}", data)
        _write_properties(self.folder / "server.properties", {**self._settings, **properties})

    def command(self) -> Sequence[str]:
        """The JVM on the prepared properties."""
        classpath = ["-cp", kafka_jars.classpath()]
        server = ["kafka.Kafka", str(self.folder / "server.properties")]
        return [kafka_jars.java(), *self._jvm_options, _QUIET, *classpath, *server]

    @staticmethod
    def _properties(listener: str, controller: str, data: Path) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{listener},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data),
        }


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


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
            properties = ApacheKafka._properties("127.0.0.1:9092", "127.0.0.1:9093", work / "data")
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
