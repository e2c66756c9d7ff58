"""Records of `__share_group_state`, from and to Kafka's bytes (KIP-932).

A snapshot holds a whole state, an update what has changed since; None deletes the state. A key is
an int16 record type and its body, a value an int16 version and its body.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.share.values import SharePartition, StateBatch
from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ShareRecord", "Snapshot", "Update", "decode", "encode"]

_VERSION = Struct(">h")
_SNAPSHOT, _UPDATE = 0, 1  # record types


class Snapshot(NamedTuple):
    """The whole state of a share partition. Kafka's ShareGroupOffset."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    """A change of a state; start offset -1: unchanged."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class ShareRecord(NamedTuple):
    """A change of one share partition's state; None deletes it."""

    key: SharePartition
    value: Snapshot | Update | None


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the bytes of a record."""
    key, value = record
    fields = key._asdict()
    if isinstance(value, Update):
        key_bytes = codec(ShareUpdateKey, 0).encode(ShareUpdateKey(**fields))
        return _VERSION.pack(_UPDATE) + key_bytes, _VERSION.pack(0) + _update_bytes(value)
    key_bytes = _VERSION.pack(_SNAPSHOT) + codec(ShareSnapshotKey, 0).encode(
        ShareSnapshotKey(**fields)
    )
    return key_bytes, None if value is None else _VERSION.pack(0) + _snapshot_bytes(value)


def _update_bytes(value: Update) -> bytes:
    body = ShareUpdateValue(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=[ShareUpdateValue.StateBatch(**each._asdict()) for each in value.batches],
    )
    return codec(ShareUpdateValue, 0).encode(body)


def _snapshot_bytes(value: Snapshot) -> bytes:
    body = ShareSnapshotValue(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        create_timestamp=value.create_ms,
        write_timestamp=value.write_ms,
        state_batches=[ShareSnapshotValue.StateBatch(**each._asdict()) for each in value.batches],
    )
    return codec(ShareSnapshotValue, 0).encode(body)


def decode(key: bytes | None, value: bytes | None) -> ShareRecord | None:
    """Return a record, None for one of another type; ProtocolError if it is corrupt."""
    if key is None or len(key) < _VERSION.size:
        raise ProtocolError("a record of __share_group_state without a key")
    record_type = _VERSION.unpack_from(key)[0]
    if record_type not in (_SNAPSHOT, _UPDATE):
        return None
    found = codec(ShareSnapshotKey, 0).decode(key, _VERSION.size)  # those of updates are the same
    partition = SharePartition(found.group_id, found.topic_id, found.partition)
    if value is None:
        return ShareRecord(partition, None) if record_type == _SNAPSHOT else None
    version = _VERSION.unpack_from(value)[0] if len(value) >= _VERSION.size else -1
    if version != 0:
        raise ProtocolError(f"version {version} of a value of __share_group_state")
    return ShareRecord(partition, _snapshot(value) if record_type == _SNAPSHOT else _update(value))


def _snapshot(value: bytes) -> Snapshot:
    body = codec(ShareSnapshotValue, 0).decode(value, _VERSION.size)
    return Snapshot(
        body.snapshot_epoch,
        body.state_epoch,
        body.leader_epoch,
        body.start_offset,
        body.delivery_complete_count,
        body.create_timestamp,
        body.write_timestamp,
        _batches(body.state_batches),
    )


def _update(value: bytes) -> Update:
    body = codec(ShareUpdateValue, 0).decode(value, _VERSION.size)
    return Update(
        body.snapshot_epoch,
        body.leader_epoch,
        body.start_offset,
        body.delivery_complete_count,
        _batches(body.state_batches),
    )


def _batches(
    found: Sequence[ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch],
) -> tuple[StateBatch, ...]:
    """Leave out a batch that ends before it begins: Kafka takes it from a client, it says nothing,
    and merging it never ends."""
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in found
        if each.first_offset <= each.last_offset
    )
