"""Calls the parts of a broker that follow the cluster's metadata with each new image.

The order is that of `publish`. A part may count on those before it: they have the image already.
The replica manager comes before all that ask it for a role or a log; the fetchers follow right
behind it, because it has just fenced the old leaders. The first call is for the image that has the
broker's registration. Kafka: BrokerMetadataPublisher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.cluster.lifecycle import BrokerLifecycle
    from tidelog.cluster.metadata.delta import MetadataDelta
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.share.share_states import ShareStates
    from tidelog.coordinators.transactions.transactions import Transactions
    from tidelog.replication.directory_assignment import DirectoryAssignments
    from tidelog.replication.fetcher_manager import FetcherManager
    from tidelog.replication.replica_manager import ReplicaManager
    from tidelog.tiered.tier import RemoteTier

__all__ = ["MetadataPublisher"]


class MetadataPublisher(NamedTuple):
    """The parts of one broker, in the order of the calls; None for those that it does not have."""

    lifecycle: BrokerLifecycle
    replicas: ReplicaManager
    fetchers: FetcherManager | None
    directories: DirectoryAssignments | None
    share_states: ShareStates
    groups: GroupCoordinator
    transactions: Transactions
    tier: RemoteTier | None

    def publish(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Call each part with the new image and what it changes."""
        self.lifecycle.on_image(delta, image)
        self.replicas.apply(delta, image)
        if self.fetchers is not None:
            self.fetchers.on_image(delta, image)
        if self.directories is not None:
            self.directories.on_image(delta, image)
        self.share_states.on_image(delta, image)
        self.groups.on_image(delta, image)
        self.transactions.on_image(delta, image)
        if self.tier is not None:
            self.tier.on_image(delta, image)
