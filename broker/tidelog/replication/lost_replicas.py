"""Report the replicas of this broker that lost their logs to the controller (AssignReplicasToDirs).

A lost replica is reported in no directory (Kafka's DirectoryId.LOST, KIP-858). The controller then
removes it from the in-sync replicas and elects another one. If it is the last one in sync, the
partition stays without a leader. A replica that started again, or whose directory id differs from
the metadata, is reported in its directory: otherwise it could never lead.

A lone broker does not need it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog.replication.directory_assignment import assign
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["LOST_DIRECTORY", "LostReplicas"]

LOST_DIRECTORY = bytes(15) + b"\2"  # DirectoryId.LOST
RETRY_S = 0.2


class _Assignment(NamedTuple):
    key: TopicPartition
    topic_id: bytes
    directory_id: bytes


class LostReplicas:
    """Reports replicas until the metadata shows the report."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._watched: set[TopicPartition] = set()
        self._task: asyncio.Task[None] | None = None

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Find the replicas to report in the first image, and follow them in later ones."""
        if delta.old is None:
            self._watched = self._suspects(image)
        self._begin()

    def _begin(self) -> None:
        if self._watched and self._task is None and self._unreported():
            self._task = asyncio.get_running_loop().create_task(
                self._report(), name=f"lost replicas of {self._replicas.node_id}"
            )
            self._task.add_done_callback(self._reported)

    def _suspects(self, image: ClusterImage) -> set[TopicPartition]:
        """Return replicas in a directory that this broker lacks, and those whose logs are lost."""
        own = {ZERO_UUID, *(one.directory_id for one in self._replicas.logs.directories)}
        found = set()
        for topic in image.topics.values():
            for state in topic.partitions:
                key = TopicPartition(topic.name, state.partition)
                known = dict(zip(state.replicas, state.directories, strict=False))
                is_elsewhere = known.get(self._replicas.node_id, ZERO_UUID) not in own
                if is_elsewhere or key in self._replicas.lost_logs:
                    found.add(key)
        return found

    def _unreported(self) -> list[_Assignment]:
        """Return what the metadata does not show yet; drop replicas that are settled."""
        image, replicas = self._replicas.image, self._replicas
        assert image is not None
        found = []
        for key in sorted(self._watched):
            topic, state = image.topics.get(key.topic), image.partition(*key)
            if topic is None or state is None or replicas.node_id not in state.replicas:
                self._watched.remove(key)
                continue
            known = dict(zip(state.replicas, state.directories, strict=False))
            directory_id = LOST_DIRECTORY
            if key not in replicas.lost_logs:
                try:
                    directory_id = replicas.logs.directory_id(replicas.logs.log_dir(key))
                except KeyError:
                    continue  # its directory failed
            if known.get(replicas.node_id) != directory_id:
                found.append(_Assignment(key, topic.topic_id, directory_id))
            elif directory_id != LOST_DIRECTORY:
                self._watched.remove(key)
        return found

    async def _report(self) -> None:
        """Repeat the report until the image has it: answers may be lost, and controllers change."""
        while assignments := self._unreported():
            for one in assignments:
                await assign(self._replicas, one.key, one.topic_id, one.directory_id)
            await asyncio.sleep(RETRY_S)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self._begin()

    async def close(self) -> None:
        """Stop reporting."""
        task, self._watched = self._task, set()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
