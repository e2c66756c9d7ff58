"""The members of one classic group: the leader, static and pending ones. Pure.

Owned by a `Group`, which answers the requests that a member has parked.
"""

from __future__ import annotations

from collections import Counter

from tidelog.coordinators.groups.classic.member import (
    JoinedMember,
    Member,
    Protocols,
    subscribed_topics,
)
from tidelog_protocol.errors import ErrorCode

__all__ = ["Members"]

SUBSCRIPTION_BYTES_MAX = 1 << 20
"""Of the different subscriptions of a group, which are read in one turn of the loop. Kafka cannot
store the assignment of a group that has more: its record would be larger than message.max.bytes."""


class Members(dict[str, Member]):
    """Members by id, in the order of their joins.

    Invariants: `leader` is a member, or None when there are none; `static`, the member id of each
    instance id, names members; `pending` ids (KIP-394), with their deadlines, are not members;
    `_supporters` has how many members support each protocol.
    """

    __slots__ = ("_supporters", "leader", "pending", "static")

    def __init__(self) -> None:
        super().__init__()
        self.leader: str | None = None
        self.static: dict[str, str] = {}
        self.pending: dict[str, int] = {}
        self._supporters: Counter[str] = Counter()

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        instance_id = member.group_instance_id
        assert instance_id is None or instance_id not in self.static
        if instance_id is not None:
            self.static[instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self[member.member_id] = member
        self._count_support((), member.protocols)
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member, or a pending id; return the member."""
        self.pending.pop(member_id, None)
        member = self.pop(member_id, None)
        if member is not None:
            self._count_support(member.protocols, ())
            if member.group_instance_id is not None:
                self.static.pop(member.group_instance_id, None)
            if self.leader == member_id:
                self.leader = next(iter(self), None)
        return member

    def rename(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member's place to a new id."""
        member = self.pop(old_id)
        member.member_id = new_id
        self[new_id] = member
        self.static[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace the protocols that a member supports."""
        self._count_support(member.protocols, protocols)
        member.protocols = protocols

    def _count_support(self, before: Protocols, after: Protocols) -> None:
        names = {name for name, _ in before}
        self._supporters.update({name for name, _ in after})
        self._supporters.subtract(names)
        for name in names:
            if not self._supporters[name]:
                del self._supporters[name]

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose a member that has; False if none has."""
        assert self.leader is not None
        if self[self.leader].awaiting_join is not None:
            return True
        for member in self.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that a request is from a member; a replaced static member is fenced (KIP-345)."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def awaiting_join_count(self) -> int:
        """Return the number of members whose JoinGroup is parked."""
        return sum(member.awaiting_join is not None for member in self.values())

    @property
    def all_joined(self) -> bool:
        """Return whether a rebalance waits for nothing more."""
        return not self.pending and all(
            member.awaiting_join is not None for member in self.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the rebalance timeout: the longest of all members."""
        return max((member.rebalance_timeout_ms for member in self.values()), default=0)

    def share(self, protocols: Protocols) -> bool:
        """Return whether one of these protocols is supported by every member."""
        return any(self._supporters[name] == len(self) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the common protocol with the most votes (the first vote wins a tie)."""
        candidates = {name for name, count in self._supporters.items() if count == len(self)}
        votes: dict[str, int] = {}
        for member in self.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return all members with their metadata of the chosen protocol."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(protocol_name))
            for member in self.values()
        )

    def topics(self, protocol_name: str | None) -> frozenset[str] | None:
        """Return the topics that the consumers subscribe to; None if unknown, or if different
        subscriptions have too many bytes to look into."""
        subscriptions: dict[bytes, None] = {}
        left = SUBSCRIPTION_BYTES_MAX
        for member in self.values():
            metadata = member.metadata(protocol_name)
            if len(metadata) <= SUBSCRIPTION_BYTES_MAX and metadata in subscriptions:
                continue
            left -= len(metadata)
            if left < 0:
                return None
            subscriptions[metadata] = None
        topics: set[str] = set()
        for metadata in subscriptions:
            subscribed = subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)
