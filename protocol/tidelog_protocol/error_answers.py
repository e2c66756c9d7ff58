"""Answers with errors, for any API: what a request names, with the error where Kafka has it.

The error stands at each partition, topic or group, else at the top. The forms are read from the
message tables, as in `naming.py`, so that an API needs no code of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog_protocol.naming import (
    PARTITION_FIELDS,
    TOPIC_FIELDS,
    is_topics,
    partitions_field,
    topic_of,
)
from tidelog_protocol.schema import Struct, StructType

if TYPE_CHECKING:
    from tidelog_protocol.apis import Api
    from tidelog_protocol.errors import ErrorCode

__all__ = ["add_answers", "error_answer"]

_ERROR_FIELDS = frozenset({"error_code", "partition_error_code"})
# The request's array for an array of the answer, where their names differ.
_SOURCES = {
    "coordinators": ("coordinator_keys",),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "transaction_states": ("transactional_ids",),
}
_COPIED = frozenset(
    {
        *TOPIC_FIELDS,
        "topic_id",
        "group_id",
        "transactional_id",
        "resource_type",
        "resource_name",
        "member_id",
        "group_instance_id",
        "producer_id",
        "id",
    }
)
# Errors of a whole group stand beside its topics or members here, and clients look there first.
_WHOLE = frozenset({"OffsetFetchResponse", "OffsetFetchResponseGroup", "LeaveGroupResponse"})


def error_answer(api: Api, request: Any, code: ErrorCode) -> Any:
    """Return the answer of a request that fails with an error, before any work."""
    return _mirror(api.response, request, code)


def _mirror(table: Any, source: Any, code: ErrorCode) -> Any:
    """Return a struct of the answer for a struct, or a plain value, of the request."""
    answer = table()
    _identify(answer, source)
    is_inside = False
    if table.__name__ not in _WHOLE or _has_groups(source):
        for field in table.FIELDS:
            items = _source(field, source)
            if items:
                setattr(answer, field.name, [_mirror(field.element, each, code) for each in items])
                is_inside = True
    for field in table.FIELDS:
        if field.name in _ERROR_FIELDS and not is_inside:
            setattr(answer, field.name, int(code))
    return answer


def _has_groups(source: Any) -> bool:
    return bool(getattr(source, "groups", None))


def _source(field: Any, source: Any) -> list[Any]:
    """Return the items of the request that an array of the answer has errors for."""
    if field.kind != "array" or not isinstance(field.element, StructType):
        return []
    if not _has_errors(field.element):
        return []
    for name in (field.name, *_SOURCES.get(field.name, ())):
        items = getattr(source, name, None)
        if items:
            return list(items)
    return []


def _has_errors(table: Any) -> bool:
    return any(
        field.name in _ERROR_FIELDS
        or (isinstance(field.element, StructType) and _has_errors(field.element))
        for field in table.FIELDS
    )


def _identify(answer: Any, source: Any) -> None:
    """Copy what names a part of the answer."""
    names = {field.name for field in answer.FIELDS}
    if not isinstance(source, Struct):
        plain = PARTITION_FIELDS if isinstance(source, int) else (*TOPIC_FIELDS, "key", *_COPIED)
        for name in plain:
            if name in names and isinstance(getattr(answer, name), type(source)):
                setattr(answer, name, source)
                return
        return
    for name in names & _COPIED:
        if hasattr(source, name):
            setattr(answer, name, getattr(source, name))
    for wanted, candidates in ((PARTITION_FIELDS, PARTITION_FIELDS), (TOPIC_FIELDS, TOPIC_FIELDS)):
        value = next((getattr(source, name) for name in candidates if hasattr(source, name)), None)
        own = next((name for name in wanted if name in names), None)
        if own is not None and value is not None:
            setattr(answer, own, value)


def add_answers(answer: Any, more: Any) -> None:
    """Add the topics and partitions of one answer to those of another."""
    for field in answer.FIELDS:
        added = getattr(more, field.name)
        if not added or field.kind != "array" or not isinstance(field.element, StructType):
            continue
        present = getattr(answer, field.name) or []
        if not is_topics(field):  # transactions and directories, in the order of the request
            for own, other in zip(present, added, strict=False):
                add_answers(own, other)
            continue
        by_name = {_identity(topic): topic for topic in present}
        for topic in added:
            own = by_name.get(_identity(topic))
            name = partitions_field(topic)
            if own is None or name is None:
                present.append(topic)
            else:
                getattr(own, name).extend(getattr(topic, name))
        setattr(answer, field.name, present)


def _identity(topic: Any) -> tuple[str, bytes]:
    return topic_of(topic, {}), bytes(getattr(topic, "topic_id", b""))
