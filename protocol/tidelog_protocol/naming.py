"""What the messages of all APIs name: topics, partitions, groups, transactional ids.

Read from the message tables, so that an API needs no code of its own. Kafka's tables have a few
names for the same thing; they are listed here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog_protocol.primitives import ZERO_UUID
from tidelog_protocol.schema import Struct, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["PARTITION_FIELDS", "TOPIC_FIELDS", "Names", "is_topics", "names_in", "names_of", "only"]

TOPIC_FIELDS = ("topic", "topic_name", "name")
PARTITION_FIELDS = ("partition_index", "partition", "index", "partition_id")
_TOPIC_ARRAYS = frozenset(
    {
        "topic_data",
        "topic_partitions",
        "topics",
        "v3_and_below_topics",
        "responses",
        "results",
        "results_by_topic_v3_and_below",
        "replica_election_results",
        "topic_results",
    }
)
_TRANSACTIONAL_IDS = frozenset({"transactional_id", "v3_and_below_transactional_id"})
_SCALARS = {
    "topic_names": "topic",
    "groups_names": "group",
    "groups": "group",
    "transactional_ids": "transactional_id",
}
# FindCoordinator's keys are names of the kind that `key_type` says.
_KEY_KINDS = {0: "group", 1: "transactional_id"}


class Names(NamedTuple):
    """What one request names; a partition is None where only its topic is named."""

    partitions: list[tuple[str, int | None]]
    groups: list[str]
    transactional_ids: list[str]


def names_of(request: Any, topic_names: Mapping[bytes, str]) -> Names:
    """Return what a request names; topic ids are looked up in `topic_names`."""
    names = Names([], [], [])
    _collect(request, names, topic_names)
    return names


def _collect(struct: Any, names: Names, topic_names: Mapping[bytes, str]) -> None:
    key_type = getattr(struct, "key_type", None)
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if not value:
            continue
        if is_topics(field) and isinstance(value[0], Struct):
            for topic in value:
                names.partitions.extend(_partitions_of(topic, topic_names))
        elif field.kind == "array" and isinstance(value[0], Struct):
            for inner in value:
                _collect(inner, names, topic_names)
        else:
            _collect_plain(_kind_of(field, key_type), value, names)


def _kind_of(field: Any, key_type: int | None) -> str | None:
    """Return what a plain field, or an array of plain values, names."""
    if field.name in ("key", "coordinator_keys"):
        return _KEY_KINDS.get(-1 if key_type is None else key_type)
    if field.name == "group_id":
        return "group"
    if field.name in _TRANSACTIONAL_IDS:
        return "transactional_id"
    return _SCALARS.get(field.name) if field.kind == "array" else None


def _collect_plain(kind: str | None, value: Any, names: Names) -> None:
    values = value if isinstance(value, list) else [value]
    if kind == "group":
        names.groups.extend(values)
    elif kind == "transactional_id":
        names.transactional_ids.extend(values)
    elif kind == "topic":
        names.partitions.extend((value, None) for value in values)


def is_topics(field: Any) -> bool:
    """Return whether a field is an array with a struct for each topic."""
    return (
        field.name in _TOPIC_ARRAYS
        and _is_struct(field.element)
        and bool({*TOPIC_FIELDS, "topic_id"} & {inner.name for inner in field.element.FIELDS})
    )


def _is_struct(element: Any) -> bool:
    return isinstance(element, StructType)


def topic_of(struct: Any, topic_names: Mapping[bytes, str]) -> str:
    """Return the topic's name in a struct that has a topic; empty if its id is unknown."""
    for name in TOPIC_FIELDS:
        value = getattr(struct, name, None)
        if value:
            return str(value)
    topic_id = getattr(struct, "topic_id", ZERO_UUID)
    return topic_names.get(bytes(topic_id), "")


def partition_of(struct: Any) -> int:
    """Return the partition's number: an element of an array of partitions."""
    if isinstance(struct, int):
        return struct
    for name in PARTITION_FIELDS:
        value = getattr(struct, name, None)
        if value is not None:
            return int(value)
    return -1


def partitions_field(struct: Any) -> str | None:
    """Return the name of a topic's array of partitions; of a topic, or of its table."""
    return _partitions_field(struct if isinstance(struct, type) else type(struct))


@functools.cache
def _partitions_field(struct: Any) -> str | None:
    for field in struct.FIELDS:
        if field.kind != "array" or field.name == "assignments":  # of a topic to create
            continue
        if field.name in ("partitions", "partition_indexes"):
            return str(field.name)
        if _is_struct(field.element) and any(
            inner.name in PARTITION_FIELDS for inner in field.element.FIELDS
        ):
            return str(field.name)
    return None


def _partitions_of(
    topic: Any, topic_names: Mapping[bytes, str]
) -> Iterator[tuple[str, int | None]]:
    name, partitions = topic_of(topic, topic_names), partitions_field(topic)
    given = None if partitions is None else getattr(topic, partitions)
    if not given:
        yield name, None
        return
    for partition in given:
        yield name, partition_of(partition)


def only(
    struct: Any, keep: Callable[[str, int | None], bool], topic_names: Mapping[bytes, str]
) -> tuple[Any, int]:
    """Return a copy with those topics and partitions only, and their number."""
    values, count = {}, 0
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if value and is_topics(field) and isinstance(value[0], Struct):
            kept = []
            for topic in value:
                copy, left = _only_partitions(topic, keep, topic_names)
                if left:
                    kept.append(copy)
                    count += left
            value = kept
        elif value and field.kind == "array" and isinstance(value[0], Struct):
            inner = [only(each, keep, topic_names) for each in value]
            count += sum(left for _, left in inner)
            value = [copy for copy, _ in inner]
        values[field.name] = value
    return type(struct)(**values), count


def _only_partitions(
    topic: Any, keep: Callable[[str, int | None], bool], topic_names: Mapping[bytes, str]
) -> tuple[Any, int]:
    name, partitions = topic_of(topic, topic_names), partitions_field(topic)
    given = None if partitions is None else getattr(topic, partitions)
    if not given:
        return topic, int(keep(name, None))
    values = {field.name: getattr(topic, field.name) for field in topic.FIELDS}
    values[str(partitions)] = [each for each in given if keep(name, partition_of(each))]
    return type(topic)(**values), len(values[str(partitions)])


@functools.cache
def names_in(table: Any) -> frozenset[str]:
    """Return what a request of this table can name."""
    kinds: set[str] = set()
    for field in table.FIELDS:
        if is_topics(field):
            kinds.add("topic")
            if partitions_field(field.element) is not None:
                kinds.add("partition")
        elif _is_struct(field.element):
            kinds |= names_in(field.element)
        elif field.name in ("key", "coordinator_keys"):
            kinds |= set(_KEY_KINDS.values())
        else:
            kind = _kind_of(field, None)
            if kind is not None:
                kinds.add(kind)
    return frozenset(kinds)
