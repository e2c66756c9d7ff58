"""One member of a consumer group: what it says about itself, its epoch and its partitions.

Members are values: a step makes a new one. Pure.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.member import Subscription
from tidelog.coordinators.groups.modern.states import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.member import Partitions

    Epochs = Mapping[bytes, Mapping[int, int]]
    """By topic id and partition: the epoch of the member when it got the partition."""

__all__ = [
    "NO_PARTITIONS",
    "ConsumerMember",
]

NO_PARTITIONS: Epochs = MappingProxyType({})
_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class ConsumerMember(NamedTuple):
    """A member.

    Invariant: no partition is both in `assigned` and in `revoking`.
    """

    member_id: str
    subscription: Subscription = Subscription()
    epoch: int = 0
    previous_epoch: int = -1  # accepted in a heartbeat, because an answer may be lost
    state: MemberState = MemberState.STABLE
    assigned: Epochs = NO_PARTITIONS
    revoking: Epochs = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        """The partitions that the member has or must still revoke."""
        return {
            topic: frozenset(self.assigned.get(topic, ())) | frozenset(self.revoking.get(topic, ()))
            for topic in (*self.assigned, *self.revoking)
        }

    def moved(
        self, state: MemberState, epoch: int, assigned: Epochs, revoking: Epochs
    ) -> ConsumerMember:
        """Return the member after a step."""
        fields = self.member_id, self.subscription, epoch, self.epoch, state, assigned, revoking
        return _new(ConsumerMember, fields)
