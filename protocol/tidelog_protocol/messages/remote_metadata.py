"""Values of `__remote_log_metadata`: the events of remote segments (KIP-405).

A value is an envelope of three unsigned varints (frame version 1, the record's api key, its version
0) and the record itself, which fills the rest: `encode_record`, `decode_record`. Keys are null.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import read_uvarint, write_uvarint
from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog_protocol.schema import Buffer

__all__ = [
    "RECORDS",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataSnapshotRecord",
    "RemoteLogSegmentMetadataUpdateRecord",
    "RemoteMetadataRecord",
    "RemotePartitionDeleteMetadataRecord",
    "SegmentLeaderEpoch",
    "TopicIdPartition",
    "decode_record",
    "encode_record",
]

FRAME_VERSION = 1
VERSION = 0


class TopicIdPartition(Struct):
    """A user partition."""

    name: str = string()
    id: bytes = uuid()
    partition: int = int32()


class RemoteLogSegmentId(Struct):
    """The unique id of a remote segment."""

    topic_id_partition: TopicIdPartition = struct(TopicIdPartition)
    id: bytes = uuid()


class SegmentLeaderEpoch(Struct):
    """A leader epoch and its first offset inside the segment."""

    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataRecord(Message, api_key=0, versions="0", flexible="0+"):
    """A segment is being copied; times in ms since 1970, end offset inclusive.

    Tag 0: nothing was aborted in it (KIP-1058)
    """

    remote_log_segment_id: RemoteLogSegmentId = struct(RemoteLogSegmentId)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpoch] = array(SegmentLeaderEpoch)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, api_key=1, versions="0", flexible="0+"):
    """A segment changes its state."""

    remote_log_segment_id: RemoteLogSegmentId = struct(RemoteLogSegmentId)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecord(Message, api_key=2, versions="0", flexible="0+"):
    """A partition of a deleted topic changes its state."""

    topic_id_partition: TopicIdPartition = struct(TopicIdPartition)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


class RemoteLogSegmentMetadataSnapshotRecord(Message, api_key=3, versions="0", flexible="0+"):
    """A segment in the snapshot file of a partition; the file names the partition."""

    segment_id: bytes = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpoch] = array(SegmentLeaderEpoch)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


RemoteMetadataRecord: TypeAlias = (
    RemoteLogSegmentMetadataRecord
    | RemoteLogSegmentMetadataUpdateRecord
    | RemotePartitionDeleteMetadataRecord
    | RemoteLogSegmentMetadataSnapshotRecord
)

RECORDS: Mapping[int, type[RemoteMetadataRecord]] = MappingProxyType(
    {
        0: RemoteLogSegmentMetadataRecord,
        1: RemoteLogSegmentMetadataUpdateRecord,
        2: RemotePartitionDeleteMetadataRecord,
        3: RemoteLogSegmentMetadataSnapshotRecord,
    }
)
"""Tables by api key."""


def encode_record(record: RemoteMetadataRecord) -> bytes:
    """Write a record in its envelope."""
    table = type(record)
    assert table.API_KEY is not None
    head = write_uvarint(FRAME_VERSION) + write_uvarint(table.API_KEY) + write_uvarint(VERSION)
    return head + codec(table, VERSION).encode(record)


def decode_record(value: Buffer) -> RemoteMetadataRecord:
    """Read an enveloped record; ProtocolError if it is unknown or does not fill `value`."""
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as error:
        raise ProtocolError("remote log metadata record: truncated") from error
    if frame_version != FRAME_VERSION:
        raise ProtocolError(
            f"remote log metadata record with unknown frame version {frame_version}"
        )
    table = RECORDS.get(api_key)
    if table is None:
        raise ProtocolError(f"remote log metadata record with unknown api key {api_key}")
    return codec(table, version).decode_whole(value, position)
