"""The parts of a broker that serve share groups, and the way from them to other brokers.

Made on first use: few brokers have share groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.share.driven import DrivenPersister, DrivenTasks
from tidelog.coordinators.groups.share.end_offsets import EndOffsets
from tidelog.coordinators.groups.share.membership import ShareMembership
from tidelog.coordinators.groups.share.offsets import ShareOffsets
from tidelog.coordinators.groups.share.state_changes import StateChanges
from tidelog.network.peers import Channels

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.share.persister import Persister
    from tidelog.network.peers import PeerChannel
    from tidelog.replication.replica_manager import ReplicaManager

__all__ = ["ShareGroups"]


class ShareGroups:
    """Share groups of a `GroupCoordinator`."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        persister: Persister,
        replicas: ReplicaManager,
        image: Callable[[], ClusterImage],
        new_channel: Callable[[str, int], PeerChannel] | None,
    ) -> None:
        """`new_channel` connects to other brokers' client listeners, None for a lone broker."""
        self._tasks = DrivenTasks()
        self._channels = None
        if new_channel is not None:
            self._channels = Channels(new_channel, lambda node_id: image().address_of(node_id))
        ends = EndOffsets(replicas, image, self._channels, self._tasks)
        self.states = StateChanges(coordinator, DrivenPersister(persister, self._tasks))
        self.membership = ShareMembership(coordinator, self.states)
        self.offsets = ShareOffsets(coordinator, self.states, ends)

    def close(self) -> None:
        """Drop what waits for other brokers."""
        self._tasks.close()
        if self._channels is not None:
            self._channels.close()
