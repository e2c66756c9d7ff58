"""Listeners to role changes of this broker's replicas: the remote tier, and the moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

__all__ = ["RoleListener", "RoleListeners"]


class RoleListener(Protocol):
    """Called in the middle of `ReplicaManager.apply`: do any work later.

    A replica's role is reported again when its log was replaced by one in another directory.
    """

    def became_leader(self, partition: Partition) -> None:
        """This broker leads, in a leader epoch that is new to it."""
        ...

    def became_follower(self, partition: Partition) -> None:
        """This broker follows, in a leader epoch that is new to it."""
        ...

    def stopped(self, partition: Partition, *, delete: bool) -> None:
        """The replica leaves this broker, with its role unchanged: its topic was deleted
        (`delete`), it moved, or its log failed."""
        ...

    def config_changed(self, partition: Partition) -> None:
        """The log has another configuration, which may make it tiered or not."""
        ...


class RoleListeners:
    """All listeners, in the order of registration."""

    def __init__(self) -> None:
        self.listeners: list[RoleListener] = []

    def changed(self, partition: Partition) -> None:
        """Report that a replica leads or follows in a new leader epoch, or with another log."""
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
