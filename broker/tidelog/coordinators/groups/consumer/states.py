"""The states of a consumer group (KIP-848)."""

from __future__ import annotations

from enum import Enum

__all__ = ["ConsumerGroupState"]


class ConsumerGroupState(Enum):
    """The state of a group, which follows from its members. The value is Kafka's name."""

    EMPTY = "Empty"
    """No members."""

    ASSIGNING = "Assigning"
    """The target assignment is of an older epoch than the group."""

    RECONCILING = "Reconciling"
    """Some member has not reached the target assignment."""

    STABLE = "Stable"
    """Every member has its target assignment."""

    DEAD = "Dead"
    """Deleted."""
