"""The events of `__remote_log_metadata`, value for value in Kafka's bytes.

Record keys are null. Kafka: RemoteLogMetadataSerde, RemoteLogMetadataTopicPartitioner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import remote_metadata as table
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

if TYPE_CHECKING:
    from tidelog_protocol.schema import Buffer

__all__ = [
    "MetadataEvent",
    "decode",
    "decode_snapshot_entry",
    "encode",
    "encode_snapshot_entry",
    "metadata_partition",
]

MetadataEvent: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDelete


# ---- values to bytes -----------------------------------------------------------------------------


def encode(event: MetadataEvent) -> bytes:
    """Return the value of the event's record."""
    record: table.RemoteMetadataRecord
    if isinstance(event, RemoteSegment):
        record = table.RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=_segment_id(event), **_facts(event)
        )
    elif isinstance(event, SegmentUpdate):
        record = table.RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=_segment_id(event),
            broker_id=event.broker_id,
            event_timestamp_ms=event.event_timestamp,
            custom_metadata=event.custom_metadata,
            remote_log_segment_state=event.state,
        )
    else:
        record = table.RemotePartitionDeleteMetadataRecord(
            topic_id_partition=_topic_id_partition(event.topic_id_partition),
            broker_id=event.broker_id,
            event_timestamp_ms=event.event_timestamp,
            remote_partition_delete_state=event.state,
        )
    return table.encode_record(record)


def encode_snapshot_entry(segment: RemoteSegment) -> bytes:
    """A segment without its partition (Kafka: RemoteLogSegmentMetadataSnapshot, record type 3)."""
    return table.encode_record(
        table.RemoteLogSegmentMetadataSnapshotRecord(
            segment_id=segment.segment_id.bytes, **_facts(segment)
        )
    )


def _facts(segment: RemoteSegment) -> dict[str, Any]:
    """Return the fields that a segment's record and its entry in a snapshot share."""
    return {
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp,
        "event_timestamp_ms": segment.event_timestamp,
        "segment_leader_epochs": [
            table.SegmentLeaderEpoch(leader_epoch=epoch, offset=offset)
            for epoch, offset in segment.epochs
        ],
        "segment_size_in_bytes": segment.size,
        "custom_metadata": segment.custom_metadata,
        "remote_log_segment_state": segment.state,
        "txn_index_empty": segment.txn_index_empty,
    }


def _topic_id_partition(partition: TopicIdPartition) -> table.TopicIdPartition:
    return table.TopicIdPartition(
        name=partition.topic, id=partition.topic_id.bytes, partition=partition.partition
    )


def _segment_id(event: RemoteSegment | SegmentUpdate) -> table.RemoteLogSegmentId:
    return table.RemoteLogSegmentId(
        topic_id_partition=_topic_id_partition(event.topic_id_partition), id=event.segment_id.bytes
    )


# ---- bytes to values -----------------------------------------------------------------------------


def decode(value: Buffer) -> MetadataEvent:
    """Return the event in a record's value; ProtocolError for any other value."""
    record = table.decode_record(value)
    try:
        if isinstance(record, table.RemoteLogSegmentMetadataRecord):
            identity = record.remote_log_segment_id
            return _segment(record, _partition(identity.topic_id_partition), identity.id)
        if isinstance(record, table.RemoteLogSegmentMetadataUpdateRecord):
            identity = record.remote_log_segment_id
            return SegmentUpdate(
                topic_id_partition=_partition(identity.topic_id_partition),
                segment_id=UUID(bytes=identity.id),
                broker_id=record.broker_id,
                event_timestamp=record.event_timestamp_ms,
                state=SegmentState(record.remote_log_segment_state),
                custom_metadata=record.custom_metadata,
            )
        if isinstance(record, table.RemotePartitionDeleteMetadataRecord):
            return PartitionDelete(
                topic_id_partition=_partition(record.topic_id_partition),
                broker_id=record.broker_id,
                event_timestamp=record.event_timestamp_ms,
                state=PartitionDeleteState(record.remote_partition_delete_state),
            )
    except ValueError as error:  # an unknown state, impossible offsets, no epoch
        raise ProtocolError(f"remote log metadata record: {error}") from error
    raise ProtocolError("remote log metadata record: an entry of a snapshot is no event")


def decode_snapshot_entry(value: Buffer, partition: TopicIdPartition) -> RemoteSegment:
    """The opposite of `encode_snapshot_entry`; ProtocolError."""
    record = table.decode_record(value)
    if not isinstance(record, table.RemoteLogSegmentMetadataSnapshotRecord):
        raise ProtocolError("remote log metadata record: not an entry of a snapshot")
    try:
        return _segment(record, partition, record.segment_id)
    except ValueError as error:
        raise ProtocolError(f"remote log metadata record: {error}") from error


def _segment(
    record: table.RemoteLogSegmentMetadataRecord | table.RemoteLogSegmentMetadataSnapshotRecord,
    partition: TopicIdPartition,
    segment_id: bytes,
) -> RemoteSegment:
    epochs = {entry.leader_epoch: entry.offset for entry in record.segment_leader_epochs}
    return RemoteSegment(
        topic_id_partition=partition,
        segment_id=UUID(bytes=segment_id),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp=record.max_timestamp_ms,
        event_timestamp=record.event_timestamp_ms,
        epochs=tuple(sorted(epochs.items())),
        size=record.segment_size_in_bytes,
        state=SegmentState(record.remote_log_segment_state),
        txn_index_empty=record.txn_index_empty,
        custom_metadata=record.custom_metadata,
    )


def _partition(entry: table.TopicIdPartition) -> TopicIdPartition:
    return TopicIdPartition(UUID(bytes=entry.id), entry.name, entry.partition)


# ---- where an event goes -------------------------------------------------------------------------

_UINT32 = 0xFFFFFFFF


def metadata_partition(topic_id: UUID, partition: int, partition_count: int) -> int:
    """The partition of `__remote_log_metadata` that has the events of a user partition."""
    # Java's Objects.hash of the id's lower half, its upper half and the partition.
    hashed = 1
    for number in (
        _hash_of_long(topic_id.int & 0xFFFFFFFFFFFFFFFF),
        _hash_of_long(topic_id.int >> 64),
        partition,
    ):
        hashed = (31 * hashed + number) & _UINT32
    return (_murmur2(hashed) & 0x7FFFFFFF) % partition_count


def _hash_of_long(number: int) -> int:
    return (number >> 32) ^ (number & _UINT32)


def _murmur2(number: int) -> int:
    """Murmur2 of the big-endian bytes of `number` (uint32), with the seed of record keys."""
    multiplier = 0x5BD1E995
    mixed = int.from_bytes(number.to_bytes(4, "big"), "little") * multiplier & _UINT32
    mixed = (mixed ^ mixed >> 24) * multiplier & _UINT32
    hashed = (0x9747B28C ^ 4) * multiplier & _UINT32 ^ mixed
    hashed = (hashed ^ hashed >> 13) * multiplier & _UINT32
    return hashed ^ hashed >> 15
