"""Records of `__share_group_state` (KIP-932): whole states and changes of them. A null value of a
snapshot's key removes the state."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "TABLES",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
]


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    """Key of a whole state."""

    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)  # KIP-1226
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, api_key=1, versions="0"):
    """Key of a change."""

    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """A change of a share partition's state since its last snapshot."""

    class StateBatch(Struct):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_state: int = int8()
        delivery_count: int = int16()

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()  # -1: unchanged
    delivery_complete_count: int = int32(default=-1, tag=0)  # KIP-1226
    state_batches: list[StateBatch] = array(StateBatch)


TABLES: Mapping[int, tuple[type[Message], type[Message]]] = MappingProxyType(
    {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)}
)
"""Key and value by record type."""
