"""The states of a member that reads partitions, in consumer and in share groups."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MemberState"]


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
