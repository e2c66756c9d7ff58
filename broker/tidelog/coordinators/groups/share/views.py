"""What the parts of a share group see: its settings, the group itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.consumer.subscriptions import Subscriptions
    from tidelog.coordinators.groups.consumer.views import Topics
    from tidelog.coordinators.groups.member import Now
    from tidelog.coordinators.groups.share.member import ShareMember
    from tidelog.coordinators.groups.share.partitions import SharePartitions

__all__ = ["ShareGroupView", "ShareLimits"]


class ShareLimits(NamedTuple):
    """The settings of one share group: its own, or the broker's `group.share.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 200
    assignment_interval_ms: int = 1_000  # shortest time between two target assignments
    initialize_retry_ms: int = 30_000


class ShareGroupView(Protocol):
    """A group as a draft of a heartbeat reads it."""

    group_id: str
    limits: ShareLimits
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    assignment_ms: int  # wall time of the target assignment
    partitions: SharePartitions
    subscriptions: Subscriptions

    @property
    def members(self) -> Mapping[str, ShareMember]:
        """The members by id."""

    @property
    def targets(self) -> Mapping[str, Partitions]:
        """The target assignment by member id."""

    @property
    def is_stale(self) -> bool:
        """Whether topics may have changed since the last look."""

    def topics_seen(self) -> None:
        """Note that the group is of the current topics."""

    def is_unassigned(self, topics: Topics) -> bool:
        """Return whether initialized partitions are not in the target assignment yet."""

    def may_retry(self, topic_id: bytes, now: Now) -> bool:
        """Return whether a topic's state may be initialized again."""
