"""The demo's cluster, and where a topic's bytes are: on the brokers' disks or in the tier alone.

What is where comes from the same questions as `tidelog tiers`; what consumers got from where, from
BytesOutPerSec and RemoteFetchBytesPerSec, which each broker reports on its Prometheus endpoint.
"""

from __future__ import annotations

import http.client
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tidelog
from tidelog.embedded.simple_client import SimpleClient
from tidelog.embedded.tier_view import TierViewer
from tidelog_protocol.messages.admin import DescribeLogDirsRequest
from tidelog_storage.remote.api import SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.embedded.tier_view import PartitionTiers

BROKERS = 3
# What is local only while it must be, and looked at often: the demo has no hours to wait.
_BROKER_SETTINGS = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "remote.log.manager.task.interval.ms": "1000",
    "metrics.prometheus.listener": "127.0.0.1:0",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",  # not 50: one topic is tiered
}
WAIT_SECONDS_MAX = 180.0
_LOOK_SECONDS = 0.3
_METER = "kafka_server_brokertopicmetrics_"
_OUT, _FROM_REMOTE = f"{_METER}bytesout", f"{_METER}remotefetchbytes"


def tiered_topic(segment_bytes: int) -> dict[str, str]:
    """Configs of a topic of which only segments that are still written to are on the brokers.

    Kafka takes 1 MiB or more for `segment_bytes`. The events' own time, which runs through a year,
    rolls no segment: `segment.ms` would do so every seven days of it.
    """
    return {
        "remote.storage.enable": "true",
        "segment.bytes": str(segment_bytes),
        "segment.ms": str(1000 * 86_400_000),
        "local.retention.bytes": "1",
    }


@dataclass(frozen=True, slots=True)
class PartitionBytes:
    """One partition; bytes are those of records."""

    partition: int
    leader: int
    log_start: int
    local_log_start: int
    log_end: int
    remote_only: int  # in remote segments that end below the local log start
    remote_segments: int
    local: int  # on the leader's disk
    local_anywhere: int  # on the disk of the replica that has most


@dataclass(frozen=True, slots=True)
class TopicBytes:
    """A topic's bytes by tier, at one moment."""

    topic: str
    partitions: tuple[PartitionBytes, ...]

    @property
    def remote_only(self) -> int:
        """Bytes that only the remote tier has."""
        return sum(one.remote_only for one in self.partitions)

    @property
    def local(self) -> int:
        """Bytes on the leaders' disks."""
        return sum(one.local for one in self.partitions)

    @property
    def remote_segments(self) -> int:
        """Segments whose bytes only the remote tier has."""
        return sum(one.remote_segments for one in self.partitions)

    @property
    def remote_only_share(self) -> float:
        """Of all bytes, from 0 to 1."""
        whole = self.remote_only + self.local
        return self.remote_only / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Served:
    """Bytes of records that consumers got: from the remote tier, and from the brokers' disks."""

    remote: int
    local: int

    def since(self, before: Served) -> Served:
        """What was served after `before`."""
        return Served(self.remote - before.remote, self.local - before.local)


class Tiers:
    """Where the bytes of a cluster's topics are, and how many its remote tier has served."""

    def __init__(self, bootstrap_servers: str, metrics_ports: Sequence[int]) -> None:
        """`metrics_ports`: of each broker's Prometheus endpoint, on 127.0.0.1."""
        self._servers = bootstrap_servers.split(",")
        self.metrics_ports = metrics_ports

    def look(self, topic: str) -> TopicBytes:
        """The topic's bytes as they are now; ClusterError or OSError if the brokers can't tell."""
        with TierViewer(self._servers[0]) as viewer:
            views = viewer.look(topic)
        on_disk = self._on_disk(topic, len(views))
        return TopicBytes(topic, tuple(_bytes_of(view, on_disk[view.partition]) for view in views))

    def wait_until_remote(self, topic: str, segment_bytes: int) -> TopicBytes:
        """Return when no replica has more of any partition than the segment that is written to.

        Raises:
            RuntimeError: that did not come about within three minutes.
        """
        end = time.perf_counter() + WAIT_SECONDS_MAX
        partitions = len(self.look(topic).partitions)
        # A closed segment and the batch that did not fit into it are more than a segment.
        while max(self._on_disk(topic, partitions)) > segment_bytes:
            if time.perf_counter() > end:
                share = self.look(topic).remote_only_share
                message = (
                    f"{topic}: after {WAIT_SECONDS_MAX:.0f} s only {share:.0%} of its bytes are "
                    "in the remote tier alone"
                )
                raise RuntimeError(message)
            time.sleep(_LOOK_SECONDS)
        return self.look(topic)

    def served(self, topic: str) -> Served:
        """What consumers got of this topic so far, from all brokers.

        What is not from the remote tier is from the disks: BytesOutPerSec counts both.
        """
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

        count = dict.fromkeys((_OUT, _FROM_REMOTE), 0)
        for port in self.metrics_ports:
            for family in text_string_to_metric_families(_metrics(port)):
                if family.name in count:
                    count[family.name] += sum(
                        int(sample.value)
                        for sample in family.samples
                        if sample.labels.get("topic") == topic
                    )
        return Served(count[_FROM_REMOTE], count[_OUT] - count[_FROM_REMOTE])

    def _on_disk(self, topic: str, partitions: int) -> list[int]:
        """By partition, the bytes of the replica that has most of them."""
        most = [0] * partitions
        asked = DescribeLogDirsRequest.DescribableLogDirTopic(
            topic=topic, partitions=list(range(partitions))
        )
        for server in self._servers:
            client = SimpleClient(server)
            try:
                answer: Any = client.ask(DescribeLogDirsRequest(topics=[asked]))
            finally:
                client.close()
            for directory in answer.results:
                for described in directory.topics:
                    for one in described.partitions:
                        index = one.partition_index
                        most[index] = max(most[index], one.partition_size)
        return most


def _bytes_of(view: PartitionTiers, local_anywhere: int) -> PartitionBytes:
    remote = [
        segment.size
        for segment in view.remote
        if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and segment.end_offset < view.local_log_start
    ]
    return PartitionBytes(
        partition=view.partition,
        leader=view.leader,
        log_start=view.log_start,
        local_log_start=view.local_log_start,
        log_end=view.log_end,
        remote_only=sum(remote),
        remote_segments=len(remote),
        local=view.local_bytes,
        local_anywhere=max(local_anywhere, view.local_bytes),
    )


def _metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@contextmanager
def tiered_cluster() -> Iterator[tuple[str, Tiers]]:
    """Three brokers over one remote tier in a folder: their addresses, and a view on the tiers.

    At the end the brokers are gone, and all they had on disk and in the remote tier.
    """
    with tidelog.run(_BROKER_SETTINGS, brokers=BROKERS, tiered=True) as cluster:
        states = cluster.ask("brokers.describe", {}).brokers
        yield (
            cluster.bootstrap_servers,
            Tiers(cluster.bootstrap_servers, [state.running.metrics_port for state in states]),
        )
