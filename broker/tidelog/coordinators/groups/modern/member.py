"""What a member says about itself, and what an assignor sees of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.states import MemberState
    from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

    ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata

__all__ = [
    "FIRST_EPOCH",
    "LEAVING",
    "LEAVING_STATIC",
    "AnyMember",
    "Partitions",
    "Subscriber",
    "Subscribing",
    "Subscription",
]

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id, without empty ones."""

FIRST_EPOCH = 1  # of a group without members, and of its empty target assignment, as in Kafka
LEAVING = -1  # the epoch of a heartbeat that leaves the group
LEAVING_STATIC = -2  # the epoch of a static member that is away and will come back


class Subscription(NamedTuple):
    """What a member of a consumer or share group says about itself; a share group's says less."""

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


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[bytes]
    owned: Partitions
    instance_id: str | None = None


class AnyMember(Protocol):
    """A member of a group of any of the three types."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def epoch(self) -> int:
        """The epoch that it is in."""

    @property
    def previous_epoch(self) -> int:
        """The epoch before, accepted in a heartbeat, because an answer may be lost."""

    @property
    def state(self) -> MemberState:
        """Its state."""


class Subscribing(AnyMember, Protocol):
    """A member that subscribes to topics."""

    @property
    def subscription(self) -> Subscription:
        """What it says about itself."""
