"""Answers with errors, for any API: what a request names, with the error where Kafka has it.

The error stands at each partition, topic or group, else at the top. The forms are read from the
message tables, as in `naming.py`, so that an API needs no code of its own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

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
    form = _form(table, source.__class__)
    answer = table()
    if form.plain is not None:
        setattr(answer, form.plain, source)
    for own, name in form.copied:
        setattr(answer, own, getattr(source, name))
    for own, name in form.named:
        if (value := getattr(source, name)) is not None:
            setattr(answer, own, value)
    is_inside = False
    if not form.is_whole or getattr(source, "groups", None):
        for own, names, element in form.arrays:
            items = next((items for name in names if (items := getattr(source, name))), None)
            if items:
                setattr(answer, own, [_mirror(element, each, code) for each in items])
                is_inside = True
    if not is_inside:
        for own in form.errors:
            setattr(answer, own, int(code))
    return answer


class _Form(NamedTuple):
    """How a struct of an answer is made of one class of sources: requests have thousands."""

    plain: str | None
    """The field that takes the source itself, which is no struct."""
    copied: tuple[tuple[str, str], ...]
    """Fields, and those of the source that they take: what names this part of the answer."""
    named: tuple[tuple[str, str], ...]
    """The same, if the source's is not null."""
    arrays: tuple[tuple[str, tuple[str, ...], Any], ...]
    """Arrays that have errors, the source's arrays that they may be of, and their elements."""
    errors: tuple[str, ...]
    is_whole: bool


@cache
def _form(table: Any, source: type) -> _Form:
    names = {field.name for field in table.FIELDS}
    plain, copied, named = None, [], []
    if issubclass(source, Struct):
        copied = [(name, name) for name in names & _COPIED if hasattr(source, name)]
        for wanted in (PARTITION_FIELDS, TOPIC_FIELDS):
            own = next((name for name in wanted if name in names), None)
            other = next((name for name in wanted if hasattr(source, name)), None)
            if own is not None and other is not None:
                named.append((own, other))
    else:
        plain = _plain_field(table(), names, source)
    arrays = []
    for field in table.FIELDS:
        if field.kind == "array" and isinstance(field.element, StructType):
            theirs = tuple(
                n for n in (field.name, *_SOURCES.get(field.name, ())) if hasattr(source, n)
            )
            if theirs and _has_errors(field.element):
                arrays.append((field.name, theirs, field.element))
    errors = tuple(name for name in names if name in _ERROR_FIELDS)
    return _Form(
        plain, tuple(copied), tuple(named), tuple(arrays), errors, table.__name__ in _WHOLE
    )


def _plain_field(answer: Any, names: set[str], source: type) -> str | None:
    """Return the field of an answer that names a plain value, by its type."""
    candidates = (
        PARTITION_FIELDS if issubclass(source, int) else (*TOPIC_FIELDS, "key", *sorted(_COPIED))
    )
    return next(
        (
            name
            for name in candidates
            if name in names and isinstance(getattr(answer, name), source)
        ),
        None,
    )


def _has_errors(table: Any) -> bool:
    return any(
        field.name in _ERROR_FIELDS
        or (isinstance(field.element, StructType) and _has_errors(field.element))
        for field in table.FIELDS
    )


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
