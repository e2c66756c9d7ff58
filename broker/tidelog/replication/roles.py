"""Who is told of what becomes of this broker's replicas: the remote tier, and who moves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

__all__ = ["RoleListener", "RoleListeners"]


class RoleListener(Protocol):
    """Told by `HostedPartitions.apply`, in the middle of it: whoever has work to do does it later.

    Of its role a replica is told once more when its log was replaced by one in another directory.
    """

    def became_leader(self, partition: Partition) -> None:
        """This broker leads, in a leader epoch that is new to it."""
        ...

    def became_follower(self, partition: Partition) -> None:
        """This broker follows, in a leader epoch that is new to it."""
        ...

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """The replica leaves this broker, and still has the role it had: because its topic was
        deleted (`delete`), or because it moved, or its log failed."""
        ...

    def config_changed(self, partition: Partition) -> None:
        """The log has another configuration, which may make it tiered or not."""
        ...


class RoleListeners:
    """All who are told, in the order in which they came."""

    def __init__(self) -> None:
        self.listeners: list[RoleListener] = []

    def changed(self, partition: Partition) -> None:
        """It leads or follows, in a leader epoch that is new to it, or with another log."""
        for listener in self.listeners:
            if partition.is_leader:
                listener.became_leader(partition)
            else:
                listener.became_follower(partition)

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """See `RoleListener`."""
        for listener in self.listeners:
            listener.stopped(partition, delete=delete)

    def config_changed(self, partition: Partition) -> None:
        """See `RoleListener`."""
        for listener in self.listeners:
            listener.config_changed(partition)
