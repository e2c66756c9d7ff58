"""The states of consumer, share and streams groups, and of their members: one table each. Pure.

The state of a group is not stored: it follows from its epochs and members. That of a member is in
its record; `reconciliation.py` has what it waits for.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["STATES_OF", "MemberState", "ModernGroupState", "is_reconciled", "state_of"]


class ModernGroupState(Enum):
    """The state of a group. The value is Kafka's name."""

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
    """Deleted: no group has it, but Kafka counts those that do."""


STATES_OF: Mapping[str, tuple[ModernGroupState, ...]] = {
    "consumer": (
        ModernGroupState.EMPTY,
        ModernGroupState.ASSIGNING,
        ModernGroupState.RECONCILING,
        ModernGroupState.STABLE,
        ModernGroupState.DEAD,
    ),
    "share": (ModernGroupState.EMPTY, ModernGroupState.STABLE, ModernGroupState.DEAD),
    "streams": tuple(ModernGroupState),
}
"""By type, in the order in which they are looked at. Members of a share group do not wait for each
other, so that none has to reconcile."""


class _Group(Protocol):
    """What decides the state of a group."""

    epoch: int
    assignment_epoch: int

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def is_ready(self) -> bool:
        """Whether the topics that it needs are there."""

    @property
    def is_reconciled(self) -> bool:
        """Whether every member has reached the target assignment."""


_HOLDS: Mapping[ModernGroupState, Callable[[_Group], bool]] = {
    ModernGroupState.EMPTY: lambda group: group.is_empty,
    ModernGroupState.NOT_READY: lambda group: not group.is_ready,
    ModernGroupState.ASSIGNING: lambda group: group.epoch > group.assignment_epoch,
    ModernGroupState.RECONCILING: lambda group: not group.is_reconciled,
    ModernGroupState.STABLE: lambda _group: True,
}


def state_of(group: _Group) -> ModernGroupState:
    """Return the first state of the group's type that holds."""
    return next(state for state in STATES_OF[group.type] if _HOLDS[state](group))


class MemberState(IntEnum):
    """The state of a member. The number is that of Kafka's records; streams groups have one more
    (`GroupRecords`)."""

    STABLE = 0
    """It has reached the target assignment of its epoch, and stays until there is a later one."""

    UNREVOKED = 1
    """It stays in its epoch until it has given up what it must. It has its rebalance timeout for
    that."""

    UNRELEASED = 2
    """It is in the target's epoch, and each heartbeat takes what others have released."""

    UNKNOWN = 127
    """Of a later version of Kafka: it must join again, and own nothing."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState | None:
        return cls.UNKNOWN if isinstance(value, int) else None


class _Member(Protocol):
    """What decides whether a member is where it shall be."""

    @property
    def epoch(self) -> int:
        """The epoch that it is in."""

    @property
    def state(self) -> MemberState:
        """Its state."""


def is_reconciled(member: _Member, target_epoch: int) -> bool:
    """Return whether a member has reached the target assignment of this epoch."""
    return member.state is MemberState.STABLE and member.epoch == target_epoch
