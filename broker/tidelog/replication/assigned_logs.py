"""The logs of the replicas that the metadata assigns to this broker.

From the state of a partition in the image to its open log, whatever the disk has in its place: a
log of another topic of that name, one with holes, or none where there was one. `replica_manager.py`
calls it. Kafka: LogManager (getOrCreateLog, isStrayReplica).
"""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING

from tidelog.replication.lost_logs import LostLogs
from tidelog_storage.directory import named
from tidelog_storage.holes import cut_doubtful_end, find_holes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.cluster.metadata.image import ClusterImage, PartitionImage
    from tidelog.seams import Clock
    from tidelog_storage.config import LogConfig
    from tidelog_storage.log import Log
    from tidelog_storage.manager import LogManager
    from tidelog_storage.types import TopicPartition

__all__ = ["AssignedLogs"]

_log = logging.getLogger(__name__)


class AssignedLogs:
    """Opens, deletes and sets aside the logs of one broker's replicas."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        logs: LogManager,
        suspect: Callable[[TopicPartition], None],
    ) -> None:
        """`suspect` is called with a partition whose log seems damaged."""
        self.lost = LostLogs(logs, node_id)
        self._node_id = node_id
        self._clock = clock
        self._logs = logs
        self._suspect = suspect

    def open(
        self, key: TopicPartition, topic_id: bytes, state: PartitionImage, config: LogConfig
    ) -> Log:
        """Open or create a log. OSError, StorageError or CheckpointError: it stays offline."""
        reason = self.lost.keeps_offline(key, state, config)
        if reason is not None:
            raise reason
        log = self._logs.get(key)
        if log is not None and log.topic_id != topic_id:
            log_dir = self._logs.log_dir(key)
            self._set_aside({log_dir: [key]}, "of another topic of that name")
            log = None
        if log is None:
            return self._logs.create(key, topic_id, config)
        log.config = config
        _tell_lost_start(key, log)
        self._look_for_holes(key, log, state)
        return log

    def _look_for_holes(self, key: TopicPartition, log: Log, state: PartitionImage) -> None:
        """Log what is missing inside a log, and have it scrubbed soon."""
        if self._logs.may_have_gaps(log):
            return
        if log.doubtful_end is not None:
            self._judge_doubtful_end(key, log, state)
        holes = find_holes(log)
        for damage in holes.damages:
            log.set_damages(damage.base_offset, [damage])
            _log.error("%s: damaged %s", key, damage)
        if holes.is_suspect:
            self._suspect(key)

    def _judge_doubtful_end(self, key: TopicPartition, log: Log, state: PartitionImage) -> None:
        """Offsets are missing before the last batch after a crash: it goes only if another replica
        in sync has what was acknowledged. A compacted leader may have left the gap."""
        missing, end = log.doubtful_end, log.log_end_offset
        is_alone = set(state.isr) <= {self._node_id}
        if is_alone:
            log.doubtful_end = None
            what = "it stays, as no other replica is in sync: read on behind them"
        elif cut_doubtful_end(log, self._clock.wall_ms()) is None:
            return
        else:
            what = "it was cut off, and is fetched again from the leader"
        _log.error(
            "%s: offsets from %d on are missing before the last batch, which ends at %d: its own"
            " are wrong, unless a compaction left them out; %s",
            key,
            missing,
            end - 1,
            what,
        )

    def delete(self, key: TopicPartition) -> None:
        """Delete the log of a replica that has left this broker."""
        try:
            self._logs.delete(key, self._clock.wall_ms())
        except OSError as error:
            _log.error("the log of %s could not be deleted: %s", key, error)

    def set_strays_aside(self, image: ClusterImage) -> None:
        """Rename logs that the metadata does not know (LogManager.isStrayKraftReplica).

        A log is deleted only when this broker sees the deletion in the metadata. If the metadata
        does not know a log at the start, its topic was deleted, or the metadata is the wrong one.
        """
        strays: dict[str, list[TopicPartition]] = {}
        kept: set[TopicPartition] = set()
        for directory in self._logs.directories:
            strays[directory.path] = found = []
            for key, topic_id in directory.partitions.items():
                if _is_assigned(image, key, topic_id, self._node_id):
                    kept.add(key)
                else:
                    found.append(key)
        gone = set(chain.from_iterable(strays.values())) - kept
        for directory in self._logs.directories:  # moves of strays between directories
            strays[directory.path] += gone & directory.futures.keys()
        self._set_aside(strays, "no topic of the metadata's has them here")
        self._set_aside(self._replaced(image), "they were replaced while their directory was away")
        self.lost.find(image)

    def _replaced(self, image: ClusterImage) -> dict[str, list[TopicPartition]]:
        """Return replicas by directory that the metadata has in another one, where they are too: a
        directory was away while the replica left this broker and came again."""
        found: dict[str, list[TopicPartition]] = {}
        directories = self._logs.directories
        for directory in directories:
            for key in directory.partitions:
                others = [one for one in directories if key in one.partitions and one != directory]
                state = image.partition(*key) if others else None
                current = None if state is None else state.directory_of(self._node_id)
                if any(other.directory_id == current for other in others):
                    found.setdefault(directory.path, []).append(key)
        return found

    def _set_aside(self, strays: Mapping[str, Sequence[TopicPartition]], reason: str) -> None:
        """Set logs aside, by log directory."""
        kept = []
        for log_dir, keys in strays.items():
            try:
                kept += self._logs.set_aside(keys, log_dir)
            except OSError as error:
                _log.error("%d stray logs could not be renamed: %s", len(keys), error)
        if kept:
            _log.warning(
                "%d stray logs are kept, %s: %s. Nothing uses them: remove them if their records"
                " are not needed",
                len(kept),
                reason,
                named(kept),
            )


def _is_assigned(image: ClusterImage, key: TopicPartition, topic_id: bytes, node_id: int) -> bool:
    """Return whether a log is a replica of this very topic, assigned to this broker."""
    topic = image.topics.get(key.topic)
    state = image.partition(*key)
    return (
        topic is not None
        and topic.topic_id == topic_id
        and state is not None
        and node_id in state.replicas
    )


def _tell_lost_start(key: TopicPartition, log: Log) -> None:
    """Log what is missing before a log's first segment, unless it is tiered and so remote."""
    if log.lost_start is not None and not log.is_tiered:
        first_offset = log.segments.first.base_offset
        _log.warning(
            "%s: offsets %d to %d are missing: the segments below %d are lost, or were deleted"
            " just before a crash",
            key,
            log.lost_start,
            first_offset - 1,
            first_offset,
        )
