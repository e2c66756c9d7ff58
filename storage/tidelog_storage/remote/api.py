"""Remote segments, their legal states, and the interfaces of a remote tier (KIP-405).

`RemoteStorage` is Kafka's RemoteStorageManager, `RemoteLogMetadata` its RemoteLogMetadataManager.
The settings `remote.log.storage.manager.class.name` and
`remote.log.metadata.manager.class.name` name a class of the user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID  # noqa: TC003 - needed to resolve the fields' types

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
    """The remote tier failed. A retry may or may not help."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The remote tier is unavailable for a while: the same call may succeed later."""


class RemoteStorageNotReady(RetriableRemoteStorageError):  # noqa: N818 - the field's own name
    """The metadata of a partition is still being read (Kafka: replica not available)."""


class RemoteResourceNotFound(RemoteStorageError):  # noqa: N818 - the field's own name
    """There is no such segment or index in the remote tier."""


# ---- states --------------------------------------------------------------------------------------


class SegmentState(IntEnum):
    """State of a remote segment; values as in the records of `__remote_log_metadata`.

    - COPY_SEGMENT_STARTED: the store may have a part of it; no reader sees it.
    - COPY_SEGMENT_FINISHED: it can be read whole.
    - DELETE_SEGMENT_STARTED: the store may have a part of it; no new read begins.
    - DELETE_SEGMENT_FINISHED: nothing is left of it, and it is forgotten.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_COPYING, _COPIED, _DELETING, _DELETED = SegmentState
SEGMENT_TRANSITIONS: dict[SegmentState | None, frozenset[SegmentState]] = {
    None: frozenset({_COPYING}),
    _COPYING: frozenset({_COPYING, _COPIED, _DELETING}),
    _COPIED: frozenset({_COPIED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
    _DELETED: frozenset({_DELETED}),
}
"""State -> states that may follow it; also the same one, because every event may come twice."""


class PartitionDeleteState(IntEnum):
    """State of a partition whose topic was deleted."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_MARKED, _STARTED, _FINISHED = PartitionDeleteState
PARTITION_TRANSITIONS: dict[PartitionDeleteState | None, frozenset[PartitionDeleteState]] = {
    None: frozenset({_MARKED}),
    _MARKED: frozenset({_MARKED, _STARTED}),
    _STARTED: frozenset({_STARTED, _FINISHED}),
    _FINISHED: frozenset({_FINISHED}),
}


def is_legal(source: SegmentState | None, target: SegmentState) -> bool:
    """Whether a remote segment in `source` (None: unknown) may become `target`."""
    return target in SEGMENT_TRANSITIONS[source]


# ---- values --------------------------------------------------------------------------------------


class TopicIdPartition(NamedTuple):
    """A partition with its topic's id, which a later topic of the same name does not have."""

    topic_id: UUID
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """Metadata of one remote segment (Kafka: RemoteLogSegmentMetadata).

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
            raise ValueError(
                f"invalid offsets of a segment: {self.start_offset}..{self.end_offset}"
            )
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
    """Files that are kept beside a segment's records."""

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
    """A store of remote segments (Kafka: RemoteStorageManager).

    Methods may block; several worker threads call them at the same time. A second copy of a segment
    id overwrites the first. Deleting a segment that does not exist is no error. A copy is visible
    to reads once `copy_segment` has returned.
    """

    def configure(self, config: Mapping[str, str]) -> None:
        """Take the properties with the prefix `rsm.config.`, without it, plus `node.id` and
        `cluster.id`; ValueError names the key that is wrong."""
        ...

    def copy_segment(self, segment: RemoteSegment, data: SegmentFiles) -> bytes | None:
        """Copy a segment whole; return custom metadata to keep with it, or None.

        RemoteStorageError if that fails.
        """
        ...

    def fetch_segment(self, segment: RemoteSegment, start: int, end: int | None = None) -> BinaryIO:
        """Return the bytes of the `.log` from `start` to `end` inclusive; None: to its end.

        Fewer bytes if the segment ends before. RemoteResourceNotFound, RemoteStorageError.
        """
        ...

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> BinaryIO:
        """Return one index, whole.

        RemoteResourceNotFound, also for a segment without transaction index.
        """
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete a segment with its indexes. RemoteStorageError."""
        ...

    def close(self) -> None:
        """Close connections and files. It may be called twice."""
        ...


class OpenSegment(Protocol):
    """The `.log` of one remote segment, kept open by its reader."""

    def read_now(self, position: int, buffer: memoryview) -> int:
        """Fill a buffer with bytes from `position` on, as far as they are in this machine's memory.

        Returns their number; 0 if there are none, or at the end. It is called on the event loop and
        must not block. RemoteStorageError.
        """
        ...

    def close(self) -> None:
        """Close it. It may be called twice, and may block."""
        ...


class NearRemoteStorage(Protocol):
    """Optional methods of a `RemoteStorage` whose bytes the operating system caches.

    The broker then keeps no second copy in memory. A subclass that overrides `fetch_segment` must
    override `open_segment` too, or the broker uses `fetch_segment`.
    """

    def open_segment(self, segment: RemoteSegment) -> OpenSegment:
        """Open the `.log` of a segment. Blocks. RemoteResourceNotFound, RemoteStorageError."""
        ...


class DescribedRemoteStorage(Protocol):
    """Optional method of a `RemoteStorage` that keeps a manifest of each copy, to check objects by.

    A subclass that overrides `fetch_segment` or `fetch_index` must override `fetch_manifest` too,
    or no manifest is read.
    """

    def fetch_manifest(self, segment: RemoteSegment) -> BinaryIO:
        """The manifest, whole. RemoteResourceNotFound, RemoteStorageError."""
        ...


class RemoteLogMetadata(Protocol):
    """The metadata of remote segments, shared by all brokers (Kafka: RemoteLogMetadataManager).

    It is strongly consistent for one broker: once `add` or `update` has returned, look-ups see the
    change. Every event may come twice. Methods are called on the event loop; look-ups never block,
    and raise RemoteStorageNotReady while a partition is not ready.
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
