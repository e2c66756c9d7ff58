"""What each API asks the authorizer for: a row for each API, group of versions and kind of request.

A caller with exactly the rights of a row is not refused; without any of them it gets the row's
error. `broker/test_authorization.py` holds the guards to it, and `compat/test_authorizer.py`
tidelog and Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.security.acls import Operation, ResourceType
from tidelog_protocol.apis import API, Api, ApiKey
from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.records import Record, build_batch
from tidelog_protocol.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


NEW = "new"  # a topic that is not there, and a share group; rights are for them, too
OF_SHARE_GROUPS = {ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS}
FREE = "-"  # nothing is asked for
LESS = "less"  # what the caller may not see is left out, without an error
TABLE = """
Produce                      | 3-13 | broker     | WRITE TOPIC                                        | TOPIC            |
Produce                      | 3-13 | broker     | WRITE TRANSACTIONAL_ID + WRITE TOPIC               | TRANSACTIONAL_ID | transactional records
Fetch                        | 4-18 | broker     | READ TOPIC                                         | TOPIC            |
Fetch                        | 4-18 | broker     | CLUSTER_ACTION CLUSTER                             | TOPIC            | of a follower
Fetch                        | 4-18 | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ListOffsets                  | 1-11 | broker     | DESCRIBE TOPIC                                     | TOPIC            |
Metadata                     | 0-13 | broker     | DESCRIBE TOPIC                                     | TOPIC            |
Metadata                     | 1-13 | broker     | DESCRIBE TOPIC                                     | less             | of all topics
OffsetCommit                 | 2-10 | broker     | READ GROUP + READ TOPIC                            | GROUP            |
OffsetFetch                  | 1-10 | broker     | DESCRIBE GROUP + DESCRIBE TOPIC                    | GROUP            |
FindCoordinator              | 0-6  | broker     | DESCRIBE GROUP                                     | GROUP            |
FindCoordinator              | 1-6  | broker     | DESCRIBE TRANSACTIONAL_ID                          | TRANSACTIONAL_ID | of transactions
FindCoordinator              | 6    | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          | of share partitions
JoinGroup                    | 0-9  | broker     | READ GROUP                                         | GROUP            |
Heartbeat                    | 0-4  | broker     | READ GROUP                                         | GROUP            |
LeaveGroup                   | 0-5  | broker     | READ GROUP                                         | GROUP            |
SyncGroup                    | 0-5  | broker     | READ GROUP                                         | GROUP            |
DescribeGroups               | 0-6  | broker     | DESCRIBE GROUP                                     | GROUP            |
ListGroups                   | 0-5  | broker     | DESCRIBE CLUSTER or DESCRIBE GROUP                 | less             |
SaslHandshake                | 0-1  | both       | -                                                  | -                |
ApiVersions                  | 0-5  | both       | -                                                  | -                |
CreateTopics                 | 2-7  | both       | CREATE CLUSTER or CREATE TOPIC                     | TOPIC            |
CreateTopics                 | 5-7  | both       | CREATE CLUSTER + DESCRIBE_CONFIGS TOPIC            | TOPIC            | with the new topic's settings
DeleteTopics                 | 1-6  | both       | DELETE CLUSTER or DELETE TOPIC                     | TOPIC            |
DeleteRecords                | 0-2  | broker     | DELETE TOPIC                                       | TOPIC            |
InitProducerId               | 0-5  | broker     | WRITE TRANSACTIONAL_ID                             | TRANSACTIONAL_ID |
InitProducerId               | 0-5  | broker     | IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC            | CLUSTER          | without a transactional id
OffsetForLeaderEpoch         | 2-4  | broker     | CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC           | TOPIC            |
AddPartitionsToTxn           | 0-3  | broker     | WRITE TRANSACTIONAL_ID + WRITE TOPIC               | TRANSACTIONAL_ID |
AddPartitionsToTxn           | 4-5  | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
AddOffsetsToTxn              | 0-4  | broker     | WRITE TRANSACTIONAL_ID + READ GROUP                | TRANSACTIONAL_ID |
EndTxn                       | 0-5  | broker     | WRITE TRANSACTIONAL_ID                             | TRANSACTIONAL_ID |
WriteTxnMarkers              | 1-2  | broker     | ALTER CLUSTER or CLUSTER_ACTION CLUSTER            | CLUSTER          |
TxnOffsetCommit              | 0-5  | broker     | WRITE TRANSACTIONAL_ID + READ GROUP + READ TOPIC   | TRANSACTIONAL_ID |
DescribeAcls                 | 1-3  | both       | DESCRIBE CLUSTER                                   | CLUSTER          |
CreateAcls                   | 1-3  | both       | ALTER CLUSTER                                      | CLUSTER          |
DeleteAcls                   | 1-3  | both       | ALTER CLUSTER                                      | CLUSTER          |
DescribeConfigs              | 1-4  | both       | DESCRIBE_CONFIGS TOPIC                             | TOPIC            |
DescribeConfigs              | 1-4  | both       | DESCRIBE_CONFIGS CLUSTER                           | CLUSTER          | of a broker
DescribeConfigs              | 1-4  | both       | DESCRIBE_CONFIGS GROUP                             | GROUP            | of a group
AlterConfigs                 | 0-2  | both       | ALTER_CONFIGS TOPIC                                | TOPIC            |
AlterConfigs                 | 0-2  | both       | ALTER_CONFIGS CLUSTER                              | CLUSTER          | of a broker
AlterConfigs                 | 0-2  | both       | ALTER_CONFIGS GROUP                                | GROUP            | of a group
IncrementalAlterConfigs      | 0-1  | both       | ALTER_CONFIGS TOPIC                                | TOPIC            |
IncrementalAlterConfigs      | 0-1  | both       | ALTER_CONFIGS CLUSTER                              | CLUSTER          | of a broker
IncrementalAlterConfigs      | 0-1  | both       | ALTER_CONFIGS GROUP                                | GROUP            | of a group
AlterReplicaLogDirs          | 1-2  | broker     | ALTER CLUSTER                                      | CLUSTER          |
DescribeLogDirs              | 1-2  | broker     | DESCRIBE CLUSTER                                   | less             |
DescribeLogDirs              | 3-5  | broker     | DESCRIBE CLUSTER                                   | CLUSTER          |
SaslAuthenticate             | 0-2  | both       | -                                                  | -                |
CreatePartitions             | 0-3  | both       | ALTER TOPIC                                        | TOPIC            |
CreateDelegationToken        | 1-3  | both       | -                                                  | -                |
RenewDelegationToken         | 1-2  | both       | -                                                  | -                |
ExpireDelegationToken        | 1-2  | both       | -                                                  | -                |
DescribeDelegationToken      | 1-3  | both       | -                                                  | -                |
DeleteGroups                 | 0-3  | broker     | DELETE GROUP                                       | GROUP            |
ElectLeaders                 | 0-2  | both       | ALTER CLUSTER                                      | CLUSTER          |
AlterPartitionReassignments  | 0-1  | both       | ALTER CLUSTER                                      | CLUSTER          |
ListPartitionReassignments   | 0    | both       | DESCRIBE CLUSTER                                   | CLUSTER          |
OffsetDelete                 | 0    | broker     | DELETE GROUP + READ TOPIC                          | GROUP            |
DescribeClientQuotas         | 0-1  | broker     | DESCRIBE_CONFIGS CLUSTER                           | CLUSTER          |
AlterClientQuotas            | 0-1  | both       | ALTER_CONFIGS CLUSTER                              | CLUSTER          |
DescribeUserScramCredentials | 0    | both       | DESCRIBE CLUSTER                                   | CLUSTER          |
AlterUserScramCredentials    | 0    | both       | ALTER CLUSTER                                      | CLUSTER          |
Vote                         | 0-2  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
BeginQuorumEpoch             | 0-1  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
EndQuorumEpoch               | 0-1  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
DescribeQuorum               | 0-2  | both       | DESCRIBE CLUSTER                                   | CLUSTER          |
AlterPartition               | 2-3  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
UpdateFeatures               | 0-2  | both       | ALTER CLUSTER                                      | CLUSTER          |
Envelope                     | 0    | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
FetchSnapshot                | 0-1  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
DescribeCluster              | 0-2  | broker     | -                                                  | -                |
DescribeCluster              | 0-2  | controller | ALTER CLUSTER                                      | CLUSTER          |
DescribeProducers            | 0    | broker     | READ TOPIC                                         | TOPIC            |
BrokerRegistration           | 0-4  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ControllerRegistration       | 0    | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
BrokerHeartbeat              | 0-2  | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
UnregisterBroker             | 0    | both       | ALTER CLUSTER                                      | CLUSTER          |
DescribeTransactions         | 0    | broker     | DESCRIBE TRANSACTIONAL_ID                          | TRANSACTIONAL_ID |
ListTransactions             | 0-2  | broker     | DESCRIBE TRANSACTIONAL_ID                          | less             |
AllocateProducerIds          | 0    | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ConsumerGroupHeartbeat       | 0-1  | broker     | READ GROUP + DESCRIBE TOPIC                        | GROUP            |
ConsumerGroupDescribe        | 0-1  | broker     | DESCRIBE GROUP                                     | GROUP            |
GetTelemetrySubscriptions    | 0    | broker     | -                                                  | -                |
PushTelemetry                | 0    | broker     | -                                                  | -                |
AssignReplicasToDirs         | 0    | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ListConfigResources          | 0-1  | broker     | DESCRIBE_CONFIGS CLUSTER                           | CLUSTER          |
DescribeTopicPartitions      | 0    | broker     | DESCRIBE TOPIC                                     | TOPIC            |
ShareGroupHeartbeat          | 1    | broker     | READ GROUP + DESCRIBE TOPIC                        | GROUP            |
ShareGroupDescribe           | 1    | broker     | DESCRIBE GROUP                                     | GROUP            |
ShareFetch                   | 1-2  | broker     | READ GROUP + READ TOPIC                            | GROUP            |
ShareAcknowledge             | 1-2  | broker     | READ GROUP + READ TOPIC                            | GROUP            |
AddRaftVoter                 | 0-1  | both       | ALTER CLUSTER                                      | CLUSTER          |
RemoveRaftVoter              | 0    | both       | ALTER CLUSTER                                      | CLUSTER          |
UpdateRaftVoter              | 0    | controller | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
InitializeShareGroupState    | 0    | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ReadShareGroupState          | 0    | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
WriteShareGroupState         | 0-1  | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
DeleteShareGroupState        | 0    | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
ReadShareGroupStateSummary   | 0-1  | broker     | CLUSTER_ACTION CLUSTER                             | CLUSTER          |
StreamsGroupHeartbeat        | 0    | broker     | READ GROUP + DESCRIBE TOPIC                        | GROUP            |
StreamsGroupDescribe         | 0    | broker     | DESCRIBE GROUP                                     | GROUP            |
DescribeShareGroupOffsets    | 0-1  | broker     | DESCRIBE GROUP + DESCRIBE TOPIC                    | GROUP            |
AlterShareGroupOffsets       | 0    | broker     | READ GROUP + READ TOPIC                            | GROUP            |
DeleteShareGroupOffsets      | 0    | broker     | DELETE GROUP + READ TOPIC                          | GROUP            |
"""  # noqa: E501 - a table

Right = tuple[Operation, ResourceType]


class Row(NamedTuple):
    """A line of the table. `rights` are alternatives, each of several rights. Everything that a
    request names is called `x`, but for share groups, which are called `new`."""

    api: Api
    versions: range
    listener: str
    rights: tuple[tuple[Right, ...], ...]
    refusal: str
    kind: str

    @property
    def key(self) -> str:
        """What the row is about."""
        versions = f"v{self.versions[0]}-{self.versions[-1]}"
        return " ".join((f"{self.listener}:{self.api.name}", versions, self.kind)).strip()

    def request(self, version: int, ids: Mapping[str, bytes]) -> Any:
        """A request of a version of the row."""
        request = request_of(self.api, version, ids, ("x",))
        if self.api.key in OF_SHARE_GROUPS:
            request.group_id = NEW
        if self.kind:
            KINDS[self.kind](request)
        return request


def rows() -> Iterator[Row]:
    """Each row of the table, once for each listener."""
    keys = {api.name: api for api in (API[key] for key in ApiKey)}
    for line in TABLE.strip().splitlines():
        name, versions, listener, rights, refusal, kind = (one.strip() for one in line.split("|"))
        first, _, last = versions.partition("-")
        served = range(int(first), int(last or first) + 1)
        for each in ("broker", "controller") if listener == "both" else (listener,):
            yield Row(keys[name], served, each, tuple(_rights(rights)), refusal, kind)


def _rights(text: str) -> Iterator[tuple[Right, ...]]:
    for alternative in text.split(" or ") if text != FREE else ():
        pairs = (each.split() for each in alternative.split(" + "))
        yield tuple((Operation[operation], ResourceType[kind]) for operation, kind in pairs)


# ---- requests ---------------------------------------------------------------------------------


def filled(table: Any, names: tuple[str, ...]) -> Any:
    """A request that names topics, groups and transactional ids of these names."""
    values: dict[str, Any] = {}
    for field in table.FIELDS:
        if field.kind == "array" and isinstance(field.element, StructType):
            inner = {each.name for each in field.element.FIELDS}
            many = inner & {"name", "topic", "topic_name", "group_id", "resource_name"}
            values[field.name] = [filled(field.element, (name,)) for name in names if many] or [
                filled(field.element, names[:1])
            ]
        elif field.kind == "array":
            values[field.name] = list(names) if field.element == "string" else [0]
            if field.element == "uuid":
                values[field.name] = [bytes(16)]
        elif field.kind == "string":
            values[field.name] = names[0]
    return table(**values)


SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "Produce": {"acks": -1, "timeout_ms": 1000, "transactional_id": None},
    "Fetch": {"replica_id": -1, "session_epoch": -1, "max_bytes": 1000, "replica_state": None},
    "ListOffsets": {"replica_id": -1},
    "ShareFetch": {"max_bytes": 1000, "max_records": 10},
    "DescribeTopicPartitions": {"cursor": None, "response_partition_limit": 100},
    "OffsetForLeaderEpoch": {"replica_id": -1},
    "DescribeCluster": {"endpoint_type": 1},
    "ListTransactions": {"state_filters": [], "producer_id_filters": []},
    "ListGroups": {"states_filter": [], "types_filter": []},
    "InitProducerId": {"producer_id": -1, "producer_epoch": -1},
    "ListPartitionReassignments": {"timeout_ms": 1000},
    "DeleteTopics": {"timeout_ms": 30_000},
    "ListConfigResources": {"resource_types": []},
}


def request_of(api: Api, version: int, ids: Mapping[str, bytes], names: tuple[str, ...]) -> Any:
    """A request of an API that names topics, groups and the like, and does nothing else."""
    request = filled(api.request, names)
    for name, value in SPECIAL.get(api.name, {}).items():
        if hasattr(request, name):
            setattr(request, name, value)
    if getattr(request, "producer_id", -1) == 0:
        request.producer_id = 4711  # nobody's
    for name in request.__slots__:
        if name.startswith("include_"):
            setattr(request, name, True)
    if api.key == ApiKey.PRODUCE:
        for topic in request.topic_data:
            topic.partition_data[0].records = PLAIN
    if api.key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        request.member_id = MEMBER
        request.share_session_epoch = int(api.key == ApiKey.SHARE_ACKNOWLEDGE)
        if api.key == ApiKey.SHARE_FETCH:
            request.topics[0].partitions[0].acknowledgement_batches = []
    if api.key == ApiKey.STREAMS_GROUP_HEARTBEAT:
        request.instance_id = None
        request.topology = filled(type(request).Topology, names)
    if api.key in (ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS):
        for each in getattr(request, "filters", [request]):
            each.resource_type_filter = each.pattern_type_filter = 1
            each.operation = each.permission_type = 1
    if api.key == ApiKey.CREATE_ACLS:
        for each in request.creations:
            each.resource_type, each.operation, each.permission_type = 2, 3, 3
    if "Configs" in api.name:
        for each in request.resources:
            each.resource_type = 2
    _set_ids(request, ids)
    if api.key in (ApiKey.METADATA, ApiKey.DELETE_TOPICS):
        by_id = version == 13 or (api.key == ApiKey.DELETE_TOPICS and version >= 6)
        for each in request.topics or ():
            each.topic_id = ids.get(each.name, b"\7" * 16) if by_id else ZERO_UUID
            each.name = None if by_id else each.name
    return request


def _set_ids(struct: Any, ids: Mapping[str, bytes]) -> None:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name == "topic_id":
            name = getattr(struct, "name", None) or getattr(struct, "topic", None) or "x"
            struct.topic_id = ids.get(name, b"\7" * 16)
        elif field.kind == "array" and isinstance(field.element, StructType):
            for each in value or ():
                _set_ids(each, ids)


# ---- kinds of requests ------------------------------------------------------------------------

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"  # an id of a share group's member
PLAIN, TRANSACTIONAL = (
    build_batch(
        [Record(0, 0, None, b"v", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )
    for transactional in (False, True)
)


def _transactional(request: Any) -> None:
    request.transactional_id = "x"
    request.topic_data[0].partition_data[0].records = TRANSACTIONAL


def _of_a_follower(request: Any) -> None:
    request.replica_id = 5
    request.replica_state = type(request).ReplicaState(replica_id=5)


def _of_all_topics(request: Any) -> None:
    request.topics = None


def _of_transactions(request: Any) -> None:
    request.key_type = 1


def _of_share_partitions(request: Any) -> None:
    request.key_type = 2


def _with_settings(request: Any) -> None:
    request.validate_only = True
    (topic,) = request.topics
    topic.name, topic.num_partitions, topic.replication_factor = NEW, 1, 1
    topic.assignments = topic.configs = []


def _without_a_transactional_id(request: Any) -> None:
    request.transactional_id = None


def _of_a_broker(request: Any) -> None:
    request.resources[0].resource_type, request.resources[0].resource_name = 4, "1"


def _of_a_group(request: Any) -> None:
    request.resources[0].resource_type = 32


KINDS: Mapping[str, Callable[[Any], None]] = {
    "transactional records": _transactional,
    "of a follower": _of_a_follower,
    "of all topics": _of_all_topics,
    "of transactions": _of_transactions,
    "of share partitions": _of_share_partitions,
    "with the new topic's settings": _with_settings,
    "without a transactional id": _without_a_transactional_id,
    "of a broker": _of_a_broker,
    "of a group": _of_a_group,
}
