"""The states of a classic group, their transitions, and its limits."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TRANSITIONS", "GroupLimits", "GroupState"]


class GroupState(Enum):
    """The state of a group. The value is Kafka's name on the wire."""

    EMPTY = "Empty"
    """No members; the group exists while it has offsets. A join begins the first rebalance; commits
    without membership (generation -1) are accepted."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Joins are parked until every member has rejoined or the rebalance timeout has passed.
    Heartbeats and syncs get REBALANCE_IN_PROGRESS; commits of the last generation are still
    accepted."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has begun; syncs are parked until the leader's assignment is stored. Commits
    get REBALANCE_IN_PROGRESS."""

    STABLE = "Stable"
    """Every member has, or may fetch, the assignment of this generation."""

    DEAD = "Dead"
    """Deleted, or its coordinator has moved. The final state."""


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


class GroupLimits(NamedTuple):
    """The broker's settings for classic groups."""

    initial_rebalance_delay_ms: int = 3000
    group_size_max: int = 2147483647
    new_member_join_timeout_ms: int = 300_000
