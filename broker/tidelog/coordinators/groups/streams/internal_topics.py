"""The internal topics of a streams group: how many partitions each has, and which are missing.

Pure; the rules are those of Kafka's InternalTopicManager, RepartitionTopics, ChangelogTopics and
CopartitionedTopicsEnforcer.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.streams.topology import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    GroupStatus,
    InternalTopic,
    Status,
)
from tidelog.java_order import hash_order
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

    Subtopology = StreamsGroupTopologyValue.Subtopology
    CountOf = Callable[[str], int | None]
    """The number of partitions of a topic, None if there is no such topic."""

__all__ = ["configure_topics", "required_topics"]

_NAMES_MAX = 3  # of topics, in one message


class _UnfitError(Exception):
    """The topics of the cluster do not fit the topology."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = GroupStatus(status, detail)


def required_topics(topology: StreamsGroupTopologyValue) -> list[str]:
    """Return the topics that the tasks read and write state to."""
    return hash_order(
        name
        for each in _in_order(topology)
        for name in chain(
            each.source_topics,
            (topic.name for topic in each.repartition_source_topics),
            (topic.name for topic in each.state_changelog_topics),
        )
    )


def configure_topics(
    topology: StreamsGroupTopologyValue, partitions_of: CountOf, metadata_hash: int
) -> ConfiguredTopology:
    """Return the topology beside the cluster's topics; RefusedError if it can never be."""
    subtopologies = _in_order(topology)
    try:
        _must_have_sources(subtopologies, partitions_of)
        counts = _decided(subtopologies, partitions_of)

        def count_of(topic: str) -> int:
            return _known(topic, partitions_of, counts)

        configured = {
            each.subtopology_id: _configured(each, counts, count_of)
            for each in sorted(subtopologies, key=lambda each: each.subtopology_id)
        }
        missing = _missing(topology, configured.values(), partitions_of)
    except _UnfitError as error:
        return ConfiguredTopology(topology.epoch, metadata_hash, None, problem=error.problem)
    problem = None
    if missing:
        names = _summary([each.name for each in missing])
        problem = GroupStatus(
            Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}"
        )
    return ConfiguredTopology(topology.epoch, metadata_hash, configured, tuple(missing), problem)


def _in_order(topology: StreamsGroupTopologyValue) -> list[Subtopology]:
    """Return the subtopologies in Kafka's order, on which numbers of partitions may depend."""
    by_id = {each.subtopology_id: each for each in topology.subtopologies}
    return [by_id[each] for each in hash_order(by_id)]


def _must_have_sources(subtopologies: Iterable[Subtopology], partitions_of: CountOf) -> None:
    names = {name for each in subtopologies for name in each.source_topics}
    missing = sorted(name for name in names if partitions_of(name) is None)
    if missing:
        raise _UnfitError(
            Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing."
        )


def _known(topic: str, partitions_of: CountOf, counts: Mapping[str, int]) -> int:
    """Return the partitions that a topic has, or else shall have."""
    found = partitions_of(topic)
    return counts[topic] if found is None else found


def _decided(subtopologies: Sequence[Subtopology], partitions_of: CountOf) -> dict[str, int]:
    """Return the partitions that each internal topic shall have."""
    counts = _repartition_counts(subtopologies, partitions_of)

    def count_of(topic: str) -> int:
        return _known(topic, partitions_of, counts)

    topics = [topic for each in subtopologies for topic in each.repartition_source_topics]
    fixed = frozenset(each.name for each in topics if each.partitions)
    flexible = frozenset(each.name for each in topics if not each.partitions)
    for each in subtopologies:
        for group in _copartition_groups(each):
            counts.update(_copartitioned(group, fixed, flexible, count_of))
    changelogs = {}
    for each in subtopologies:
        tasks = max(map(count_of, _sources(each)), default=None)
        if tasks is None:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        changelogs.update(dict.fromkeys((one.name for one in each.state_changelog_topics), tasks))
    return {**counts, **changelogs}


# ---- repartition topics --------------------------------------------------------------------------


def _repartition_counts(
    subtopologies: Sequence[Subtopology], partitions_of: CountOf
) -> dict[str, int]:
    """Return the partitions of the repartition topics: what the application fixes, or else as many
    as the topics have from which a topic is written. Each round decides at least one."""
    counts = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    is_open = True
    while is_open:
        is_open = has_decided = False
        for each in subtopologies:
            for sink in each.repartition_sink_topics:
                if sink in counts:
                    continue
                count = _most_partitions(each, counts, partitions_of)
                if count is None:
                    is_open = True
                else:
                    counts[sink] = count
                    has_decided = True
        if is_open and not has_decided:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
    if any(
        topic.name not in counts
        for each in subtopologies
        for topic in each.repartition_source_topics
    ):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because "
            "a repartition source topic is never used as a sink topic."
        )
    return counts


def _most_partitions(
    subtopology: Subtopology, counts: Mapping[str, int], partitions_of: CountOf
) -> int | None:
    internal = (counts.get(each.name) for each in subtopology.repartition_source_topics)
    known = chain(internal, map(partitions_of, subtopology.source_topics))
    return max((each for each in known if each is not None), default=None)


# ---- topics that are read together ---------------------------------------------------------------


def _copartition_groups(subtopology: Subtopology) -> Iterator[list[str]]:
    for group in subtopology.copartition_groups:
        yield hash_order(
            chain(
                (subtopology.source_topics[each] for each in group.source_topics),
                (
                    subtopology.repartition_source_topics[each].name
                    for each in group.repartition_source_topics
                ),
            )
        )


def _copartitioned(
    group: Sequence[str],
    fixed: frozenset[str],
    flexible: frozenset[str],
    count_of: Callable[[str], int],
) -> dict[str, int]:
    """Return the partitions of a group's repartition topics: those of the other topics, or else
    the fixed number, or else the largest."""
    if not group:
        return {}
    internal = fixed | flexible
    inner = {each: count_of(each) for each in group if each in internal}
    outer = {each: count_of(each) for each in group if each not in inner}
    if outer:
        count = _same(outer, outer.values())
    elif fixed:  # all of the topology, as in Kafka
        count = _same(inner, map(count_of, fixed))
    else:
        count = max(inner.values())
    for topic, found in inner.items():
        if topic in fixed and found != count:
            raise _UnfitError(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{found}] of repartition topic [{topic}] doesn't match "
                f"number of partitions [{count}] of the source topic.",
            )
    return dict.fromkeys(inner, count)


def _same(topics: Mapping[str, int], counts: Iterable[int]) -> int:
    """Return the only number there is."""
    found = set(counts)
    if len(found) > 1:
        listed = ", ".join(f"{topic}={topics[topic]}" for topic in sorted(topics))
        raise _UnfitError(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return found.pop()


# ---- what comes of it ----------------------------------------------------------------------------


def _sources(subtopology: Subtopology) -> Iterator[str]:
    names = (each.name for each in subtopology.repartition_source_topics)
    return chain(subtopology.source_topics, names)


def _configured(
    subtopology: Subtopology, counts: Mapping[str, int], count_of: Callable[[str], int]
) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        max(map(count_of, _sources(subtopology))),
        frozenset(subtopology.source_topics),
        frozenset(subtopology.repartition_sink_topics),
        _internal(subtopology.repartition_source_topics, counts),
        _internal(subtopology.state_changelog_topics, counts),
    )


def _internal(
    topics: Iterable[Subtopology.TopicInfo], counts: Mapping[str, int]
) -> dict[str, InternalTopic]:
    return {
        each.name: InternalTopic(
            each.name,
            each.partitions or counts[each.name],
            each.replication_factor,
            {one.key: one.value for one in each.topic_configs},
        )
        for each in topics
    }


def _missing(
    topology: StreamsGroupTopologyValue,
    subtopologies: Iterable[ConfiguredSubtopology],
    partitions_of: CountOf,
) -> list[InternalTopic]:
    """Return the internal topics that do not exist. One that exists must have the right number."""
    wanted = {
        name: topic
        for each in subtopologies
        for topics in (each.repartition_source_topics, each.changelog_topics)
        for name, topic in topics.items()
    }
    missing = dict(wanted)
    for name in required_topics(topology):
        found = partitions_of(name)
        if found is None or name not in missing:
            continue
        expected = missing.pop(name).partitions
        if found != expected:
            raise _UnfitError(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {expected}, found {found}",
            )
    return [missing[name] for name in hash_order(wanted) if name in missing]


def _summary(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_NAMES_MAX])
    more = len(names) - _NAMES_MAX
    return f"{listed} and {more} additional topics" if more > 0 else listed


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
