"""Tables about the cluster: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

from tidelog_protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)

__all__ = [
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "MetadataRequest",
    "MetadataResponse",
]


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+"):
    """The first request of a connection.

    v3: flexible; name and version of the client's software (KIP-511)
    v4: a feature's lowest version may be 0 (KAFKA-17011)
    v5: cluster and node the client means to talk to (KIP-1242)
    """

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="5+", default=None)
    node_id: int = int32("5+", default=-1)


class ApiVersionsResponse(Message, api_key=18, versions="0-5", flexible="3+"):
    """Which APIs and versions this broker serves. The header stays in version 0.

    v1: throttle time
    v3: flexible; features, tagged (KIP-584)
    v4: a feature's lowest version may be 0 (KAFKA-17011)
    v5: REBOOTSTRAP_REQUIRED may come (KIP-1242)
    """

    class ApiVersion(Struct):
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeatureKey(Struct):
        name: str = string()
        min_version: int = int16()
        max_version: int = int16()

    class FinalizedFeatureKey(Struct):
        name: str = string()
        max_version_level: int = int16()
        min_version_level: int = int16()

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)  # -1 unknown
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    """Ask for brokers and topics.

    v0: no topics means all of them
    v1: null means all, an empty list none
    v4: topics may be created on the way
    v8: authorized operations (KIP-430)
    v9: flexible
    v10: topic ids in the format, not to be used yet (KIP-516)
    v11: the cluster's authorized operations moved to DescribeCluster (KIP-700)
    v12: topics by id
    """

    class MetadataRequestTopic(Struct):
        topic_id: bytes = uuid("10+")
        name: str | None = string(nullable="10+")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """Brokers, topics, leaders and replicas.

    v1: racks, controller, internal topics; v2: cluster id; v3: throttle time
    v5: offline replicas (KIP-112)
    v7: leader epochs (KIP-320)
    v8: authorized operations (KIP-430)
    v9: flexible
    v10: topic ids (KIP-516)
    v11: the cluster's authorized operations moved to DescribeCluster (KIP-700)
    v12: a topic asked for by an unknown id has no name
    v13: error code for the whole answer
    """

    class MetadataResponseBroker(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None)

    class MetadataResponseTopic(Struct):
        class MetadataResponsePartition(Struct):
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()  # -1 none
            leader_epoch: int = int32("7+", default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            offline_replicas: list[int] = array(int32, "5+")

        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: bytes = uuid("10+")
        is_internal: bool = boolean("1+")
        partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
        topic_authorized_operations: int = int32("8+", default=-2147483648)  # bits

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")

    MetadataResponsePartition = MetadataResponseTopic.MetadataResponsePartition


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    """Ask for brokers and the controller (KIP-700).

    v1: brokers (1) or controllers (2) (KIP-919)
    v2: fenced brokers too (KIP-1073)
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """Brokers and the controller.

    v1: which kind of nodes; MISMATCHED_ENDPOINT_TYPE and UNSUPPORTED_ENDPOINT_TYPE may come
      (KIP-919)
    v2: whether a broker is fenced (KIP-1073)
    """

    class DescribeClusterBroker(Struct):
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    """Ask for topics page by page (KIP-966)."""

    class TopicRequest(Struct):
        name: str = string()

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+")  # where this page starts


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """Topics and partitions, and where the next page starts (KIP-966)."""

    class DescribeTopicPartitionsResponseTopic(Struct):
        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
            last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
            offline_replicas: list[int] = array(int32)

        error_code: int = int16()
        name: str | None = string(nullable="0+")
        topic_id: bytes = uuid()
        is_internal: bool = boolean()
        partitions: list[DescribeTopicPartitionsResponsePartition] = array(
            DescribeTopicPartitionsResponsePartition
        )
        topic_authorized_operations: int = int32(default=-2147483648)

    class Cursor(Struct):
        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+")  # null: this was the last

    DescribeTopicPartitionsResponsePartition = (
        DescribeTopicPartitionsResponseTopic.DescribeTopicPartitionsResponsePartition
    )
