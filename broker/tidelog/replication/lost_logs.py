"""Replicas whose logs are gone from this broker's disk: a folder was removed, or a directory was
formatted again.

An in-sync or eligible replica must have everything committed, and the last known leader is elected
for what it has (KIP-966). With an empty log none of them may lead or count, so the replica stays
offline while the metadata has it as one of these. After that it begins with an empty log and
follows, like any new replica. If it is the only one, the partition waits for its folder, unless the
topic allows unclean elections.

A log is lost if the metadata has this broker as one of these as the start finds it, there is no
log, and

- the recovery points of a directory name it: they name all logs after an orderly stop, or
- a directory is new, and so may have replaced the one that had it.

The recovery points keep the lost logs across restarts.

A log directory that could not be read at the start (KIP-112) hides logs that are not lost. A
replica that may be there stays offline until the next start, in sync or not: a second log in
another directory would be in the way of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_storage.types import StorageError, TopicPartition

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage
    from tidelog_storage.config import LogConfig
    from tidelog_storage.manager import LogManager

__all__ = ["LOST", "UNREAD", "LostLogs"]

LOST = StorageError(
    ErrorCode.KAFKA_STORAGE_ERROR,
    "its log is gone from this broker's disk, and the replica is in sync: put the folder back and"
    " start again, have another replica elected, or delete the topic",
)
UNREAD = StorageError(
    ErrorCode.KAFKA_STORAGE_ERROR,
    "it may be in a log directory that could not be read at the start: mend the directory and start"
    " again, or reassign the replica",
)


class LostLogs:
    """The lost logs of one broker, and those in an unread directory."""

    def __init__(self, logs: LogManager, node_id: int) -> None:
        self._logs = logs
        self._node_id = node_id
        self._lost: set[TopicPartition] = set()
        self._unread: set[TopicPartition] = set()

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._lost

    def is_unread(self, key: TopicPartition) -> bool:
        """Return whether a log may be in a directory that could not be read."""
        return key in self._unread

    def find(self, image: ClusterImage) -> None:
        """Find the lost logs in the first image, after strays were renamed."""
        self._find_unread(image)
        logs = self._logs
        missing, present, is_new = logs.missing(), logs.topic_ids(), logs.has_new_directory
        if not missing and not is_new:
            return
        for topic in image.topics.values():
            for state in topic.partitions:
                key = TopicPartition(topic.name, state.partition)
                if key in self._unread or key in present:
                    continue
                if self._node_id in _relied_on(state) and (is_new or key in missing):
                    self._lost.add(key)
        for key in missing - self._lost:
            logs.forget_missing(key)
        logs.keep_missing(sorted(self._lost))

    def _find_unread(self, image: ClusterImage) -> None:
        logs = self._logs
        if not logs.has_unread_directory:
            return
        present = logs.topic_ids()
        for topic in image.topics.values():
            for state in topic.partitions:
                key = TopicPartition(topic.name, state.partition)
                if self._node_id not in state.replicas or key in present:
                    continue
                directory = state.directory_of(self._node_id)
                is_new = directory == ZERO_UUID and self._node_id not in state.isr
                if key in logs.unadopted or (logs.may_be_unread(directory) and not is_new):
                    self._unread.add(key)

    def keeps_offline(
        self, key: TopicPartition, state: PartitionImage, config: LogConfig
    ) -> StorageError | None:
        """Return why a replica may not begin with an empty log yet; None if it may."""
        if key in self._unread:
            return UNREAD
        return LOST if self._is_lost(key, state, config) else None

    def _is_lost(self, key: TopicPartition, state: PartitionImage, config: LogConfig) -> bool:
        if key not in self._lost:
            return False
        relied_on = _relied_on(state)
        is_alone = relied_on == {self._node_id}
        if self._node_id not in relied_on or (is_alone and config.unclean_leader_election_enable):
            self._lost.remove(key)
            return False
        return True

    def forget(self, key: TopicPartition) -> None:
        """Remove a replica that is no longer this broker's."""
        self._unread.discard(key)
        if key in self._lost:
            self._lost.remove(key)
            self._logs.forget_missing(key)


def _relied_on(state: PartitionImage) -> set[int]:
    """Return the replicas that may lead for what they have."""
    eligible, last = state.eligible_leader_replicas, state.last_known_eligible_leader_replicas
    return {*state.isr, *eligible, *last}
