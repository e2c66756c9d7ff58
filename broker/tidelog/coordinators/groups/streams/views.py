"""What the parts of a streams group see: its settings, the group itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.coordinators.groups.modern.views import GroupView
from tidelog.coordinators.groups.streams.member import StreamsMember
from tidelog.coordinators.groups.streams.tasks import TaskSets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.streams.holders import TaskHolders
    from tidelog.coordinators.groups.streams.topology import ConfiguredTopology
    from tidelog_protocol.messages.streams_group_records import StreamsGroupTopologyValue

__all__ = ["STANDBY_REPLICAS", "StreamsGroupView", "StreamsLimits"]

STANDBY_REPLICAS = "num.standby.replicas"  # the only setting of the assignor, in a group's record


class StreamsLimits(NamedTuple):
    """The settings of one streams group: its own, or the broker's `group.streams.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 2147483647
    assignment_interval_ms: int = 1_000  # shortest time between two target assignments
    initial_rebalance_delay_ms: int = 3_000
    standby_replicas: int = 0


class StreamsGroupView(GroupView[StreamsMember, TaskSets], Protocol):
    """A group as a draft of a heartbeat reads it."""

    validated_epoch: int
    topology: StreamsGroupTopologyValue | None
    holders: TaskHolders

    @property
    def limits(self) -> StreamsLimits:
        """The settings that count for it."""

    @property
    def configs(self) -> Mapping[str, str]:
        """The settings of the assignor, in this epoch."""

    @property
    def configured(self) -> ConfiguredTopology | None:
        """The topology beside the topics of the last look."""

    @property
    def is_delayed(self) -> bool:
        """Whether the first assignment waits for more members."""

    def topics_seen(self, configured: ConfiguredTopology) -> None:
        """Note what the topology is beside the current topics."""
