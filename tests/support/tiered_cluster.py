"""A tiered cluster as Apache Kafka's integration tests have it: a batch or two per segment, short
intervals, one store for all brokers."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tidelog
from support.clusters import STEADY, all_know, create_topic, in_thread, librdkafka, until
from support.flaky_store import NAME, Faults, new_faults
from tidelog_protocol.records import iter_batches, iter_records
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tidelog.tiered.tasks.partition import TieredPartition
    from tidelog.tiered.tier import RemoteTier
    from tidelog_storage.log import Log

_RLMM = "rlmm.config.remote.log.metadata"
SETTINGS = {
    **STEADY,
    "remote.log.storage.manager.class.name": NAME,
    "remote.log.manager.task.interval.ms": "300",
    "remote.log.manager.task.retry.backoff.ms": "50",
    "remote.log.manager.task.retry.backoff.max.ms": "300",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.enable": "false",
    f"{_RLMM}.topic.num.partitions": "5",
    "replica.fetch.backoff.ms": "100",
}


def segmented(batches: int, **more: str) -> dict[str, str]:
    """Settings of a topic with so many batches per segment, of which only the last stays local."""
    return {
        "remote.storage.enable": "true",
        "local.retention.bytes": "1",
        "index.interval.bytes": "1",
        "segment.index.bytes": str(12 * batches),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class TieredCluster:
    """Brokers, and the store's folder."""

    def __init__(self, cluster: tidelog.Cluster, folder: str, faults: Faults) -> None:
        self.cluster = cluster
        self.store = f"{folder}/tier"
        self.faults = faults
        self.folder = folder

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def node(self, node_id: int) -> Any:
        return self.cluster.brokers[node_id - 1]

    def running(self) -> list[Any]:
        return [node for node in self.cluster.brokers if node.is_running]

    def tier(self, node_id: int) -> RemoteTier:
        tier: RemoteTier = self.node(node_id).server.tier
        return tier

    def log(self, node_id: int, topic: str, index: int = 0) -> Log:
        log: Log = self.node(node_id).server.replicas.partition(topic, index).log
        return log

    def tiered(self, node_id: int, topic: str, index: int = 0) -> TieredPartition:
        return self.tier(node_id).partitions[topic, index]

    def holds(self, node: Any, topic: str, index: int = 0) -> bool:
        """Whether a replica is on this node."""
        return node.server.replicas.hosted(TopicPartition(topic, index)) is not None

    def leader(self, topic: str, index: int = 0) -> int:
        image = self.running()[0].server.metadata.image
        return int(image.partition(topic, index).leader)

    async def create(self, topic: str, partitions: int, replicas: int, **config: str) -> None:
        """Create a topic, and return when everybody knows of it and of its leaders."""
        await in_thread(lambda: create_topic(self.bootstrap, topic, partitions, replicas, **config))
        for index in range(partitions):
            await until(
                lambda index=index: all_know(
                    self.cluster, topic, lambda partition: partition.leader >= 0, index
                ),
                f"all know of {topic}-{index}",
            )

    async def produce(
        self, topic: str, values: Iterable[str], index: int = 0, *, timestamp: int = 0
    ) -> None:
        """Each record in a batch of its own, acknowledged by all in sync."""

        def send() -> None:
            from confluent_kafka import Producer

            producer = Producer(librdkafka(self.bootstrap, acks="all") | {"linger.ms": 0})
            errors: list[object] = []
            for value in values:
                producer.produce(
                    topic,
                    value.encode(),
                    partition=index,
                    timestamp=timestamp,
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                )
                assert producer.flush(30) == 0
            assert not errors

        await in_thread(send)

    async def alter(self, topic: str, **settings: str) -> None:
        """Set configurations of a topic, and return when every replica goes by them."""
        wanted = {name.replace("_", "."): value for name, value in settings.items()}
        await in_thread(self._alter, "TOPIC", topic, wanted)
        for node in self.running():
            metadata = node.server.metadata
            await until(
                lambda metadata=metadata: (
                    wanted.items() <= dict(metadata.image.topic_config(topic)).items()
                )
            )

    async def alter_brokers(self, **settings: str) -> None:
        """Set dynamic settings of all brokers, each by its id."""
        wanted = {name.replace("_", "."): value for name, value in settings.items()}
        for node in self.running():
            await in_thread(self._alter, "BROKER", str(node.node_id), wanted)

    def _alter(self, kind: str, name: str, settings: dict[str, str]) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
        admin = AdminClient(librdkafka(self.bootstrap))
        admin.incremental_alter_configs([resource])[resource].result(60)

    async def delete(self, topic: str) -> None:
        def delete() -> None:
            from confluent_kafka.admin import AdminClient

            admin = AdminClient(librdkafka(self.bootstrap))
            admin.delete_topics([topic])[topic].result(60)

        await in_thread(delete)

    async def delete_records(self, topic: str, index: int, offset: int) -> None:
        def delete() -> None:
            from confluent_kafka import TopicPartition
            from confluent_kafka.admin import AdminClient

            place = TopicPartition(topic, index, offset)
            admin = AdminClient(librdkafka(self.bootstrap))
            admin.delete_records([place])[place].result(60)

        await in_thread(delete)

    # -- the store ---------------------------------------------------------------------------------

    def remote(self, topic: str, index: int = 0) -> dict[int, list[str]]:
        """Values of each segment that the store has whole, by the segment's start offset."""
        segments: dict[int, list[str]] = {}
        for path in self._files(f"{topic}-{index}-"):
            name, _, ending = path.name.partition(".")
            if ending == "manifest.json":
                with suppress(FileNotFoundError):  # it is being deleted
                    segments[int(name[:20])] = _values(path.with_name(f"{name}.log").read_bytes())
        return dict(sorted(segments.items()))

    def remote_files(self, topic: str) -> list[str]:
        """All that the store has of a topic, whole or not."""
        return [path.name for path in self._files(f"{topic}-")]

    def _files(self, prefix: str) -> list[Path]:
        """In folders whose names begin so; folders come and go."""
        found: list[Path] = []
        with suppress(FileNotFoundError):
            for folder in sorted(Path(self.store).iterdir()):
                if folder.name.startswith(prefix):
                    with suppress(FileNotFoundError):
                        found += folder.iterdir()
        return found

    # -- waiting -----------------------------------------------------------------------------------

    async def offloaded(
        self, topic: str, segments: dict[int, list[str]], *, index: int = 0, local_start: int
    ) -> None:
        """Exactly these segments are remote, and every replica begins locally at `local_start`."""
        await until(lambda: self.remote(topic, index) == segments, f"{topic} is copied")
        for node in self.running():
            if self.holds(node, topic, index):
                held = self.log(node.node_id, topic, index)
                await until(
                    lambda held=held: held.local_log_start_offset == local_start,
                    f"{node} begins {topic} at {local_start}",
                )


def _values(content: bytes) -> list[str]:
    return [
        (record.value or b"").decode()
        for position, _ in iter_batches(content)
        for record in iter_records(content, position)
    ]


@asynccontextmanager
async def tiered_cluster(
    folder: Path, brokers: int = 1, **settings: str
) -> AsyncIterator[TieredCluster]:
    """A running cluster; settings with underscores for dots."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    place = str(folder)
    faults = new_faults(f"{place}/tier")
    async with tidelog.Cluster(
        {**SETTINGS, "rsm.config.dir": f"{place}/tier", **more},
        brokers=brokers,
        data_dir=f"{place}/data",
        tiered=True,
    ) as cluster:
        yield TieredCluster(cluster, place, faults)
