"""Guards of groups: members, offsets, coordinators, share groups."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.authorization.guard import ASKED_AT_ONCE, Answer, divided
from tidelog.security.acls import Operation
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.naming import only
from tidelog_protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.authorization.guard import Call, Guard, Verdict, Verdicts

__all__ = [
    "alter_share_group_offsets",
    "delete_groups",
    "delete_share_group_offsets",
    "describe_share_group_offsets",
    "find_coordinator",
    "heartbeat",
    "join_group",
    "list_groups",
    "offset_fetch",
    "streams_heartbeat",
    "with_group",
]

DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2  # kinds of coordinators
_CODES = {_GROUP: DENIED, _TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_NOWHERE = {"node_id": -1, "host": "", "port": -1}
_TEXT = "Group authorization failed."
_NAMELESS_SINCE = 7  # JoinGroup
_KEYS_SINCE = 4  # FindCoordinator
_SHARES_SINCE = 6
_GROUPS_SINCE = 8  # OffsetFetch
_GROUP_ERROR_SINCE = 2


def with_group(
    operation: Operation, topics: Operation | None = None, *, at_the_top: bool = False
) -> Guard:
    """Return the guard of an API that needs an operation on its group, and perhaps another one on
    each of its topics. `at_the_top`: there is one error for all of the request."""

    def guard(call: Call) -> Verdict | Verdicts:
        group_id = call.request.group_id
        if not call.group(operation, group_id or ""):
            return _refused_at_the_top(call) if at_the_top else call.refuse(DENIED)
        if topics is None:
            return None
        return call.allowed(topics, call.request.topics, asks_always=True)

    return guard


def join_group(call: Call) -> Verdict:
    """JoinGroup: READ on the group."""
    if call.group(Operation.READ, call.request.group_id):
        return None
    no_name = None if call.version >= _NAMELESS_SINCE else ""
    return Answer(call.api.response(error_code=int(DENIED), protocol_name=no_name))


def _refused_at_the_top(call: Call) -> Answer:
    response: Any = call.api.response(error_code=int(DENIED))
    if hasattr(response, "error_message") and "OFFSETS" in call.api.key.name:
        response.error_message = _TEXT
    return Answer(response)


def heartbeat(call: Call) -> Verdict:
    """Heartbeats of consumer and share groups: READ on the group, DESCRIBE on the topics that the
    member names."""
    return _heartbeat(call, call.request.subscribed_topic_names or ())


def streams_heartbeat(call: Call) -> Verdict:
    """StreamsGroupHeartbeat: READ on the group, DESCRIBE on the topics of the topology."""
    return _heartbeat(call, topics_of(call.request.topology))


def _heartbeat(call: Call, topics: Any) -> Verdict:
    code = ErrorCode.NONE
    if not call.group(Operation.READ, call.request.group_id):
        code = DENIED
    elif not all(call.topic(Operation.DESCRIBE, name) for name in topics):
        code = _TOPIC_DENIED
    return None if code is ErrorCode.NONE else Answer(call.api.response(error_code=int(code)))


def topics_of(topology: Any) -> list[str]:
    """Return the topics that a topology names."""
    return [
        name
        for each in (topology.subtopologies if topology is not None else None) or ()
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    ]


def list_groups(call: Call) -> Verdict:
    """ListGroups: DESCRIBE on the cluster, or on each group that is listed."""
    if call.caller.allows_cluster(Operation.DESCRIBE, logs=False):
        return None

    def filtered(response: Any) -> Any:
        response.groups = [
            group
            for group in response.groups
            if call.group(Operation.DESCRIBE, group.group_id, logs=False)
        ]
        return response

    return filtered


def delete_groups(call: Call) -> Verdicts:
    """DeleteGroups: DELETE on each group."""
    Result: Any = call.api.response.DeletableGroupResult  # type: ignore[attr-defined]  # noqa: N806
    allowed, denied = yield from divided(
        call.request.groups_names, partial(call.group, Operation.DELETE)
    )
    if not denied:
        return None
    refused = [Result(group_id=name, error_code=int(DENIED)) for name in dict.fromkeys(denied)]
    if not allowed:
        return Answer(call.api.response(results=refused))
    call.request = type(call.request)(groups_names=allowed)

    def merge(response: Any) -> Any:
        response.results.extend(refused)
        return response

    return merge


# ---- coordinators -----------------------------------------------------------------------------


def find_coordinator(call: Call) -> Verdicts:
    """FindCoordinator: DESCRIBE on the group or transactional id; those of share partitions are
    for brokers."""
    request = call.request
    if request.key_type == _SHARE and call.version >= _SHARES_SINCE:
        may_find = call.caller.allows_cluster(Operation.CLUSTER_ACTION)
        return None if may_find else _refuse_shares(call)
    code = _CODES.get(request.key_type)
    keys = [request.key] if call.version < _KEYS_SINCE else request.coordinator_keys
    if code is None:
        return None
    allowed, denied = yield from divided(keys, partial(_may_find, call))
    return _refuse_coordinators(call, allowed, denied, code) if denied else None


def _refuse_shares(call: Call) -> Answer:
    Coordinator: Any = call.api.response.Coordinator  # type: ignore[attr-defined]  # noqa: N806
    refused = {
        "error_code": int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        "error_message": "Cluster authorization failed.",
        **_NOWHERE,
    }
    keys = call.request.coordinator_keys
    return Answer(call.api.response(coordinators=[Coordinator(key=key, **refused) for key in keys]))


def _refuse_coordinators(
    call: Call, allowed: list[str], denied: list[str], code: ErrorCode
) -> Verdict:
    nowhere = {"error_code": int(code), **_NOWHERE}
    if call.version < _KEYS_SINCE:
        text = _TEXT if code is DENIED else "Transactional Id authorization failed."
        return Answer(call.api.response(error_message=text, **nowhere))
    Coordinator: Any = call.api.response.Coordinator  # type: ignore[attr-defined]  # noqa: N806
    refused = [Coordinator(key=key, **nowhere) for key in denied]
    if not allowed:
        return Answer(call.api.response(coordinators=refused))
    call.narrow(coordinator_keys=allowed)

    def merge(response: Any) -> Any:
        response.coordinators.extend(refused)
        return response

    return merge


def _may_find(call: Call, key: str) -> bool:
    if call.request.key_type == _GROUP:
        return call.group(Operation.DESCRIBE, key)
    return call.transaction(Operation.DESCRIBE, key)


# ---- offsets ----------------------------------------------------------------------------------


def offset_fetch(call: Call) -> Verdicts:
    """OffsetFetch: DESCRIBE on each group and topic. Topics that were not asked for are left
    out."""
    if call.version < _GROUPS_SINCE:
        return (yield from _fetch_of_one_group(call))
    Group: Any = call.api.response.OffsetFetchResponseGroup  # type: ignore[attr-defined]  # noqa: N806
    request = call.request
    seen, hidden = yield from divided(request.groups, partial(_may_describe, call))
    refused = [Group(group_id=each.group_id, topics=[], error_code=int(DENIED)) for each in hidden]
    denied: dict[str, list[Any]] = {}
    kept = []
    for group in seen:
        names = yield from call.denied(Operation.DESCRIBE, group.topics or ())
        if names:
            left, denied[group.group_id] = yield from divided(
                group.topics, partial(_is_left, call, names)
            )
            values = {field.name: getattr(group, field.name) for field in group.FIELDS}
            group = type(group)(**{**values, "topics": left})  # noqa: PLW2901 - without them
        kept.append(group)
    if not kept:
        return Answer(call.api.response(groups=refused))
    call.narrow(groups=kept)

    def merge(response: Any) -> Generator[None, None, Any]:
        for number, group in enumerate(response.groups, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            if group.error_code == ErrorCode.NONE:
                yield from _hide_topics(call, group)
                group.topics.extend(
                    _refused_topic(Group.OffsetFetchResponseTopics, topic)
                    for topic in denied.get(group.group_id, ())
                )
        response.groups.extend(refused)
        return response

    return merge


def _may_describe(call: Call, group: Any) -> bool:
    return call.group(Operation.DESCRIBE, group.group_id)


def _is_left(call: Call, denied: set[str], topic: Any) -> bool:
    return call.name_of(topic) not in denied


def _fetch_of_one_group(call: Call) -> Verdicts:
    Topic: Any = call.api.response.OffsetFetchResponseTopic  # type: ignore[attr-defined]  # noqa: N806
    topics = call.request.topics
    if not call.group(Operation.DESCRIBE, call.request.group_id):
        if call.version >= _GROUP_ERROR_SINCE:
            return Answer(call.api.response(topics=[], error_code=int(DENIED)))
        refusals = [_refused_topic(Topic, topic, DENIED) for topic in topics or ()]
        return Answer(call.api.response(topics=refusals))
    names = yield from call.denied(Operation.DESCRIBE, topics or ())
    refused = [topic for topic in topics or () if topic.name in names]
    if refused:
        call.request, _ = only(call.request, lambda topic, _: topic not in names, {})

    def merge(response: Any) -> Generator[None, None, Any]:
        if not response.error_code:
            yield from _hide_topics(call, response)
            response.topics.extend(_refused_topic(Topic, topic) for topic in refused)
        return response

    return merge


def _hide_topics(call: Call, group: Any) -> Generator[None, None, None]:
    group.topics, _ = yield from divided(
        group.topics,
        lambda topic: not (name := call.name_of(topic)) or call.topic(Operation.DESCRIBE, name),
    )


def _refused_topic(kind: Any, topic: Any, code: ErrorCode = _TOPIC_DENIED) -> Any:
    Partition = next(each.element for each in kind.FIELDS if each.name == "partitions")  # noqa: N806
    refused = kind(
        name=topic.name,
        partitions=[
            Partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
            for index in topic.partition_indexes
        ],
    )
    if hasattr(refused, "topic_id"):
        refused.topic_id = topic.topic_id
    return refused


# ---- offsets of share groups ------------------------------------------------------------------


def alter_share_group_offsets(call: Call) -> Verdicts:
    """AlterShareGroupOffsets: READ on the group and on each topic."""
    if not call.group(Operation.READ, call.request.group_id):
        return _refused_at_the_top(call)
    verdict = yield from call.allowed(Operation.READ, call.request.topics, asks_always=True)
    if verdict is None or isinstance(verdict, Answer):
        return verdict

    def explain(response: Any) -> Generator[None, None, Any]:
        response = yield from verdict(response)
        for number, topic in enumerate(response.responses, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            if any(each.error_code == _TOPIC_DENIED for each in topic.partitions):
                known = call.image.topics.get(topic.topic_name)
                topic.topic_id = ZERO_UUID if known is None else known.topic_id
                for each in topic.partitions:
                    each.error_message = "Topic authorization failed."
        return response

    return explain


def describe_share_group_offsets(call: Call) -> Verdicts:
    """DescribeShareGroupOffsets: DESCRIBE on each group and topic. Topics that were not asked for
    are left out."""
    Group: Any = call.api.response.DescribeShareGroupOffsetsResponseGroup  # type: ignore[attr-defined]  # noqa: N806
    Topic = Group.DescribeShareGroupOffsetsResponseTopic  # noqa: N806 - a class
    Partition = Topic.DescribeShareGroupOffsetsResponsePartition  # noqa: N806 - a class

    def may_see(topic: Any) -> bool:
        return call.topic(Operation.DESCRIBE, topic.topic_name)

    seen, hidden = yield from divided(call.request.groups, partial(_may_describe, call))
    refused = [Group(group_id=each.group_id, error_code=int(DENIED)) for each in hidden]
    kept = []
    denied: dict[str, list[Any]] = {}
    for group in seen:
        topics = group.topics
        if topics:
            topics, denied[group.group_id] = yield from divided(topics, may_see)
        is_whole = topics is group.topics
        kept.append(group if is_whole else type(group)(group_id=group.group_id, topics=topics))
    if not kept:
        return Answer(call.api.response(groups=refused))
    call.request = type(call.request)(groups=kept)

    def merge(response: Any) -> Generator[None, None, Any]:
        for number, group in enumerate(response.groups, 1):
            if number % ASKED_AT_ONCE == 0:
                yield
            if group.error_code:
                continue
            group.topics, _ = yield from divided(group.topics, may_see)
            group.topics.extend(
                Topic(
                    topic_name=topic.topic_name,
                    partitions=[
                        Partition(
                            partition_index=index,
                            start_offset=-1,
                            error_code=_TOPIC_DENIED,
                            error_message="Topic authorization failed.",
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in denied.get(group.group_id, ())
            )
        response.groups.extend(refused)
        return response

    return merge


def delete_share_group_offsets(call: Call) -> Verdicts:
    """DeleteShareGroupOffsets: DELETE on the group, READ on each topic."""
    request = call.request
    if not call.group(Operation.DELETE, request.group_id):
        return _refused_at_the_top(call)
    may, denied = yield from divided(
        request.topics, lambda topic: call.topic(Operation.READ, topic.topic_name)
    )
    if not denied:
        return None
    Topic: Any = call.api.response.DeleteShareGroupOffsetsResponseTopic  # type: ignore[attr-defined]  # noqa: N806
    refused = [
        Topic(
            topic_name=topic.topic_name,
            error_code=_TOPIC_DENIED,
            error_message="Topic authorization failed.",
        )
        for topic in denied
    ]
    call.request = type(request)(group_id=request.group_id, topics=may)

    def merge(response: Any) -> Any:
        if not response.error_code:
            response.responses[:0] = refused
        return response

    return merge
