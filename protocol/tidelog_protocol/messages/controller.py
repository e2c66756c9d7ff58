"""Tables of the requests that brokers send to the active controller.

AlterPartition, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, ControllerRegistration,
and Envelope, which forwards a client's request.
"""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

__all__ = [
    "AllocateProducerIdsRequest",
    "AllocateProducerIdsResponse",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AssignReplicasToDirsRequest",
    "AssignReplicasToDirsResponse",
    "BrokerHeartbeatRequest",
    "BrokerHeartbeatResponse",
    "BrokerRegistrationRequest",
    "BrokerRegistrationResponse",
    "ControllerRegistrationRequest",
    "ControllerRegistrationResponse",
    "DefaultPrincipalData",
    "EnvelopeRequest",
    "EnvelopeResponse",
]


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    """In-sync replicas as a leader wants them (KIP-497).

    v1: recovery after an unclean election (KIP-704)
    v2: topic ids instead of names (KIP-841); the oldest version since Kafka 4.0
    v3: brokers with the epochs they were seen in (KIP-903)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            class BrokerState(Struct):
                broker_id: int = int32()
                broker_epoch: int = int64(default=-1)  # -1: do not check

            partition_index: int = int32()
            leader_epoch: int = int32()
            new_isr: list[int] = array(int32, "0-2")
            new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
            leader_recovery_state: int = int8("1+")  # 1 recovering from an unclean election
            partition_epoch: int = int32()  # the epoch expected

        topic_id: bytes = uuid("2+")
        partitions: list[PartitionData] = array(PartitionData)

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)

    PartitionData = TopicData.PartitionData
    BrokerState = PartitionData.BrokerState


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    """Leader, in-sync replicas and epochs as they are now (KIP-497).

    v1: recovery after an unclean election (KIP-704)
    v2: topic ids instead of names; INELIGIBLE_REPLICA, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID may
      come (KIP-841); the oldest version since Kafka 4.0
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()
            leader_epoch: int = int32()
            isr: list[int] = array(int32)
            leader_recovery_state: int = int8("1+")
            partition_epoch: int = int32()

        topic_id: bytes = uuid("2+")
        partitions: list[PartitionData] = array(PartitionData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicData] = array(TopicData)

    PartitionData = TopicData.PartitionData


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    """The log directories in which a broker has its replicas (KIP-858)."""

    class DirectoryData(Struct):
        class TopicData(Struct):
            class PartitionData(Struct):
                partition_index: int = int32()

            topic_id: bytes = uuid()
            partitions: list[PartitionData] = array(PartitionData)

        id: bytes = uuid()
        topics: list[TopicData] = array(TopicData)

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)

    TopicData = DirectoryData.TopicData


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    """Whether the controller recorded it, by replica (KIP-858)."""

    class DirectoryData(Struct):
        class TopicData(Struct):
            class PartitionData(Struct):
                partition_index: int = int32()
                error_code: int = int16()

            topic_id: bytes = uuid()
            partitions: list[PartitionData] = array(PartitionData)

        id: bytes = uuid()
        topics: list[TopicData] = array(TopicData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryData] = array(DirectoryData)

    TopicData = DirectoryData.TopicData


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    """A client's request, forwarded with the client's identity (KIP-590)."""

    request_data: bytes = bytes_()  # header and body
    request_principal: bytes | None = bytes_(nullable="0+")
    client_host_address: bytes = bytes_()  # 4 or 16 bytes


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """The principal in an Envelope, behind its version."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """The answer to a forwarded request; the error code is the envelope's own (KIP-590)."""

    response_data: bytes | None = bytes_(nullable="0+", default=None)  # header and body
    error_code: int = int16()


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    """A broker's incarnation asks to join (KIP-631).

    v1: migration from ZooKeeper (KIP-866; gone since Kafka 4.0)
    v2: log directories (KIP-858)
    v3: epoch before a clean shutdown (KIP-966)
    v4: a feature's lowest version may be 0 (KAFKA-17011)
    """

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()  # 0 PLAINTEXT

    class Feature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    """The epoch of the broker's registration; the same in all versions (KIP-631)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)  # -1 none


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    """A registered broker is alive, has read up to an offset, and wants a state (KIP-631).

    v1: failed log directories (KIP-858)
    v2: cordoned log directories (KIP-1066)
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="2+", tag=1, default=None)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    """The broker's state as the controller sees it; the same in all versions (KIP-631)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    """Ask for a new block of producer ids (KIP-730)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    """A block of producer ids that only this broker may use (KIP-730)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    """A controller's incarnation tells its addresses and features (KIP-919)."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()  # 0 PLAINTEXT

    class Feature(Struct):
        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    """Whether it is in the metadata log."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
