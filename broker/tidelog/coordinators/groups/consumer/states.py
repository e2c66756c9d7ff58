"""The states of a consumer group (KIP-848) and of its members."""

from __future__ import annotations

from enum import Enum, IntEnum

__all__ = ["ConsumerGroupState", "MemberState"]


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


class MemberState(IntEnum):
    """The state of a member. The number is that of Kafka's records."""

    STABLE = 0
    """It has reached the target assignment of its epoch."""

    UNREVOKED_PARTITIONS = 1
    """It stays in its epoch until it has revoked the partitions that it must give up. It has its
    rebalance timeout for that."""

    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch and waits for partitions that others have not released yet."""

    UNKNOWN = 127
    """Of a later version of Kafka: it must join again with no partitions."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState | None:
        return cls.UNKNOWN if isinstance(value, int) else None
