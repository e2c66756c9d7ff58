"""The states of a share group (KIP-932)."""

from __future__ import annotations

from enum import Enum

__all__ = ["ShareGroupState"]


class ShareGroupState(Enum):
    """The state of a group, which follows from its members. The value is Kafka's name."""

    EMPTY = "Empty"
    """No members."""

    STABLE = "Stable"
    """With members: none waits for another one, so none has to reconcile."""

    DEAD = "Dead"
    """Deleted."""
