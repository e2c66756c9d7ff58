"""Batches of the metadata log: the versions of its records, its first ones, the control record."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from tidelog.cluster.metadata.features import (
    DIRECTORIES_SINCE,
    ELIGIBLE_FEATURE,
    METADATA_FEATURE,
    METADATA_VERSION,
)
from tidelog.cluster.metadata.image import DEFAULT_BROKER_RESOURCE, RESOURCE_BROKER
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import metadata_records as tables
from tidelog_protocol.records import ControlType, Record, iter_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidelog_protocol.schema import Message

__all__ = [
    "bootstrap_records",
    "decode_batch",
    "encode",
    "kraft_level",
    "leader_change",
    "levels_after",
    "record_version",
]

# The level of metadata.version since which a record is written in a version, newest first, as in
# Kafka's MetadataVersion: an older Kafka may go on with the directory. 0 for those not named.
_RECORD_VERSIONS: dict[type, tuple[tuple[int, int], ...]] = {
    tables.RegisterBrokerRecord: ((30, 4), (DIRECTORIES_SINCE, 3), (8, 2), (7, 1)),
    tables.PartitionRecord: ((23, 2), (DIRECTORIES_SINCE, 1)),
    tables.PartitionChangeRecord: ((23, 2), (DIRECTORIES_SINCE, 1)),
    tables.BrokerRegistrationChangeRecord: ((30, 3), (DIRECTORIES_SINCE, 2), (7, 1)),
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


def bootstrap_records(
    levels: Mapping[str, int],
    users: Iterable[tables.UserScramCredentialRecord] = (),
    *,
    min_insync_replicas: int = 1,
) -> list[Message]:
    """Return the first records of a new cluster (KIP-778, KIP-868): the levels of its features, its
    SCRAM users (KIP-900), and with eligible leader replicas a `min.insync.replicas` of all brokers
    (Kafka's ActivationRecordsGenerator)."""
    records: list[Message] = [
        tables.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()
    ]
    records += users
    if levels.get(ELIGIBLE_FEATURE):
        records.append(
            tables.ConfigRecord(
                resource_type=RESOURCE_BROKER,
                resource_name=DEFAULT_BROKER_RESOURCE,
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    begin = tables.BeginTransactionRecord(name="Bootstrap records")
    return [begin, *records, tables.EndTransactionRecord()]


def encode(record: Message, features: Mapping[str, int]) -> bytes:
    """Encode a record in the version of a cluster with these levels."""
    level = features.get(METADATA_FEATURE, METADATA_VERSION)
    return tables.encode_record(record, record_version(type(record), level))


@cache
def record_version(kind: type, level: int) -> int:
    """Return the version of a record at a level of metadata.version."""
    versions = _RECORD_VERSIONS.get(kind, ())
    return next((version for since, version in versions if level >= since), 0)


def kraft_level(record: Record) -> int:
    """Return the level of `kraft.version` that a control record of its type sets (KIP-853)."""
    return int.from_bytes((record.value or b"")[2:4], "big", signed=True)  # behind its version


def decode_batch(batch: memoryview) -> Iterator[Message]:
    """Decode the metadata records of one batch; ProtocolError for unknown ones."""
    for record in iter_records(batch):
        if record.value is None:
            raise ProtocolError("metadata record has no value")
        yield tables.decode_record(record.value)[0]


def levels_after(levels: Mapping[str, int], batches: Iterable[memoryview]) -> dict[str, int]:
    """Return the levels of features after these batches of metadata records; ProtocolError for an
    unknown record. Nothing else is decoded."""
    after = dict(levels)
    of_levels = tables.FeatureLevelRecord.API_KEY
    for batch in batches:
        for record in iter_records(batch):
            if record.value is None:
                raise ProtocolError("metadata record has no value")
            reader, _, position = tables.read_envelope(record.value)
            if of_levels == reader.message.API_KEY:
                change = reader.decode(record.value, position)
                after[change.name] = change.feature_level
    return after
