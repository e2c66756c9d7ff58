"""Values of `__cluster_metadata`, the log of the cluster's metadata.

A record's value is an envelope of three unsigned varints (frame version 1, the record's api key,
its version) and the record itself: `encode_record`, `decode_record`. Keys are null.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidelog_protocol.compiler import codec
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.primitives import read_uvarint, write_uvarint
from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tidelog_protocol.compiler import Codec
    from tidelog_protocol.schema import Buffer

__all__ = [
    "RECORDS",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_record",
    "encode_record",
    "read_envelope",
]

FRAME_VERSION = 1


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """A broker incarnation registered.

    v1: controlled shutdown; v2: migration from ZooKeeper (gone since 4.0)
    v3: log directories (KIP-858)
    v4: cordoned log directories (KIP-1066)
    """

    class BrokerEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class BrokerFeature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", tag=1, default=None)


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    """A broker was removed from the cluster."""

    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = string()
    topic_id: bytes = uuid()


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    """A partition as a whole.

    v1: directories (KIP-858)
    v2: eligible leader replicas (KIP-966)
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", tag=2, default=None)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """A configuration entry was set, or removed by a null value."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """The changed fields of a partition; null or the default means unchanged, as does leader -2.

    v1: directories (KIP-858)
    v2: eligible leader replicas (KIP-966)
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, nullable="0+", tag=0, default=None)
    leader: int = int32(tag=1, default=-2)
    replicas: list[int] | None = array(int32, nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = array(int32, nullable="0+", tag=3, default=None)
    adding_replicas: list[int] | None = array(int32, nullable="0+", tag=4, default=None)
    leader_recovery_state: int = int8(tag=5, default=-1)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32, "2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", tag=7, default=None)


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    """A broker was fenced; replaced by BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    """A broker was unfenced; replaced by BrokerRegistrationChangeRecord."""

    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    """A topic was deleted with all its partitions."""

    topic_id: bytes = uuid()


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed (KIP-900)."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential was set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """A feature's level was finalized; `metadata.version` is among them (KIP-778)."""

    name: str = string()
    feature_level: int = int16()


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    class EntityData(Struct):
        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker: up to `next_producer_id`, exclusive."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """The changes of a broker's registration; for each flag 0 means unchanged, 1 yes, -1 no.

    v1: controlled shutdown
    v2: log directories (KIP-858)
    v3: cordoned log directories (KIP-1066)
    """

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", tag=3, default=None)


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    """An ACL was created."""

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    """An ACL was deleted."""

    id: bytes = uuid()


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """Nothing: advances the end of the log (KIP-835)."""


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    """State of the migration from ZooKeeper; 0 in clusters that never had one."""

    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was deleted."""

    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    """The records up to the next end or abort record form one transaction (KIP-868)."""

    name: str | None = string(nullable="0+", tag=0, default=None)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """The transaction is complete."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    """The transaction's records are discarded."""

    reason: str | None = string(nullable="0+", tag=0, default=None)


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    """A delegation token was deleted (KIP-900)."""

    token_id: str = string()


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    """A controller registered (KIP-919)."""

    class ControllerEndpoint(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class ControllerFeature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all, were cleared (KIP-966)."""

    topic_name: str = string()


class UnregisterControllerRecord(Message, api_key=29, versions="0", flexible="0+"):
    """A controller was removed from the cluster."""

    controller_id: int = int32()


RECORDS: Mapping[int, type[Message]] = MappingProxyType(
    {
        int(record.API_KEY or 0): record
        for record in (
            RegisterBrokerRecord,
            UnregisterBrokerRecord,
            TopicRecord,
            PartitionRecord,
            ConfigRecord,
            PartitionChangeRecord,
            FenceBrokerRecord,
            UnfenceBrokerRecord,
            RemoveTopicRecord,
            DelegationTokenRecord,
            UserScramCredentialRecord,
            FeatureLevelRecord,
            ClientQuotaRecord,
            ProducerIdsRecord,
            BrokerRegistrationChangeRecord,
            AccessControlEntryRecord,
            RemoveAccessControlEntryRecord,
            NoOpRecord,
            ZkMigrationStateRecord,
            RemoveUserScramCredentialRecord,
            BeginTransactionRecord,
            EndTransactionRecord,
            AbortTransactionRecord,
            RemoveDelegationTokenRecord,
            RegisterControllerRecord,
            ClearElrRecord,
            UnregisterControllerRecord,
        )
    }
)
"""Tables by api key."""


def encode_record(record: Message, version: int) -> bytes:
    """Write a record in one of its versions, in its envelope."""
    head, encoded = _writer(type(record), version)
    return head + encoded.encode(record)


@cache
def _writer(table: type[Message], version: int) -> tuple[bytes, Codec[Any]]:
    """Return the envelope of records of a version, and their codec."""
    assert table.API_KEY is not None
    head = write_uvarint(FRAME_VERSION) + write_uvarint(table.API_KEY) + write_uvarint(version)
    return head, codec(table, version)


def decode_record(value: Buffer) -> tuple[Message, int]:
    """Read an enveloped record and its version; ProtocolError if either is unknown."""
    reader, version, position = read_envelope(value)
    return reader.decode(value, position), version


def read_envelope(value: Buffer) -> tuple[Codec[Any], int, int]:
    """Return the codec of an enveloped record, its version, and where the record begins;
    ProtocolError if one of them is unknown."""
    try:
        frame_version, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as error:
        raise ProtocolError("metadata record: truncated") from error
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"metadata record with unknown frame version {frame_version}")
    table = RECORDS.get(api_key)
    if table is None:
        raise ProtocolError(
            f"metadata record with unknown api key {api_key}: a newer Apache Kafka wrote it"
        )
    return codec(table, version), version, position
