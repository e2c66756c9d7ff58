"""The events of `__remote_log_metadata`, value for value in Kafka's bytes.

Record keys are null. Kafka: RemoteLogMetadataSerde, RemoteLogMetadataTopicPartitioner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tidelog_storage.remote.api import PartitionDelete, RemoteSegment, SegmentUpdate

if TYPE_CHECKING:
    from tidelog_storage.remote.api import TopicIdPartition
    from tidelog_storage.seams import Buffer

__all__ = [
    "MetadataEvent",
    "decode",
    "decode_snapshot_entry",
    "encode",
    "encode_snapshot_entry",
    "metadata_partition",
]

MetadataEvent: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDelete


def encode(event: MetadataEvent) -> bytes:
    """The value of the event's record."""
    raise NotImplementedError


def decode(value: Buffer) -> MetadataEvent:
    """The event in a record's value; ProtocolError for anything that is none."""
    raise NotImplementedError


def encode_snapshot_entry(segment: RemoteSegment) -> bytes:
    """A segment without its partition (Kafka: RemoteLogSegmentMetadataSnapshot, record type 3)."""
    raise NotImplementedError


def decode_snapshot_entry(value: Buffer, partition: TopicIdPartition) -> RemoteSegment:
    """The opposite of `encode_snapshot_entry`; ProtocolError."""
    raise NotImplementedError


def metadata_partition(topic_id: bytes, partition: int, partition_count: int) -> int:
    """The partition of `__remote_log_metadata` that has the events of a user partition."""
    raise NotImplementedError
