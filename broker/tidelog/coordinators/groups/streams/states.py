"""The states of a streams group (KIP-1071) and of its members."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = ["MemberState", "StreamsGroupState"]


class StreamsGroupState(Enum):
    """The state of a group, which follows from its members. The value is Kafka's name."""

    EMPTY = "Empty"
    """No members."""

    NOT_READY = "NotReady"
    """Topics of the topology are missing, or do not fit."""

    ASSIGNING = "Assigning"
    """The target assignment is of an older epoch than the group."""

    RECONCILING = "Reconciling"
    """Some member has not reached the target assignment."""

    STABLE = "Stable"
    """Every member has its target assignment."""

    DEAD = "Dead"
    """Deleted."""


class MemberState(IntEnum):
    """The state of a member. The number is that of Kafka's records, not that of consumers."""

    STABLE = 1
    """It has reached the target assignment of its epoch."""

    UNREVOKED_TASKS = 2
    """It has its rebalance timeout to give back tasks, before it goes to the next epoch."""

    UNRELEASED_TASKS = 3
    """It is in the target's epoch and waits for tasks that others have not released yet."""

    UNKNOWN = 127
    """Of a later version of Kafka: it must join again with no tasks."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState | None:
        return cls.UNKNOWN if isinstance(value, int) else None
