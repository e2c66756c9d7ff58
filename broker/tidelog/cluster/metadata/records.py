"""Batches of the metadata log: the versions of its records, its first ones, the control record."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.features import initial_levels
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.records import ControlType, Record, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog_protocol.schema import Message

__all__ = [
    "RECORD_VERSIONS",
    "bootstrap_records",
    "decode_batch",
    "leader_change",
]

# Versions in which records are written at METADATA_VERSION; 0 for those not named.
RECORD_VERSIONS: dict[type, int] = {
    tables.RegisterBrokerRecord: 4,
    tables.PartitionRecord: 2,
    tables.PartitionChangeRecord: 2,
    tables.BrokerRegistrationChangeRecord: 3,
}

_CONTROL_KEY = struct.Struct(">hh")
_LEADER_CHANGE = struct.Struct(">hi")  # version, leader; see LeaderChangeMessage v0


def leader_change(leader_id: int, voters: Sequence[int], now_ms: int) -> Record:
    """Build the first record of an epoch: the leader, and the voters, which may all have
    granted."""
    key = _CONTROL_KEY.pack(0, ControlType.LEADER_CHANGE)
    entries = b"".join([voter.to_bytes(4, "big") + b"\0" for voter in voters])
    listed = bytes([len(voters) + 1]) + entries
    value = _LEADER_CHANGE.pack(0, leader_id) + listed + listed + b"\0"
    return Record(0, now_ms, key, value)


def bootstrap_records() -> list[Message]:
    """Return the first records of a new cluster (KIP-778, KIP-868)."""
    return [
        tables.BeginTransactionRecord(name="Bootstrap records"),
        *[
            tables.FeatureLevelRecord(name=name, feature_level=level)
            for name, level in initial_levels().items()
        ],
        tables.EndTransactionRecord(),
    ]


def decode_batch(batch: memoryview) -> Iterator[Message]:
    """Decode the metadata records of one batch; ProtocolError for unknown ones."""
    for record in iter_records(batch):
        if record.value is None:
            raise ProtocolError("metadata record has no value")
        yield tables.decode_record(record.value)[0]
