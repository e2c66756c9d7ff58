"""The cluster's topics, as a group sees them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.coordinators.groups.modern.metadata_hash import hash_of_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.cluster.metadata.image import ClusterImage

__all__ = ["ImageTopics", "Topics"]

_HASHES_MAX = 1000  # as many subscriptions that differ; a hash of 1,000 partitions takes 2 ms


class Topics(Protocol):
    """The topics of the cluster, as a group sees them."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return the id and the number of partitions of a topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""

    def matching(self, regex: str) -> frozenset[str]:
        """Return the topics whose whole names match; ValueError for an invalid pattern."""

    def hash_of(self, names: Iterable[str]) -> int:
        """Return a hash of these topics' ids, partitions and racks; 0 without any topic."""

    @property
    def version(self) -> int:
        """The offset of the metadata log that this is of."""


class ImageTopics:
    """Implements `Topics` over a cluster image."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._hashes: dict[frozenset[str], int] = {}
        self._may_describe: Callable[[str], bool] | None = None

    def seen_by(self, may_describe: Callable[[str], bool] | None) -> ImageTopics:
        """Return the topics for one caller: patterns match those that it may describe (Kafka:
        TopicRegexResolver). All callers share the hashes. None: there is no authorizer."""
        if may_describe is None:
            return self
        seen = ImageTopics(self._image)
        seen._hashes, seen._may_describe = self._hashes, may_describe
        return seen

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return the id and the number of partitions of a topic."""
        topic = self._image.topics.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""
        return self._image.topic_names.get(topic_id)

    def matching(self, regex: str) -> frozenset[str]:
        """Return the topics whose whole names match, of those that the caller may describe;
        ValueError for an invalid pattern, and for any without google-re2."""
        try:
            from tidelog.config.patterns import matcher  # noqa: PLC0415 - the first one
        except ModuleNotFoundError:
            raise ValueError(
                "the broker has no google-re2, run: pip install 'tidelog[re2]'"
            ) from None
        found = filter(matcher(regex), self._image.topics)
        return frozenset(found if self._may_describe is None else filter(self._may_describe, found))

    def hash_of(self, names: Iterable[str]) -> int:
        """Return a hash of these topics' ids, partitions and racks; 0 without any topic."""
        key = frozenset(names)
        known = self._hashes.get(key)
        if known is None:
            if len(self._hashes) >= _HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[key] = hash_of_topics(self._image, key)
        return known

    @property
    def version(self) -> int:
        """The offset of the metadata log that this is of."""
        return self._image.offset
