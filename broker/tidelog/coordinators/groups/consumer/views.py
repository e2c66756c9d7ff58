"""What the parts of a consumer group see: its settings, the group itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.coordinators.groups.consumer.member import ConsumerMember
from tidelog.coordinators.groups.modern.member import Partitions
from tidelog.coordinators.groups.modern.views import GroupView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.subscriptions import Subscriptions

__all__ = ["ConsumerGroupView", "ConsumerLimits"]


class ConsumerLimits(NamedTuple):
    """The settings of one consumer group: its own, or the broker's `group.consumer.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 2147483647
    assignment_interval_ms: int = 1_000  # shortest time between two target assignments
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default


class ConsumerGroupView(GroupView[ConsumerMember, Partitions], Protocol):
    """A group as a draft of a heartbeat reads it."""

    subscriptions: Subscriptions

    @property
    def limits(self) -> ConsumerLimits:
        """The settings that count for it."""

    @property
    def patterns(self) -> Mapping[str, frozenset[str]]:
        """The topics by regular expression."""
