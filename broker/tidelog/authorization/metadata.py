"""Guards of Metadata, DescribeTopicPartitions and DescribeCluster: what the caller may not see is
left out, and authorized operations are the caller's (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.authorization.cluster import needs
from tidelog.authorization.guard import ASKED_AT_ONCE, divided
from tidelog.security.acls import CLUSTER_NAME, Operation, ResourceType
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.authorization.guard import Call, Guard, Verdict, Verdicts

__all__ = ["describe_cluster", "describe_controllers", "describe_topic_partitions", "metadata"]

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_IDS_SINCE = 12


def metadata(*, creates_topics: bool) -> Guard:
    """Return the guard of Metadata: DESCRIBE on each topic, and CREATE on the topic or the cluster
    for one that the request would create, if the broker `creates_topics`."""

    def guard(call: Call) -> Verdicts:
        asked = call.request.topics
        if asked is None or (call.version == 0 and not asked):
            return lambda response: _visible(call, response)
        if call.version < _IDS_SINCE and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in asked
        ):
            return None  # refused as a whole
        may_create = creates_topics and call.request.allow_auto_topic_creation
        refusals = []
        for number, topic in enumerate(asked, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            refusals.append(_refusal(call, topic, may_create=may_create))
        allowed = [topic for topic, each in zip(asked, refusals, strict=True) if each is None]
        call.narrow(topics=allowed)

        def merge(response: Any) -> Generator[None, None, Any]:
            if not allowed:
                response.topics = []  # version 0 has all topics then
            yield from _add_operations(call, response)
            response.topics.extend(each for each in refusals if each is not None)
            return response

        return merge

    return guard


def _visible(call: Call, response: Any) -> Generator[None, None, Any]:
    topics = []
    for number, topic in enumerate(response.topics, 1):
        if number % ASKED_AT_ONCE == 0:
            yield
        if call.topic(Operation.DESCRIBE, topic.name, logs=False):
            topics.append(topic)
    response.topics = topics
    yield from _add_operations(call, response)
    return response


def _add_operations(call: Call, response: Any) -> Generator[None, None, None]:
    request = call.request
    if request.include_topic_authorized_operations:
        named = [topic for topic in response.topics if topic.name is not None]
        for number, topic in enumerate(named, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            topic.topic_authorized_operations = _operations(call, topic.name)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _of_cluster(call)


def _refusal(call: Call, topic: Any, *, may_create: bool) -> Any:
    """Return the refused topic, or None if it is allowed. Ids are no secret, names are."""
    Topic: Any = call.api.response.MetadataResponseTopic  # type: ignore[attr-defined]  # noqa: N806
    if topic.topic_id != ZERO_UUID:
        name = call.image.topic_names.get(topic.topic_id)
        if name is None or call.topic(Operation.DESCRIBE, name):
            return None
        return Topic(error_code=int(DENIED), name=None, topic_id=topic.topic_id)
    name = topic.name or ""
    if not call.topic(Operation.DESCRIBE, name):
        return Topic(error_code=int(DENIED), name=name)
    if (
        not may_create
        or name in call.image.topics
        or call.caller.allows_cluster(Operation.CREATE, logs=False)
        or call.topic(Operation.CREATE, name)
    ):
        return None
    return Topic(error_code=int(DENIED), name=name)


def describe_topic_partitions(call: Call) -> Verdicts:
    """DescribeTopicPartitions: DESCRIBE on each topic."""
    request = call.request
    Topic: Any = call.api.response.DescribeTopicPartitionsResponseTopic  # type: ignore[attr-defined]  # noqa: N806
    TopicRequest: Any = type(request).TopicRequest  # noqa: N806 - a class
    first = "" if request.cursor is None else request.cursor.topic_name
    is_all = not request.topics
    names = list(call.image.topics) if is_all else [topic.name for topic in request.topics]
    if request.cursor is not None and (
        request.cursor.partition_index < 0 or (not is_all and first not in names)
    ):
        return None  # refused as a whole
    allowed, denied = yield from divided(
        names, lambda name: call.topic(Operation.DESCRIBE, name, logs=not is_all)
    )
    refused = [
        Topic(error_code=int(DENIED), name=name)
        for name in dict.fromkeys(() if is_all else denied)
        if name >= first
    ]
    # A cursor that names a hidden topic goes on with the next one.
    cursor = request.cursor
    if cursor is not None and first not in allowed:
        following = sorted(name for name in allowed if name > first)
        cursor = type(cursor)(topic_name=following[0], partition_index=0) if following else None
        allowed = following
    call.narrow(cursor=cursor, topics=[TopicRequest(name=name) for name in allowed])
    has_none = not allowed

    def merge(response: Any) -> Generator[None, None, Any]:
        if has_none:  # a request without topics is one for all
            response.topics, response.next_cursor = [], None
        for number, topic in enumerate(response.topics, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            topic.topic_authorized_operations = _operations(call, topic.name)
        response.topics.extend(refused)
        return response

    return merge


def describe_cluster(call: Call) -> Verdict:
    """DescribeCluster: the caller's operations."""
    if not call.request.include_cluster_authorized_operations:
        return None

    def merge(response: Any) -> Any:
        if not response.error_code:
            response.cluster_authorized_operations = _of_cluster(call)
        return response

    return merge


def describe_controllers(call: Call) -> Verdict:
    """DescribeCluster on a controller, which needs ALTER on the cluster: the caller's operations
    (Kafka: ControllerApis.handleDescribeCluster)."""
    return needs(Operation.ALTER)(call) or describe_cluster(call)


def _operations(call: Call, name: str) -> int:
    return call.caller.operations(ResourceType.TOPIC, name)


def _of_cluster(call: Call) -> int:
    """Return the caller's operations on the cluster; none without DESCRIBE."""
    if not call.caller.allows_cluster(Operation.DESCRIBE):
        return 0
    return call.caller.operations(ResourceType.CLUSTER, CLUSTER_NAME)
