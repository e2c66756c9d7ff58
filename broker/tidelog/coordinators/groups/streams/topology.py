"""What a streams group makes of its topology: tasks and internal topics, or why it is not ready.

Values; pure. `internal_topics.py` computes them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ConfiguredSubtopology", "ConfiguredTopology", "GroupStatus", "InternalTopic", "Status"]


class Status(IntEnum):
    """What a heartbeat's answer says about the group."""

    STALE_TOPOLOGY = 0
    """The member has an older topology than the group."""

    MISSING_SOURCE_TOPICS = 1
    """A topic that the application reads does not exist."""

    INCORRECTLY_PARTITIONED_TOPICS = 2
    """Topics that are read together, or a topic that exists already, have a wrong number."""

    MISSING_INTERNAL_TOPICS = 3
    """Internal topics do not exist yet; the coordinator creates them."""

    SHUTDOWN_APPLICATION = 4
    """A member asked that all members of the application end."""

    ASSIGNMENT_DELAYED = 5
    """The target assignment is computed later."""


class GroupStatus(NamedTuple):
    """A status and its details, in Kafka's words."""

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic, as it has to be."""

    name: str
    partitions: int
    replication_factor: int  # 0: the broker's default
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A part of the topology whose tasks read the same topics."""

    tasks: int
    source_topics: frozenset[str]
    repartition_sink_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    changelog_topics: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Return whether the tasks have changelogs."""
        return bool(self.changelog_topics)


class ConfiguredTopology(NamedTuple):
    """A topology beside the topics of the cluster."""

    epoch: int
    metadata_hash: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None  # None: topics do not fit
    missing_topics: tuple[InternalTopic, ...] = ()
    problem: GroupStatus | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether all topics are there, as they have to be."""
        return self.problem is None
