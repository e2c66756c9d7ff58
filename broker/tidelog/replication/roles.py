"""Who is told of what becomes of this broker's replicas: the remote tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

__all__ = ["RoleListener"]


class RoleListener(Protocol):
    """Told by `ReplicaManager.apply`, in the middle of it: whoever has work to do does it later."""

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
