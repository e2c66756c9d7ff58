"""Records of `__consumer_offsets` in Kafka's bytes: committed offsets and classic groups.

A key is an int16 record type and its body, a value an int16 version and its body. Those of other
groups are in `modern/records.py`, which is imported with the first one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.classic.records import GROUP_METADATA_TYPE, group_tombstone
from tidelog.coordinators.groups.now import NO_TIMESTAMP
from tidelog.coordinators.groups.offsets import OffsetAndMetadata, OffsetChange
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from tidelog.coordinators.groups.kinds import AnyGroup
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.replication.internal_topics import KeyValue

OFFSET_COMMIT_TYPES = frozenset({0, 1})  # the same body; 0 is from before Kafka 0.9
OFFSET_WITH_EXPIRY_VERSION = 1
OFFSET_VERSION = 4  # with the topic's id

_VERSION = Struct(">h")
_VERSIONS_MAX = 4


class GroupChange(NamedTuple):
    """A record about a group; None removes it."""

    group_id: str
    value: GroupMetadataValue | None


def offset_record(change: OffsetChange) -> tuple[bytes, bytes | None]:
    """Return key and value of a committed offset, or of its tombstone."""
    key = OffsetCommitKey(group=change.group_id, topic=change.topic, partition=change.partition)
    key_bytes = _VERSION.pack(1) + codec(OffsetCommitKey, 0).encode(key)
    offset = change.offset
    if offset is None:
        return key_bytes, None
    version = OFFSET_VERSION
    if offset.expire_timestamp != NO_TIMESTAMP:
        version = OFFSET_WITH_EXPIRY_VERSION
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp,
        expire_timestamp=offset.expire_timestamp,
        topic_id=offset.topic_id,
    )
    return key_bytes, _VERSION.pack(version) + codec(OffsetCommitValue, version).encode(value)


def tombstones(group: AnyGroup) -> list[KeyValue]:
    """Return the records that remove a group of any kind."""
    if group.type == "classic":
        return [group_tombstone(group.group_id)]
    from tidelog.coordinators.groups.modern.records import encode  # noqa: PLC0415 - late

    return [encode(record) for record in group.tombstones()]


def decode(key: bytes | None, value: bytes | None) -> OffsetChange | GroupChange | Record | None:
    """Decode a record; None for a type of another group protocol. ProtocolError if corrupt."""
    if key is None or len(key) < _VERSION.size:
        raise ProtocolError("a record of __consumer_offsets without a type")
    (record_type,) = _VERSION.unpack_from(key)
    if record_type in OFFSET_COMMIT_TYPES:
        name = codec(OffsetCommitKey, 0).decode(key, _VERSION.size)
        return OffsetChange(name.group, name.topic, name.partition, _decode_offset(value))
    if record_type == GROUP_METADATA_TYPE:
        group_id = codec(GroupMetadataKey, 0).decode(key, _VERSION.size).group
        if value is None:
            return GroupChange(group_id, None)
        version = _value_version(value)
        return GroupChange(
            group_id, codec(GroupMetadataValue, version).decode(value, _VERSION.size)
        )
    from tidelog.coordinators.groups.modern import records  # noqa: PLC0415 - at the first one

    return records.decode(key, value)


def _decode_offset(value: bytes | None) -> OffsetAndMetadata | None:
    if value is None:
        return None
    offset = codec(OffsetCommitValue, _value_version(value)).decode(value, _VERSION.size)
    return OffsetAndMetadata(
        offset.offset,
        offset.leader_epoch,
        offset.metadata,
        offset.commit_timestamp,
        offset.expire_timestamp,
        offset.topic_id,
    )


def _value_version(value: bytes) -> int:
    if len(value) < _VERSION.size:
        raise ProtocolError("a record of __consumer_offsets without a version")
    version = int(_VERSION.unpack_from(value)[0])
    if not 0 <= version <= _VERSIONS_MAX:
        raise ProtocolError(f"a record of __consumer_offsets with value version {version}")
    return version
