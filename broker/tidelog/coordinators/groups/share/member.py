"""One member of a share group: what it says about itself, its epoch and its partitions. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.member import Subscription
from tidelog.coordinators.groups.modern.states import MemberState

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.member import Partitions

__all__ = ["NOTHING", "ShareMember"]

NOTHING: Partitions = MappingProxyType({})


class ShareMember(NamedTuple):
    """A member, a value. Others may read the same partitions, so it moves to a target at once."""

    member_id: str
    subscription: Subscription = Subscription()  # without what only consumer groups have
    epoch: int = 0
    previous_epoch: int = -1  # accepted in a heartbeat, because an answer may be lost
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING

    def moved(self, target_epoch: int, partitions: Partitions) -> ShareMember:
        """Return the member with these partitions, in this epoch."""
        if target_epoch == self.epoch:
            return self._replace(assigned=partitions)
        return self._replace(
            state=MemberState.STABLE,
            epoch=target_epoch,
            previous_epoch=self.epoch,
            assigned=partitions,
        )
