"""What the parts of a share group see: its settings, the group itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.coordinators.groups.modern.member import Partitions
from tidelog.coordinators.groups.modern.views import GroupView
from tidelog.coordinators.groups.share.member import ShareMember

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.subscriptions import Subscriptions
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.share.partitions import SharePartitions

__all__ = ["ShareGroupView", "ShareLimits"]


class ShareLimits(NamedTuple):
    """The settings of one share group: its own, or the broker's `group.share.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 200
    assignment_interval_ms: int = 1_000  # shortest time between two target assignments
    initialize_retry_ms: int = 30_000


class ShareGroupView(GroupView[ShareMember, Partitions], Protocol):
    """A group as a draft of a heartbeat reads it."""

    partitions: SharePartitions
    subscriptions: Subscriptions

    @property
    def limits(self) -> ShareLimits:
        """The settings that count for it."""

    def is_unassigned(self, topics: Topics) -> bool:
        """Return whether initialized partitions are not in the target assignment yet."""

    def may_retry(self, topic_id: bytes, now: Now) -> bool:
        """Return whether a topic's state may be initialized again."""
