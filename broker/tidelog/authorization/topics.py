"""Guards of APIs whose topics, or resources, are asked for one by one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.authorization.guard import ASKED_AT_ONCE, Answer, divided
from tidelog.cluster.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC
from tidelog.security.acls import Operation
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.authorization.guard import Call, Guard, Verdict, Verdicts

__all__ = [
    "alter_configs",
    "create_topics",
    "delete_topics",
    "describe_configs",
    "each",
    "offset_for_leader_epoch",
    "produce",
]

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TRANSACTIONAL = 0x10  # of the lower byte of a batch's attributes
_ATTRIBUTES = 22  # position of that byte


def each(operation: Operation) -> Guard:
    """Return the guard of an API that needs an operation on each of its `topics`."""

    def guard(call: Call) -> Verdicts:
        return call.allowed(operation, call.request.topics)

    return guard


def produce(call: Call) -> Verdict | Verdicts:
    """Produce: WRITE on the transactional id of transactional records, and on each topic."""
    topics = call.request.topic_data
    if any(_is_transactional(part.records) for topic in topics for part in topic.partition_data):
        transactional_id = call.request.transactional_id
        if transactional_id is None or not call.transaction(Operation.WRITE, transactional_id):
            return call.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return call.allowed(Operation.WRITE, topics)


def _is_transactional(records: Any) -> bool:
    return (
        records is not None
        and len(records) > _ATTRIBUTES
        and bool(records[_ATTRIBUTES] & _TRANSACTIONAL)
    )


def offset_for_leader_epoch(call: Call) -> Verdict | Verdicts:
    """OffsetForLeaderEpoch: brokers may ask for all, others need DESCRIBE on each topic."""
    if call.caller.allows_cluster(Operation.CLUSTER_ACTION, logs=False):
        return None
    return call.allowed(Operation.DESCRIBE, call.request.topics)


def create_topics(call: Call) -> Verdicts:
    """CreateTopics: CREATE on the cluster or on each topic. The settings of a new topic are for
    those with DESCRIBE_CONFIGS."""
    denied = set()
    if not call.caller.allows_cluster(Operation.CREATE, logs=False):
        denied = yield from call.denied(Operation.CREATE, call.request.topics)
    verdict = yield from call.without(denied)
    if isinstance(verdict, Answer):
        return Answer(make=lambda: _explained(verdict.response))

    def hide(response: Any) -> Generator[None, None, Any]:
        if verdict is not None:
            response = yield from verdict(response)
        for number, topic in enumerate(response.topics, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            if topic.error_code == ErrorCode.NONE and not call.topic(
                Operation.DESCRIBE_CONFIGS, topic.name
            ):
                topic.topic_config_error_code = int(DENIED)
                topic.configs = []
                topic.num_partitions = topic.replication_factor = -1
        return _explained(response)

    return hide


def _explained(response: Any) -> Any:
    for topic in response.topics:
        if topic.error_code == DENIED:
            topic.error_message = "Authorization failed."
    return response


def delete_topics(call: Call) -> Verdicts:
    """DeleteTopics: DELETE on the cluster or on each topic. A topic that the caller may not
    describe is refused before anything is said about it: its name, if it was asked for by id."""
    if call.caller.allows_cluster(Operation.DELETE, logs=False):
        return None
    if call.request.timeout_ms <= 0:
        return None  # Kafka's controller times out before it asks
    request, names = call.request, call.image.topic_names
    Result: Any = call.api.response.DeletableTopicResult  # type: ignore[attr-defined]  # noqa: N806
    allowed_names, denied = yield from divided(request.topic_names, partial(_may_delete, call))
    refused = [_refused(call, Result, name) for name in denied]
    allowed = []
    for number, topic in enumerate(request.topics, 1):
        if number % ASKED_AT_ONCE == 0:
            yield
        name = names.get(topic.topic_id) if topic.name is None else topic.name
        is_wrong = topic.name is not None and topic.topic_id != ZERO_UUID
        if name is None or is_wrong or _may_delete(call, name):
            allowed.append(topic)
        elif topic.name is not None:
            refused.append(_refused(call, Result, name))
        else:
            shown = name if call.topic(Operation.DESCRIBE, name) else None
            refused.append(
                Result(
                    name=shown,
                    topic_id=topic.topic_id,
                    error_code=int(DENIED),
                    error_message=_TEXTS[DENIED],
                )
            )
    if not refused:
        return None
    call.narrow(topic_names=allowed_names, topics=allowed)
    if not allowed and not allowed_names:
        return Answer(call.api.response(responses=refused))

    def merge(response: Any) -> Any:
        response.responses.extend(refused)
        return response

    return merge


def _may_delete(call: Call, name: str) -> bool:
    return call.topic(Operation.DELETE, name) and call.topic(Operation.DESCRIBE, name)


def _refused(call: Call, result: Any, name: str) -> Any:
    """Return the refusal of a topic by name: one that the caller may see, and is not there, is
    unknown."""
    code, message = DENIED, _TEXTS[DENIED]
    if call.topic(Operation.DESCRIBE, name) and name not in call.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = "This server does not host this topic-partition."
    return result(name=name, error_code=int(code), error_message=message)


# ---- settings ---------------------------------------------------------------------------------

_OF_RESOURCE = {
    RESOURCE_TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    RESOURCE_GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
}
_TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def describe_configs(call: Call) -> Verdicts:
    """DescribeConfigs: DESCRIBE_CONFIGS on the topic or group, else on the cluster."""
    Result: Any = call.api.response.DescribeConfigsResult  # type: ignore[attr-defined]  # noqa: N806
    return _split(call, Operation.DESCRIBE_CONFIGS, "results", Result)


def alter_configs(call: Call) -> Verdicts:
    """AlterConfigs, IncrementalAlterConfigs: ALTER_CONFIGS on the topic or group, else on the
    cluster."""
    Response: Any = call.api.response  # noqa: N806 - a class
    Result: Any = getattr(  # noqa: N806 - a class
        Response, "AlterConfigsResourceResponse", None
    ) or getattr(Response, "OldAlterConfigsResourceResponse", None)
    return _split(call, Operation.ALTER_CONFIGS, "responses", Result)


def _split(call: Call, operation: Operation, into: str, result: Any) -> Verdicts:
    allowed, refused = [], []
    for number, resource in enumerate(call.request.resources, 1):
        if number % ASKED_AT_ONCE == 0:
            yield
        kind, name = resource.resource_type, resource.resource_name
        code = _OF_RESOURCE.get(kind, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if kind == RESOURCE_TOPIC:
            may = call.topic(operation, name)
        elif kind == RESOURCE_GROUP:
            may = call.group(operation, name)
        else:
            may = call.caller.allows_cluster(operation)
        if may:
            allowed.append(resource)
        else:
            refused.append(
                result(
                    error_code=int(code),
                    error_message=_TEXTS[code],
                    resource_type=kind,
                    resource_name=name,
                )
            )
    if not refused:
        return None
    if not allowed:
        return Answer(call.api.response(**{into: refused}))
    call.narrow(resources=allowed)

    def merge(response: Any) -> Any:
        getattr(response, into).extend(refused)
        return response

    return merge
