"""The name of the metadata log, and the settings of one copy of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cluster.metadata.image import CLUSTER_METADATA_TOPIC
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.voters import Voter
    from tidelog.seams import Clock, Executor
    from tidelog_storage.seams import FileSystem

__all__ = ["BOOTSTRAP_CHECKPOINT", "METADATA_PARTITION", "METADATA_TOPIC_ID", "MetadataLogSettings"]

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"  # what a new cluster begins with (KIP-778)
METADATA_TOPIC_ID = bytes(15) + b"\x01"

SEGMENT_BYTES = 1 << 30
SNAPSHOT_BYTES = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
SNAPSHOT_INTERVAL_S = 3600.0  # metadata.log.max.snapshot.interval.ms


class MetadataLogSettings(NamedTuple):
    """What a node's copy of the metadata log is built with."""

    files: FileSystem
    executor: Executor
    clock: Clock
    directory: str
    """The log directory that holds the `__cluster_metadata-0` folder."""
    node_id: int
    cluster_id: str
    voters: tuple[int, ...]
    """The nodes that vote and whose copies count, by id, unless the log names them; empty if they
    may not vote before it does."""
    own: Voter | None = None
    """This node as a voter that the log may name (KIP-853); None: it has no other nodes."""
    listener: str = ""
    """The listener on which this node reaches brokers, if it does."""
    min_insync_replicas: int = 1
    """That of all brokers of a new cluster."""
    segment_bytes: int = SEGMENT_BYTES
    snapshot_bytes: int = SNAPSHOT_BYTES
    """How much the log grows before the next snapshot (KIP-630)."""
    snapshot_interval_s: float = SNAPSHOT_INTERVAL_S
    """The first commit this long after a snapshot takes the next one; 0: it does not."""
    on_failure: Callable[[BaseException], None] | None = None
    """Called once, when the state of the disk is unknown."""
    report: Callable[[str], None] | None = None

    @property
    def folder(self) -> str:
        """The folder of the log and of the files beside it."""
        return f"{self.directory}/{METADATA_PARTITION}"

    @property
    def is_only_voter(self) -> bool:
        """Whether this node alone is the quorum: all that was ever committed is in its log."""
        return self.voters == (self.node_id,)
