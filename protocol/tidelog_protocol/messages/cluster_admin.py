"""Tables of an admin's requests to the cluster: elections, reassignments, unregistered brokers,
levels of features."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    """Partitions to elect leaders for; v0 knows preferred replicas alone (KIP-183).

    v1: unclean elections too (KIP-460)
    v2: flexible
    """

    class TopicPartitions(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8("1+")  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = array(  # null: all
        TopicPartitions, nullable="0+"
    )
    timeout_ms: int = int32(default=60000)


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    """How each election went.

    v1: error code for the whole answer
    v2: flexible
    """

    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        topic: str = string()
        partition_result: list[PartitionResult] = array(PartitionResult)

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)

    PartitionResult = ReplicaElectionResult.PartitionResult


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    """Replicas that partitions are to move to (KIP-455).

    v1: whether the number of replicas may change (KIP-860)
    """

    class ReassignableTopic(Struct):
        class ReassignablePartition(Struct):
            partition_index: int = int32()
            replicas: list[int] | None = array(  # null: cancel a reassignment in progress
                int32, nullable="0+", default=None
            )

        name: str = string()
        partitions: list[ReassignablePartition] = array(ReassignablePartition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)

    ReassignablePartition = ReassignableTopic.ReassignablePartition


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """Which reassignments began or were cancelled (KIP-455).

    v1: whether the number of replicas was allowed to change (KIP-860)
    """

    class ReassignableTopicResponse(Struct):
        class ReassignablePartitionResponse(Struct):
            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)

    ReassignablePartitionResponse = ReassignableTopicResponse.ReassignablePartitionResponse


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    """Ask for the reassignments in progress (KIP-455)."""

    class ListPartitionReassignmentsTopics(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(  # null: all
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """Partitions that are moving, with the replicas added and removed (KIP-455)."""

    class OngoingTopicReassignment(Struct):
        class OngoingPartitionReassignment(Struct):
            partition_index: int = int32()
            replicas: list[int] = array(int32)
            adding_replicas: list[int] = array(int32)
            removing_replicas: list[int] = array(int32)

        name: str = string()
        partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)

    OngoingPartitionReassignment = OngoingTopicReassignment.OngoingPartitionReassignment


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    """A broker to unregister (KIP-631)."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """Whether the broker was unregistered (KIP-631)."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    """Levels to finalize (KIP-584).

    v1: the type of each update; validate only (KIP-778)
    v2: the answer is for all updates together (KIP-1022)
    """

    class FeatureUpdateKey(Struct):
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    """The error of the whole request; before v2 each update's result too."""

    class UpdatableFeatureResult(Struct):
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")
