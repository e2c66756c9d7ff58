"""Control records of the metadata log and its snapshots, written by the quorum itself.

A control record's key holds its `ControlType`, its value one of these tables; `control_record` and
`read_control_record` convert between tables and records. Kafka 4.4 writes and reads all of them in
version 0 whatever their field `version` says, even LeaderChangeMessage v1 (KIP-853); this module
does the same.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.records import ControlType, Record, control_type
from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONTROL_RECORDS",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
    "control_record",
    "read_control_record",
]

VERSION = 0


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """First record of a leader's epoch: the leader, the voters, and those that elected it
    (KIP-595).

    v1: directory ids of voters (KIP-853)
    """

    class Voter(Struct):
        voter_id: int = int32()
        voter_directory_id: bytes = uuid("1+")

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """First record of a snapshot (KIP-630)."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()  # ms; of the last record that the snapshot covers


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Last record of a snapshot; without it the snapshot is incomplete (KIP-630)."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """Level of the feature `kraft.version` from this record on (KIP-853)."""

    version: int = int16()
    kraft_version: int = int16()  # 0 voters of the configuration, 1 voters of the log


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters from this record on (KIP-853)."""

    class Voter(Struct):
        class Endpoint(Struct):
            name: str = string()  # of the listener
            host: str = string()
            port: int = uint16()

        class KRaftVersionFeature(Struct):
            min_supported_version: int = int16()
            max_supported_version: int = int16()

        voter_id: int = int32()
        voter_directory_id: bytes = uuid()
        endpoints: list[Endpoint] = array(Endpoint)
        kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)

    version: int = int16()
    voters: list[Voter] = array(Voter)

    Endpoint = Voter.Endpoint
    KRaftVersionFeature = Voter.KRaftVersionFeature


CONTROL_RECORDS: Mapping[int, type[Message]] = MappingProxyType(
    {
        int(ControlType.LEADER_CHANGE): LeaderChangeMessage,
        int(ControlType.SNAPSHOT_HEADER): SnapshotHeaderRecord,
        int(ControlType.SNAPSHOT_FOOTER): SnapshotFooterRecord,
        int(ControlType.KRAFT_VERSION): KRaftVersionRecord,
        int(ControlType.KRAFT_VOTERS): VotersRecord,
    }
)
"""Tables by control type."""

_TYPES = {table: kind for kind, table in CONTROL_RECORDS.items()}


def control_record(message: Message, *, timestamp: int, offset: int = 0) -> Record:
    """Make the record of a control message, for a batch built with `control=True`."""
    key = b"\0\0" + _TYPES[type(message)].to_bytes(2, "big")  # key version 0
    return Record(offset, timestamp, key, codec(type(message), VERSION).encode(message))


def read_control_record(record: Record) -> Message:
    """Read a control record; ProtocolError for a type that a quorum does not write."""
    kind = control_type(record)
    table = CONTROL_RECORDS.get(kind)
    if table is None:
        raise ProtocolError(f"unexpected control record of type {kind} in the metadata log")
    if record.value is None:
        raise ProtocolError(f"control record of type {kind} has no value")
    return codec(table, VERSION).decode(record.value)
