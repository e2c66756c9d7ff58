"""Report the log directories of replicas to the controller (AssignReplicasToDirs, KIP-858).

The controller elects no replica whose directory is gone or has failed. It knows the directory of a
replica by itself if its broker had only one directory when the partition was created; otherwise
the broker chooses, and reports. Three other things are reported:

- A replica that moves is reported before it leaves its directory: afterwards the operator may
  remove the directory (`log_dir_moves.py`).
- A lost replica is reported in no directory (DirectoryId.LOST): the controller removes it from the
  in-sync replicas and elects another one. If it is the last one in sync, the partition stays
  without a leader.
- A replica that started again, or whose directory id differs from the metadata, is reported in its
  directory: otherwise it could never lead.

A failed directory is reported too if the metadata does not have it yet for a replica. A lone broker
reports nothing: no other could lead. Kafka: AssignmentsManager.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage, TopicImage
    from tidelog.replication.partition import Partition
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog_protocol.messages.controller import AssignReplicasToDirsRequest

__all__ = ["LOST_DIRECTORY", "Assignment", "DirectoryAssignments", "assign", "is_elsewhere"]

_log = logging.getLogger(__name__)

LOST_DIRECTORY = bytes(15) + b"\2"  # DirectoryId.LOST
ASSIGNMENTS_MAX = 1000  # in one request, about 20 ms of the controller's loop; Kafka's has 2250
RETRY_S = 0.2


class Assignment(NamedTuple):
    """Where a replica is, or is about to be."""

    key: TopicPartition
    topic_id: bytes
    directory_id: bytes


def is_elsewhere(replicas: ReplicaManager, partition: Partition, directory_id: bytes) -> bool:
    """Return whether the metadata has another directory for this broker's replica."""
    if replicas.ask_controller is None or replicas.image is None:
        return False  # a lone broker's metadata does not need the directories
    state = replicas.image.partition(*partition.topic_partition)
    known = ZERO_UUID if state is None else state.directory_of(replicas.node_id)
    return known not in (ZERO_UUID, directory_id)


async def assign(replicas: ReplicaManager, assignments: Sequence[Assignment]) -> bool:
    """Report up to `ASSIGNMENTS_MAX` replicas; return whether the controller recorded all."""
    assert replicas.ask_controller is not None
    try:
        response = await replicas.ask_controller(_request(replicas, assignments))
        if response.error_code:
            _log.info("the controller refused directories: %s", response.error_code)
            return False
        errors = [
            one.error_code
            for directory in response.directories
            for topic in directory.topics
            for one in topic.partitions
        ]
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is asked again
        _log.debug("cannot send AssignReplicasToDirs: %s", failure)
        return False
    if any(errors):
        _log.info("the controller refused directories of replicas: %s", sorted(set(errors) - {0}))
    return not any(errors)


def _request(
    replicas: ReplicaManager, assignments: Sequence[Assignment]
) -> AssignReplicasToDirsRequest:
    from tidelog_protocol.messages.controller import (  # noqa: PLC0415 - few brokers report
        AssignReplicasToDirsRequest,
    )

    assert replicas.image is not None
    broker = replicas.image.brokers.get(replicas.node_id)
    directory = AssignReplicasToDirsRequest.DirectoryData
    indices: dict[bytes, dict[bytes, list[int]]] = {}
    for key, topic_id, directory_id in assignments:
        indices.setdefault(directory_id, {}).setdefault(topic_id, []).append(key.partition)
    return AssignReplicasToDirsRequest(
        broker_id=replicas.node_id,
        broker_epoch=-1 if broker is None else broker.epoch,
        directories=[
            directory(
                id=directory_id,
                topics=[
                    directory.TopicData(
                        topic_id=topic_id,
                        partitions=[
                            directory.TopicData.PartitionData(partition_index=index)
                            for index in partitions
                        ],
                    )
                    for topic_id, partitions in topics.items()
                ],
            )
            for directory_id, topics in indices.items()
        ],
    )


class DirectoryAssignments:
    """Reports replicas until the metadata shows the report."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._watched: set[TopicPartition] = set()
        self._task: asyncio.Task[None] | None = None
        replicas.on_opening.append(self._opened)

    def _opened(self, topic: TopicImage, states: Sequence[PartitionImage]) -> None:
        """Report replicas that were opened late: only now they have a directory."""
        if self._has_choice and self._watched and self._task is None and self._unreported():
            self._begin()

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Find the replicas to report in this image, and follow them in later ones."""
        if delta.old is None:
            self._watched = self._suspects(image)
        elif self._has_choice:
            for changed in delta.topics.values():
                self._watched.update(
                    TopicPartition(changed.new.name, state.partition)
                    for state in changed.partitions
                    if self._replicas.node_id in state.replicas
                )
        if self._watched and self._task is None and self._unreported():
            self._begin()

    @property
    def _has_choice(self) -> bool:
        """Return whether the controller cannot know the directory of a new replica."""
        return len(self._replicas.logs.directories) > 1

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._report(), name=f"directories of {self._replicas.node_id}"
        )
        self._task.add_done_callback(self._reported)

    def _suspects(self, image: ClusterImage) -> set[TopicPartition]:
        """Return replicas in a directory that this broker lacks, and those whose logs are lost."""
        own = {one.directory_id for one in self._replicas.logs.directories}
        if not self._has_choice:
            own.add(ZERO_UUID)
        node_id, found = self._replicas.node_id, set()
        for topic in image.topics.values():
            for state in topic.partitions:
                key = TopicPartition(topic.name, state.partition)
                is_elsewhere = state.directory_of(node_id) not in own
                is_here = node_id in state.replicas
                if is_here and (is_elsewhere or self._wanted(key, state) == LOST_DIRECTORY):
                    found.add(key)
        return found

    def _wanted(self, key: TopicPartition, state: PartitionImage) -> bytes | None:
        """Return the directory that the metadata must have for a replica; None if any will do."""
        logs, lost = self._replicas.logs, self._replicas.lost_logs
        known = state.directory_of(self._replicas.node_id)
        own = [one.directory_id for one in logs.directories if not one.is_unread]
        if key in lost or (lost.is_unread(key) and known in (ZERO_UUID, *own)):
            return LOST_DIRECTORY
        moving_to = logs.future_log_dir(key)
        if moving_to is not None and known == logs.directory_id(moving_to):
            return None  # reported before it leaves
        try:
            return logs.directory_id(logs.log_dir(key))
        except KeyError:
            return None  # its log could not be opened

    def _unreported(self) -> list[Assignment]:
        """Return what the metadata does not show yet; drop replicas that are settled."""
        image, node_id = self._replicas.image, self._replicas.node_id
        assert image is not None
        found = []
        for key in sorted(self._watched):
            topic, state = image.topics.get(key.topic), image.partition(*key)
            if topic is None or state is None or node_id not in state.replicas:
                self._watched.remove(key)
                continue
            wanted = self._wanted(key, state)
            if wanted is None:
                continue
            if state.directory_of(node_id) != wanted:
                found.append(Assignment(key, topic.topic_id, wanted))
            elif wanted != LOST_DIRECTORY:
                self._watched.remove(key)
        return found

    async def _report(self) -> None:
        """Repeat the report until the image has it: answers may be lost, and controllers change."""
        while assignments := self._unreported():
            for start in range(0, len(assignments), ASSIGNMENTS_MAX):
                await assign(self._replicas, assignments[start : start + ASSIGNMENTS_MAX])
            await asyncio.sleep(RETRY_S)

    def _reported(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and self._watched and self._unreported():
            self._begin()

    async def close(self) -> None:
        """Stop reporting."""
        task, self._watched = self._task, set()
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
