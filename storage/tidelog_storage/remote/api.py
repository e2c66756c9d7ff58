"""Remote segments, their legal states, and the interfaces that a remote tier is plugged in by.

KIP-405. `RemoteStorage` is Kafka's RemoteStorageManager, `RemoteLogMetadata` its
RemoteLogMetadataManager; users bring their own by
`remote.log.storage.manager.class.name` and `remote.log.metadata.manager.class.name`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID  # noqa: TC003 - who reads the fields' types finds it

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from typing import BinaryIO

__all__ = [
    "PARTITION_TRANSITIONS",
    "SEGMENT_TRANSITIONS",
    "DescribedRemoteStorage",
    "IndexKind",
    "NearRemoteStorage",
    "OpenSegment",
    "PartitionDelete",
    "PartitionDeleteState",
    "RemoteLogMetadata",
    "RemoteResourceNotFound",
    "RemoteSegment",
    "RemoteStorage",
    "RemoteStorageError",
    "RemoteStorageNotReady",
    "RetriableRemoteStorageError",
    "SegmentFiles",
    "SegmentState",
    "SegmentUpdate",
    "TopicIdPartition",
    "is_legal",
]


# ---- errors --------------------------------------------------------------------------------------


class RemoteStorageError(Exception):
    """The remote tier failed. Whether trying again helps is not known."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The remote tier is away for a while: the same call may succeed later."""


class RemoteStorageNotReady(RetriableRemoteStorageError):  # noqa: N818 - the field's own name
    """The metadata of a partition is still being read (Kafka: replica not available)."""


class RemoteResourceNotFound(RemoteStorageError):  # noqa: N818 - the field's own name
    """There is no such segment or index in the remote tier."""


# ---- states --------------------------------------------------------------------------------------


class SegmentState(IntEnum):
    """Of a remote segment; values as in the records of `__remote_log_metadata`.

    - COPY_SEGMENT_STARTED: bytes may be there, in part; no reader sees it.
    - COPY_SEGMENT_FINISHED: all of it can be read.
    - DELETE_SEGMENT_STARTED: no reader is sent to it any more; bytes may be there, in part.
    - DELETE_SEGMENT_FINISHED: nothing is left of it; forgotten.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


SEGMENT_TRANSITIONS: dict[SegmentState | None, frozenset[SegmentState]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {
            SegmentState.COPY_SEGMENT_STARTED,
            SegmentState.COPY_SEGMENT_FINISHED,
            SegmentState.DELETE_SEGMENT_STARTED,
        }
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset(
        {SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED}
    ),
    SegmentState.DELETE_SEGMENT_FINISHED: frozenset({SegmentState.DELETE_SEGMENT_FINISHED}),
}
"""State -> states that may follow it; the same one again, as every event may come twice."""


class PartitionDeleteState(IntEnum):
    """Of a partition whose topic was deleted."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


PARTITION_TRANSITIONS: dict[PartitionDeleteState | None, frozenset[PartitionDeleteState]] = {
    None: frozenset({PartitionDeleteState.DELETE_PARTITION_MARKED}),
    PartitionDeleteState.DELETE_PARTITION_MARKED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_MARKED,
            PartitionDeleteState.DELETE_PARTITION_STARTED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_STARTED: frozenset(
        {
            PartitionDeleteState.DELETE_PARTITION_STARTED,
            PartitionDeleteState.DELETE_PARTITION_FINISHED,
        }
    ),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: frozenset(
        {PartitionDeleteState.DELETE_PARTITION_FINISHED}
    ),
}


def is_legal(source: SegmentState | None, target: SegmentState) -> bool:
    """Whether a remote segment in `source` (None: unknown) may become `target`."""
    return target in SEGMENT_TRANSITIONS[source]


# ---- values --------------------------------------------------------------------------------------


class TopicIdPartition(NamedTuple):
    """A partition that keeps its identity when a topic of the same name comes after it."""

    topic_id: UUID
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """What is known of one remote segment (Kafka: RemoteLogSegmentMetadata).

    `end_offset` is inclusive. `epochs` are (leader epoch, first offset of it inside the segment),
    ascending and not empty. Times are in ms since 1970, `size` is of the `.log` in bytes.
    """

    topic_id_partition: TopicIdPartition
    segment_id: UUID  # a new one for every try of a copy
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp: int
    event_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    size: int
    state: SegmentState
    txn_index_empty: bool = False
    custom_metadata: bytes | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start_offset <= self.end_offset:
            raise ValueError(f"offsets of a segment: {self.start_offset}..{self.end_offset}")
        if not self.epochs:
            raise ValueError("a segment has at least one leader epoch")

    @property
    def topic_id(self) -> UUID:
        """Its topic's id."""
        return self.topic_id_partition.topic_id

    @property
    def topic(self) -> str:
        """Its name."""
        return self.topic_id_partition.topic

    @property
    def partition(self) -> int:
        """Its index in the topic."""
        return self.topic_id_partition.partition

    def updated(self, update: SegmentUpdate) -> RemoteSegment:
        """The segment after an update, whether that is legal or not."""
        custom_metadata = update.custom_metadata
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp=update.event_timestamp,
            state=update.state,
            custom_metadata=self.custom_metadata if custom_metadata is None else custom_metadata,
        )


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """A change of a segment's state (Kafka: RemoteLogSegmentMetadataUpdate)."""

    topic_id_partition: TopicIdPartition
    segment_id: UUID
    broker_id: int
    event_timestamp: int
    state: SegmentState
    custom_metadata: bytes | None = None


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """A change of a deleted partition's state (Kafka: RemotePartitionDeleteMetadata)."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    event_timestamp: int
    state: PartitionDeleteState


class IndexKind(Enum):
    """What is kept beside a segment's records."""

    OFFSET = "OFFSET"
    TIMESTAMP = "TIMESTAMP"
    PRODUCER_SNAPSHOT = "PRODUCER_SNAPSHOT"
    TRANSACTION = "TRANSACTION"
    LEADER_EPOCH = "LEADER_EPOCH"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The local files of a sealed segment (Kafka: LogSegmentData): paths, and the checkpoint."""

    log: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str
    leader_epoch_checkpoint: bytes


# ---- interfaces ----------------------------------------------------------------------------------


class RemoteStorage(Protocol):
    """Bytes to and from a remote store (Kafka: RemoteStorageManager).

    Calls block and come from several worker threads at once. Copying the same segment id again
    overwrites, deleting what is not there is no error; a copy is visible to reads of its id once
    it returned.
    """

    def configure(self, config: Mapping[str, str]) -> None:
        """Take the properties with the prefix `rsm.config.`, without it, plus `node.id` and
        `cluster.id`; ValueError names the key that is wrong."""
        ...

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> bytes | None:
        """Copy all of a segment; custom metadata to be kept with it, if any. RemoteStorageError."""
        ...

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """The bytes of the `.log` from `start` to `end` inclusive (None: to its end); it may end
        early at the end of the segment. RemoteResourceNotFound, RemoteStorageError."""
        ...

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """One index, whole. RemoteResourceNotFound also for a transaction index that there is
        not."""
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all of a segment. RemoteStorageError."""
        ...

    def close(self) -> None:
        """Give up connections and files; closing twice is allowed."""
        ...


class OpenSegment(Protocol):
    """The `.log` of one remote segment, kept open by its reader."""

    def read_now(self, position: int, buffer: memoryview) -> int:
        """Fill a buffer with the bytes from `position` on that are in this machine's memory.

        How many; 0 for none of them, at the end too. Waits for nothing, so it is called on the
        loop. RemoteStorageError.
        """
        ...

    def close(self) -> None:
        """Let go of it; closing twice is allowed. May block."""
        ...


class NearRemoteStorage(Protocol):
    """What a `RemoteStorage` may offer besides, if the operating system keeps what it has read: a
    cache of the broker's own would be a second one of the same bytes. A class that has its own
    `fetch_segment` is asked in that way, unless it has its own `open_segment` too."""

    def open_segment(self, segment: RemoteSegment) -> OpenSegment:
        """Open the `.log` of a segment. Blocks. RemoteResourceNotFound, RemoteStorageError."""
        ...


class DescribedRemoteStorage(Protocol):
    """What a `RemoteStorage` may offer besides, if it keeps a manifest of what it has copied
    (`layout.py`), to check its objects by. A class that has its own `fetch_segment` or
    `fetch_index` is not asked, unless it has its own `fetch_manifest` too."""

    def fetch_manifest(self, segment: RemoteSegment) -> BinaryIO:
        """The manifest, whole. RemoteResourceNotFound, RemoteStorageError."""
        ...


class RemoteLogMetadata(Protocol):
    """What all brokers know of remote segments (Kafka: RemoteLogMetadataManager).

    Strongly consistent for one broker: after `add` or `update` returned, its look-ups see it.
    Every event may come twice. Called on the broker's loop; look-ups never block. Look-ups raise
    RemoteStorageNotReady while a partition is not ready.
    """

    def configure(self, config: Mapping[str, str]) -> None:
        """Take the properties with the prefix `rlmm.config.`, without it, plus `node.id`,
        `cluster.id` and `log.dir`."""
        ...

    async def add(self, segment: RemoteSegment) -> None:
        """Publish a new segment; ValueError unless it is COPY_SEGMENT_STARTED."""
        ...

    async def update(self, update: SegmentUpdate) -> None:
        """Publish a new state; ValueError for COPY_SEGMENT_STARTED, RemoteResourceNotFound for a
        segment that is not known."""
        ...

    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        """The finished segment that holds this offset of this epoch."""
        ...

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest offset of this epoch that was ever copied."""
        ...

    def segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterable[RemoteSegment]:
        """All that are not forgotten, of one epoch or of all, by start offset."""
        ...

    def size(self, partition: TopicIdPartition, epoch: int) -> int:
        """Bytes of the segments that have this epoch, in whatever state (KIP-852)."""
        ...

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteSegment | None:
        """The first finished segment at or behind this offset of this epoch whose transaction index
        is not empty (KIP-1058)."""
        ...

    async def put_partition_delete(self, event: PartitionDelete) -> None:
        """Publish the state of a deleted partition."""
        ...

    def on_leadership_changes(
        self, leaders: AbstractSet[TopicIdPartition], followers: AbstractSet[TopicIdPartition]
    ) -> None:
        """This broker now leads, or follows, these."""
        ...

    def on_stop_partitions(self, partitions: AbstractSet[TopicIdPartition]) -> None:
        """These are no longer on this broker."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether look-ups of the partition see all that was published before it came here."""
        ...

    def close(self) -> None:
        """Publish and read no more; closing twice is allowed."""
        ...
