"""tidelog and Apache Kafka with a remote tier in a directory each: brokers alone and clusters.

tidelog's is `--tiered DIR`, Kafka's the LocalTieredStorage of its own tests. Both copy files to
another folder of the same disk; ours makes them durable as well. A third peer is tidelog with its
tier in an S3 server on this machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import urllib.request
from typing import TYPE_CHECKING

from tidelog_bench.peers.address import free_port
from tidelog_bench.peers.apache_kafka import ApacheKafka, ApacheKafkaCluster
from tidelog_bench.peers.cluster import of_cluster
from tidelog_bench.peers.process import Child
from tidelog_bench.peers.tidelog import Tidelog, TidelogCluster
from tidelog_bench.peers.versitygw import ENVIRONMENT, REGION, Versitygw, program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = [
    "EAGER",
    "S3_NAME",
    "TIERED_CLUSTERS",
    "TIERED_PEERS",
    "MeasuredTidelog",
    "TieredS3",
    "kafkas_tier",
    "tier_of",
]

EAGER: Mapping[str, str] = {
    "remote.log.manager.task.interval.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
}
"""What makes a topic remote in seconds; Kafka's own intervals are 30 s, 5 min and 30 s."""

S3_NAME = "tidelog s3"
_BUCKET = "tier"
_METADATA = "rlmm.config.remote.log.metadata.topic."
_SETTINGS: Mapping[str, str] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "log.segment.delete.delay.ms": "1000",
    f"{_METADATA}num.partitions": "5",
    f"{_METADATA}replication.factor": "1",
    f"{_METADATA}min.isr": "1",
}
INDEX_TTL_MS = 5_000
INDEXES_GONE_S_MAX = 120.0
_INDEX_TTL = "remote.log.index.file.cache.ttl.ms"
_READS = "kafka_server_brokertopicmetrics_remotefetchrequests_total{"
_WAITING = 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="RemoteFetch"'
_KAFKAS_STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def tier_of(folder: Path) -> Path:
    """Where the tier of a broker or a cluster with its data in `folder` is: beside it."""
    return folder.with_name(f"{folder.name}-tier")


class MeasuredTidelog(Tidelog):
    """A broker with a remote tier that reports its unfinished remote reads."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._metrics = f"127.0.0.1:{free_port()}"
        self._settings = {
            **_SETTINGS,
            _INDEX_TTL: str(INDEX_TTL_MS),
            "metrics.prometheus.listener": self._metrics,
            **settings,
        }

    def remote_reads(self) -> float:
        """Fetches that went to the remote tier, in this life of it."""
        return sum(self._told(_READS))

    def waiting_reads(self) -> float:
        """Return the number of remote reads that wait."""
        waiting = self._told(_WAITING)
        assert waiting, "it reports no size of its purgatories"
        return sum(waiting)

    def index_bytes(self) -> int:
        """Size of all files of remote indexes that are here, also of those about to go."""
        size = 0
        for file in (self.folder / "remote-log-index-cache").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it went at this moment
                size += file.stat().st_size
        return size

    def wait_until_no_index_is_left(self) -> None:
        """Until none was used for so long that all have gone; TimeoutError if one stays."""
        deadline = time.monotonic() + INDEXES_GONE_S_MAX
        while self.index_bytes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {self.index_bytes()} bytes of indexes stay")
            time.sleep(0.5)

    def _told(self, meter: str) -> list[float]:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith(meter)]

    def remove(self) -> None:
        """The tier as well."""
        super().remove()
        shutil.rmtree(tier_of(self.folder), ignore_errors=True)


class TieredTidelog(MeasuredTidelog):
    """`tidelog serve --tiered DIR`."""

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        given = [f"--set={key}={value}" for key, value in self._settings.items()]
        return [*super().command(), "--tiered", str(tier_of(self.folder)), *given]


class TieredS3(MeasuredTidelog):
    """`tidelog serve --tiered s3://BUCKET` with its own server, whose CPU is not counted."""

    name = S3_NAME

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, settings)
        self._server = Versitygw(tier_of(folder))

    def prepare(self) -> None:
        """Build the server; GoUnavailableError where that can't be."""
        super().prepare()
        program()

    def command(self) -> Sequence[str]:
        """Serve until standard input ends."""
        place = {"rsm.config.endpoint.url": self._server.url, "rsm.config.region": REGION}
        given = [f"--set={key}={value}" for key, value in {**self._settings, **place}.items()]
        return [*super().command(), "--tiered", f"s3://{_BUCKET}", *given]

    def launch(self) -> Child:
        """The server first."""
        self.prepare()
        self._server.start()
        self._server.make_bucket(_BUCKET)
        self._child = Child(self.command(), self.log, {**os.environ, **ENVIRONMENT})
        return self._child

    def store_cpu_seconds(self) -> float:
        """CPU time of the server."""
        return self._server.cpu_seconds()

    def remove(self) -> None:
        """The server as well, and what it has."""
        super().remove()
        self._server.stop()
        shutil.rmtree(tier_of(self.folder), ignore_errors=True)


class TieredKafka(ApacheKafka):
    """One Apache Kafka node with LocalTieredStorage."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, {**kafkas_tier(folder), **settings})

    def remove(self) -> None:
        """The tier as well."""
        super().remove()
        shutil.rmtree(tier_of(self.folder), ignore_errors=True)


class TieredTidelogCluster(TidelogCluster):
    """Three nodes of tidelog with one tier."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        tier = {
            "remote.log.storage.manager.class.name": (
                "tidelog_storage.remote.directory_store.DirectoryStore"
            ),
            "rsm.config.dir": str(tier_of(folder)),
        }
        super().__init__(folder, {**_SETTINGS, **tier, **settings})

    def remove(self) -> None:
        """The tier as well."""
        super().remove()
        shutil.rmtree(tier_of(self.folder), ignore_errors=True)


class TieredKafkaCluster(ApacheKafkaCluster):
    """Three Apache Kafka nodes with one LocalTieredStorage."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder, {**of_cluster(3), **kafkas_tier(folder), **settings})

    def remove(self) -> None:
        """The tier as well."""
        super().remove()
        shutil.rmtree(tier_of(self.folder), ignore_errors=True)


TIERED_PEERS = {"tidelog": TieredTidelog, "kafka": TieredKafka}
TIERED_CLUSTERS = {"tidelog": TieredTidelogCluster, "kafka": TieredKafkaCluster}


def kafkas_tier(folder: Path) -> dict[str, str]:
    """Settings of an Apache Kafka with its data in `folder` and LocalTieredStorage beside it."""
    return {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "remote.log.storage.manager.class.name": _KAFKAS_STORE,
        "rsm.config.dir": str(tier_of(folder)),
        **_SETTINGS,
    }
