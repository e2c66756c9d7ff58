"""One member of a consumer group: what it says about itself, its epoch and its partitions.

Members are values: a step makes a new one. Pure.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.states import MemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

    ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    Epochs = Mapping[bytes, Mapping[int, int]]
    """By topic id and partition: the epoch of the member when it got the partition."""

__all__ = [
    "FIRST_EPOCH",
    "LEAVING",
    "LEAVING_STATIC",
    "NO_PARTITIONS",
    "ConsumerMember",
    "Subscription",
]

FIRST_EPOCH = 1  # of a group without members, and of its empty target assignment, as in Kafka
LEAVING = -1  # the epoch of a heartbeat that leaves the group
LEAVING_STATIC = -2  # the epoch of a static member that is away and will come back

NO_PARTITIONS: Epochs = MappingProxyType({})


class Subscription(NamedTuple):
    """What a member says about itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    """Present if the member uses the classic protocol."""

    def subscribes_as(self, other: Subscription) -> bool:
        """Return whether both subscribe to the same, by name and by regular expression."""
        return self.topic_names == other.topic_names and (self.topic_regex or "") == (
            other.topic_regex or ""
        )


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

    def is_reconciled(self, target_epoch: int) -> bool:
        """Return whether the member has reached the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

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
        return self._replace(
            state=state,
            epoch=epoch,
            previous_epoch=self.epoch,
            assigned=assigned,
            revoking=revoking,
        )
