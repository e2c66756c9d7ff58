"""APIs that need one operation on the cluster, and the form of their refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.authorization.guard import Answer
from tidelog.security.acls import Operation
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.authorization.guard import Call, Guard, Verdict

__all__ = ["CLUSTER_OPERATIONS", "brokers", "brokers_or", "needs"]

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_AT_THE_TOP_SINCE = 13  # Fetch

CLUSTER_OPERATIONS: dict[ApiKey, Operation] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: Operation.ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: Operation.DESCRIBE,
    ApiKey.ELECT_LEADERS: Operation.ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Operation.ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Operation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: Operation.ALTER_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Operation.DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
    ApiKey.DESCRIBE_QUORUM: Operation.DESCRIBE,
    ApiKey.UPDATE_FEATURES: Operation.ALTER,
    ApiKey.UNREGISTER_BROKER: Operation.ALTER,
    ApiKey.LIST_CONFIG_RESOURCES: Operation.DESCRIBE_CONFIGS,
    ApiKey.ADD_RAFT_VOTER: Operation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: Operation.ALTER,
    **dict.fromkeys(
        (
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.UPDATE_RAFT_VOTER,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        Operation.CLUSTER_ACTION,
    ),
}
"""APIs that ask for nothing else."""


def needs(
    operation: Operation, check: Callable[[Any], object] | None = None
) -> Callable[[Call], Verdict]:
    """Return the guard of an API that needs an operation on the cluster. `check` raises
    ProtocolError for a malformed request of anyone."""

    def guard(call: Call) -> Verdict:
        if check is not None:
            check(call.request)
        if call.caller.allows_cluster(operation):
            return None
        return refused(call, operation)

    return guard


def brokers(call: Call) -> Verdict:
    """Let only brokers fetch. Others are refused at the top of the response, in older versions at
    each partition too (Kafka: FetchRequest.getErrorResponse)."""
    if call.caller.allows_cluster(Operation.CLUSTER_ACTION):
        return None
    if call.version >= _AT_THE_TOP_SINCE:
        return Answer(call.api.response(error_code=int(DENIED)))
    refused = call.refuse(DENIED)
    refused.response.error_code = int(DENIED)
    for topic in refused.response.responses:
        for partition in topic.partitions:
            partition.high_watermark, partition.records = -1, b""
    return refused


def brokers_or(operation: Operation) -> Guard:
    """Return the guard of an API for brokers, and for principals with an operation on the
    cluster."""

    def guard(call: Call) -> Verdict:
        if call.caller.allows_cluster(operation, logs=False):
            return None
        if call.caller.allows_cluster(Operation.CLUSTER_ACTION):
            return None
        return refused(call, Operation.CLUSTER_ACTION)

    return guard


def refused(call: Call, operation: Operation) -> Answer:
    """Return the refusal in the form of its API (Kafka: `getErrorResponse` of each request)."""
    text = f"Request {call.api.name} needs {operation.name} permission."
    if call.api.key in _BRIEF:
        text = "Cluster authorization failed."
    special = _FORMS.get(call.api.key)
    if special is not None:
        return Answer(special(call, text))
    return call.refuse(DENIED, text)


def _created(call: Call, text: str) -> Any:
    from tidelog_protocol.messages.acls import CreateAclsResponse as Response  # noqa: PLC0415

    one = Response.AclCreationResult(error_code=DENIED, error_message=text)
    return Response(results=[one] * len(call.request.creations))


def _deleted(call: Call, text: str) -> Any:
    from tidelog_protocol.messages.acls import DeleteAclsResponse as Response  # noqa: PLC0415

    one = Response.DeleteAclsFilterResult(error_code=DENIED, error_message=text, matching_acls=[])
    return Response(filter_results=[one] * len(call.request.filters))


def _quotas(call: Call, text: str) -> Any:
    Response: Any = call.api.response  # noqa: N806 - a class
    Entry = Response.EntryData  # noqa: N806 - a class
    return Response(
        entries=[
            Entry(
                error_code=DENIED,
                error_message=text,
                entity=[
                    Entry.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
            for entry in call.request.entries
        ]
    )


def _moved(call: Call, text: str) -> Any:
    del text
    Response: Any = call.api.response  # noqa: N806 - a class
    Result = Response.AlterReplicaLogDirTopicResult  # noqa: N806 - a class
    return Response(
        results=[
            Result(
                topic_name=topic.name,
                partitions=[
                    Result.AlterReplicaLogDirPartitionResult(
                        partition_index=partition, error_code=DENIED
                    )
                    for partition in topic.partitions
                ],
            )
            for each in call.request.dirs
            for topic in each.topics
        ]
    )


def _at_each_and_at_the_top(call: Call, text: str) -> Any:
    response = call.refuse(DENIED, text).response
    response.error_code = int(DENIED)
    _explain(response, text)
    return response


def _of_users(call: Call, text: str) -> Any:
    del text
    Response: Any = call.api.response  # noqa: N806 - a class
    refused = Response.DescribeUserScramCredentialsResult(error_code=DENIED, error_message=None)
    return Response(
        error_code=DENIED, error_message=None, results=[refused] * len(call.request.users or ())
    )


def _altered_users(call: Call, text: str) -> Any:
    Response: Any = call.api.response  # noqa: N806 - a class
    Result = Response.AlterUserScramCredentialsResult  # noqa: N806 - a class
    changes = (*call.request.deletions, *call.request.upsertions)
    return Response(
        results=[
            Result(user=user, error_code=DENIED, error_message=text)
            for user in sorted({change.name for change in changes})
        ]
    )


def _without_entries(call: Call, text: str) -> Any:
    del text
    Response: Any = call.api.response  # noqa: N806 - a class
    return Response(error_code=DENIED, error_message=None, entries=None)


def _not_moving(call: Call, text: str) -> Any:
    response = _at_the_top(call, text)
    Topic = response.OngoingTopicReassignment  # noqa: N806 - a class
    response.topics = [
        Topic(
            name=topic.name,
            partitions=[
                Topic.OngoingPartitionReassignment(partition_index=index)
                for index in topic.partition_indexes
            ],
        )
        for topic in call.request.topics or ()
    ]
    return response


def _of_share_state(call: Call, text: str) -> Any:
    response = call.refuse(DENIED).response
    for topic in response.results:
        for partition in topic.partitions:
            partition.error_message = text
    return response


def _at_the_top(call: Call, text: str) -> Any:
    response: Any = call.api.response(error_code=int(DENIED))
    if hasattr(response, "error_message"):
        response.error_message = text
    return response


def _explain(response: Any, text: str) -> None:
    for field, inner in (
        ("replica_election_results", "partition_result"),
        ("responses", "partitions"),
    ):
        for topic in getattr(response, field, ()):
            for each in getattr(topic, inner):
                each.error_message = text


_STATE = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)
# Refusals that do not say what is missing.
_BRIEF = frozenset(
    {
        *_STATE,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.DESCRIBE_QUORUM,
    }
)
_FORMS: dict[ApiKey, Callable[[Call, str], Any]] = {
    ApiKey.CREATE_ACLS: _created,
    ApiKey.DELETE_ACLS: _deleted,
    ApiKey.ALTER_CLIENT_QUOTAS: _quotas,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _moved,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _without_entries,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _of_users,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _not_moving,
    **dict.fromkeys(_STATE, _of_share_state),
    ApiKey.ELECT_LEADERS: _at_each_and_at_the_top,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _at_each_and_at_the_top,
    **dict.fromkeys(
        (
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.UPDATE_FEATURES,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.ALTER_PARTITION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ),
        _at_the_top,
    ),
}
