"""The partitions of an internal topic that this broker leads, each loaded into a shard.

It follows elections: a partition is loaded when this broker becomes its leader, and unloaded when
it no longer is. The loop runs between the chunks of a load. Both coordinators use it and own the
content of shards; it does not know the records.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.replication.internal_topics import InternalTopic, LoadedRecord
    from tidelog.seams import TimerHandle, Timers
    from tidelog_protocol.records import BatchHeader, Record

__all__ = ["WRITE_ERRORS", "LedPartitions", "Owner", "Shard"]

logger = logging.getLogger(__name__)

RELOAD_S = 1.0  # after a load that failed; twice as long after each further one
RELOAD_S_MAX = 600.0
NAMED_MAX = 10  # unreadable records of one load that the log names

WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The client's error for a failed write of a coordinator."""


class Shard(Protocol):
    """A coordinator's memory of one partition. It serves once `is_loading` is False."""

    index: int
    leader_epoch: int
    is_loading: bool


S = TypeVar("S", bound=Shard)


class Owner(Protocol[S]):
    """The coordinator."""

    def new_shard(self, index: int, leader_epoch: int) -> S:
        """Create an empty shard, with `is_loading` set."""
        ...

    def replay(self, shard: S, header: BatchHeader, record: Record) -> None:
        """Apply a record, or pass over one of an unknown type. ProtocolError for an unreadable one,
        which changes nothing."""
        ...

    def loaded(self, shard: S) -> None:
        """Start to serve: all records are loaded."""
        ...

    def resigned(self, shard: S) -> None:
        """Unload it: clients get NOT_COORDINATOR."""
        ...


class LedPartitions(Generic[S]):
    """Shards by partition. Invariant: a shard is here while this broker leads its partition."""

    def __init__(self, topic: InternalTopic, node_id: int, timers: Timers, owner: Owner[S]) -> None:
        """`timers` is the time of sessions."""
        self.topic = topic
        self.shards: dict[int, S] = {}
        self.partition_count = 0  # 0: the topic does not exist
        self._node_id = node_id
        self._timers = timers
        self._owner = owner
        self._loads: dict[int, Iterator[list[LoadedRecord]]] = {}
        self._load_timer: TimerHandle | None = None
        self._delays_s: dict[int, float] = {}  # before partitions that failed are loaded again
        self._passed_over: dict[int, int] = {}  # unreadable records, by partition that is loading
        self._is_closed = False
        self._image: ClusterImage | None = None  # the latest image followed

    def on_image(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Follow the cluster."""
        self._image = image
        if any(topic.name == self.topic.name for topic in delta.deleted_topics):
            self._resign_all()
            self.partition_count = 0
        change = delta.topics.get(self.topic.name)
        if change is None:
            return
        self.partition_count = len(change.new.partitions)
        for state in change.partitions:
            if state.leader == self._node_id:
                self._elect(state.partition, state.leader_epoch)
            elif state.partition in self.shards:
                self._resign(state.partition)

    def close(self) -> None:
        """Unload all shards, as if another broker had taken over."""
        self._is_closed = True
        self._resign_all()

    @property
    def is_closed(self) -> bool:
        """Return whether the coordinator has stopped."""
        return self._is_closed

    def at(self, index: int) -> S | ErrorCode:
        """Return the shard of a partition, or the error if it is not served here now."""
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self.shards.get(index)
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.is_loading else shard

    def holds(self, shard: S) -> bool:
        """Return whether the shard is current: False after its partition's leadership has ended."""
        return self.shards.get(shard.index) is shard

    def active(self) -> list[S]:
        """Return the loaded shards."""
        return [shard for shard in self.shards.values() if not shard.is_loading]

    @property
    def is_loading(self) -> bool:
        """Return whether a partition is still loading."""
        return any(shard.is_loading for shard in self.shards.values())

    def _elect(self, index: int, leader_epoch: int) -> None:
        shard = self.shards.get(index)
        if shard is not None and leader_epoch - shard.leader_epoch <= 1:
            shard.leader_epoch = leader_epoch  # still the leader: the memory matches the log
            return
        if shard is not None:
            self._resign(index)  # another broker may have led between two images
        shard = self.shards[index] = self._owner.new_shard(index, leader_epoch)
        try:
            if self.topic.is_vacant(index):
                self._owner.loaded(shard)
                return
            self._loads[index] = self.topic.load(index)
        except StorageError as error:
            self._load_failed(shard, error)
            return
        if self._load_timer is None:
            self._load_timer = self._timers.call_at(self._timers.time(), self._load_some)

    def _load_some(self) -> None:
        """Load one chunk of one partition, then let the loop run."""
        self._load_timer = None
        if not self._loads:
            return
        index, chunks = next(iter(self._loads.items()))
        shard = self.shards[index]
        try:
            chunk = next(chunks, None)
            if chunk is None:
                del self._loads[index]
                self._delays_s.pop(index, None)
                self._name_passed_over(index)
                self._owner.loaded(shard)
            else:
                for header, record in chunk:
                    self._replay(shard, header, record)
        except (StorageError, ProtocolError, OSError) as error:
            self._load_failed(shard, error)
        if self._loads and self._load_timer is None:
            self._load_timer = self._timers.call_at(self._timers.time(), self._load_some)

    def _replay(self, shard: S, header: BatchHeader, record: Record) -> None:
        """Apply a record of a partition, or name it and pass over it if it is unreadable.

        Clients with the id of Kafka's admin client may write to internal topics, and one such
        record must not end the service of all groups of its partition. The batch is whole: its
        checksum was compared. Kafka passes over unknown types alone.
        """
        try:
            self._owner.replay(shard, header, record)
        except ProtocolError as error:
            index = shard.index
            count = self._passed_over[index] = self._passed_over.get(index, 0) + 1
            if count <= NAMED_MAX:
                name, at = f"{self.topic.name}-{index}", record.offset
                logger.error(
                    "%s: passed over the unreadable record at offset %d: %s", name, at, error
                )

    def _name_passed_over(self, index: int) -> None:
        count = self._passed_over.pop(index, 0)
        if count > NAMED_MAX:
            logger.error("%s-%d: passed over %d unreadable records", self.topic.name, index, count)

    def _load_failed(self, shard: S, error: Exception) -> None:
        """Drop a shard, have its log scrubbed, and load it again later.

        Its clients get NOT_COORDINATOR meanwhile; in Kafka they do until a new election. A scrub
        may repair the log from another replica.
        """
        index = shard.index
        self._loads.pop(index, None)
        self._passed_over.pop(index, None)
        self.shards.pop(index, None)
        delay_s = self._delays_s.get(index, RELOAD_S)
        self._delays_s[index] = min(2 * delay_s, RELOAD_S_MAX)
        name = f"{self.topic.name}-{index}"
        logger.error("Loading %s failed, next try in %.0f s: %s", name, delay_s, error)
        self.topic.suspect(index)
        due = self._timers.time() + delay_s
        self._timers.call_at(due, self._load_again, index, shard.leader_epoch)

    def _load_again(self, index: int, leader_epoch: int) -> None:
        """Try again, if this broker still leads in that epoch."""
        state = None if self._image is None else self._image.partition(self.topic.name, index)
        if self._is_closed or index in self.shards or state is None:
            return
        if (state.leader, state.leader_epoch) == (self._node_id, leader_epoch):
            self._elect(index, leader_epoch)

    def _resign_all(self) -> None:
        for index in list(self.shards):
            self._resign(index)

    def _resign(self, index: int) -> None:
        shard = self.shards.pop(index)
        self._loads.pop(index, None)
        self._owner.resigned(shard)
