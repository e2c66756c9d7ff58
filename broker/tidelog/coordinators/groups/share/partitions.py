"""The share partitions of a group: of which the share coordinator has state, or soon will. Pure.

Kafka keeps them in ShareGroupStatePartitionMetadata. A topic may be in two places: some of its
partitions initialized, new ones initializing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    Topics = Mapping[bytes, "TopicPartitions"]

V = TypeVar("V")

__all__ = ["NO_TOPICS", "SharePartitions", "TopicPartitions"]

NO_TOPICS: Topics = MappingProxyType({})


class TopicPartitions(NamedTuple):
    """The name of a topic and some of its partitions."""

    name: str
    partitions: frozenset[int]


class SharePartitions(NamedTuple):
    """By topic id. A step makes a new one."""

    initializing: Topics = NO_TOPICS
    initialized: Topics = NO_TOPICS
    deleting: Mapping[bytes, str] = MappingProxyType({})
    """Names of topics whose state is being deleted."""

    def missing(self, topic_id: bytes, count: int, *, is_retry: bool) -> frozenset[int]:
        """Return the partitions of a topic to initialize; a retry repeats those that are being
        initialized."""
        known = _of(self.initialized, topic_id)
        if not is_retry:
            known |= _of(self.initializing, topic_id)
        if len(known) >= count:
            return frozenset()
        return frozenset(range(count)) - known

    def begun(self, topics: Topics) -> SharePartitions:
        """Return it with these partitions initializing, which ends the deletion of their topics."""
        return self._replace(
            initializing=_joined(self.initializing, topics),
            deleting=_without_keys(self.deleting, topics),
        )

    def initialized_now(self, topics: Topics) -> SharePartitions:
        """Return it with these partitions initialized."""
        return self._replace(
            initializing=_without(self.initializing, topics),
            initialized=_joined(self.initialized, topics),
        )

    def failed(self, topics: Topics) -> SharePartitions:
        """Return it without these partitions among those that initialize."""
        return self._replace(initializing=_without(self.initializing, topics))

    def deleting_now(self, names: Mapping[bytes, str]) -> SharePartitions:
        """Return it with the initialized partitions of these topics being deleted."""
        return self._replace(
            initialized=_without_keys(self.initialized, names),
            deleting={**self.deleting, **names},
        )

    def deleted(self, topic_ids: Iterable[bytes]) -> SharePartitions:
        """Return it after the state of these topics is deleted."""
        return self._replace(deleting=_without_keys(self.deleting, topic_ids))

    def forgotten(self, gone: AbstractSet[bytes]) -> SharePartitions:
        """Return it without these topics, which are deleted."""
        return SharePartitions(
            _without_keys(self.initializing, gone),
            _without_keys(self.initialized, gone),
            _without_keys(self.deleting, gone),
        )

    def to_delete(self, counts: Mapping[bytes, int]) -> dict[bytes, frozenset[int]]:
        """Return all partitions that may have state. `counts` has the number of partitions of the
        topics that exist: of one that was being deleted, all are."""
        topics = _joined(self.initialized, self.initializing)
        found = {topic_id: each.partitions for topic_id, each in topics.items()}
        for topic_id in self.deleting:
            if topic_id in counts:
                every = frozenset(range(counts[topic_id]))
                found[topic_id] = found.get(topic_id, frozenset()) | every
        return found


def _of(topics: Topics, topic_id: bytes) -> frozenset[int]:
    return topics[topic_id].partitions if topic_id in topics else frozenset()


def _joined(topics: Topics, more: Topics) -> Topics:
    joined = dict(topics)
    for topic_id, each in more.items():
        joined[topic_id] = TopicPartitions(each.name, each.partitions | _of(topics, topic_id))
    return joined


def _without(topics: Topics, gone: Topics) -> Topics:
    rest = {}
    for topic_id, each in topics.items():
        left = each.partitions - _of(gone, topic_id)
        if left:
            rest[topic_id] = each._replace(partitions=left)
    return rest


def _without_keys(given: Mapping[bytes, V], gone: Iterable[bytes]) -> dict[bytes, V]:
    removed = frozenset(gone)
    return {topic_id: each for topic_id, each in given.items() if topic_id not in removed}
