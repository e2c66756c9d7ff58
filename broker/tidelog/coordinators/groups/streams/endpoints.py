"""Which member answers interactive queries for which partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.streams.member import Endpoint, StreamsMember
    from tidelog.coordinators.groups.streams.topology import ConfiguredTopology

    TopicPartitions = tuple[str, list[int]]
    """A topic and partitions of it."""

__all__ = ["EndpointPartitions", "endpoints_of", "partitions_of"]


class EndpointPartitions(NamedTuple):
    """A member's endpoint and the partitions that its tasks read."""

    endpoint: Endpoint
    active: list[TopicPartitions]
    standby: list[TopicPartitions]


def endpoints_of(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, topics: Topics
) -> tuple[EndpointPartitions, ...]:
    """Return the members that have an endpoint, with their partitions."""
    return tuple(
        EndpointPartitions(
            member.description.user_endpoint,
            list(partitions_of(member.assigned.active, configured, topics)),
            list(partitions_of(member.assigned.standby, configured, topics)),
        )
        for member in members
        if member.description.user_endpoint is not None
    )


def partitions_of(
    tasks: Mapping[str, Collection[int]], configured: ConfiguredTopology, topics: Topics
) -> Iterator[TopicPartitions]:
    """Yield what tasks read. A topic with fewer partitions than there are tasks has the first of
    them, as in Kafka."""
    for key in sorted(tasks):
        subtopology = (configured.subtopologies or {}).get(key)
        if subtopology is None:
            continue
        names = subtopology.source_topics | subtopology.repartition_source_topics.keys()
        for name in sorted(names):
            found = topics.find(name)
            if found is not None:
                yield name, sorted(tasks[key])[: found[1]]
