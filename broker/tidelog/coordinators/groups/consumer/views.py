"""What the parts of a consumer group see: its settings, the cluster's topics, the group itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.consumer.subscriptions import Subscriptions

__all__ = ["ConsumerLimits", "GroupView", "Topics"]


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


class ConsumerLimits(NamedTuple):
    """The settings of one consumer group: its own, or the broker's `group.consumer.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 2147483647
    assignment_interval_ms: int = 1_000  # shortest time between two target assignments
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default


class GroupView(Protocol):
    """A group as a draft of a heartbeat reads it."""

    group_id: str
    limits: ConsumerLimits
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_ms: int  # wall time of the target assignment
    subscriptions: Subscriptions

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """The members by id."""

    @property
    def targets(self) -> Mapping[str, Partitions]:
        """The target assignment by member id."""

    @property
    def patterns(self) -> Mapping[str, frozenset[str]]:
        """The topics by regular expression."""

    @property
    def is_stale(self) -> bool:
        """Whether topics may have changed since the last look."""

    def topics_seen(self) -> None:
        """Note that the group is of the current topics."""
