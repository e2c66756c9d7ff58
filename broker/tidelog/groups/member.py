"""Values of the classic group machine: members, its answers, and the effects it asks for.

Owned by `group.py`, which decides, and read by `coordinator.py`, which acts. Knows nothing
of the wire or of storage: the API room turns these answers into messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog_protocol.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""
CONSUMER_PROTOCOL_TYPE = "consumer"

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols, most wanted first: (name, metadata)."""


class Now(NamedTuple):
    """The moment of a step: one clock for deadlines, one for what is written down."""

    ticks_ms: int  # monotonic
    wall_ms: int


class JoinedMember(NamedTuple):
    """A member as its leader gets to see it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The answer to a JoinGroup. `members` only for the leader; empty strings and None as Kafka."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveResult(NamedTuple):
    """What became of one leaving member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


JoinWaiter = Callable[[JoinResult], None]
SyncWaiter = Callable[[SyncResult], None]


class JoinRequest(NamedTuple):
    """One JoinGroup, of any version. Values are copies: a join may be parked for minutes."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = False  # KIP-394, JoinGroup v4
    supports_skipping_assignment: bool = False  # KIP-814, JoinGroup v9
    reason: str | None = None  # KIP-800, JoinGroup v8
    new_member_id: str = ""  # drawn by the coordinator, used when `member_id` is empty


class SyncRequest(NamedTuple):
    """One SyncGroup, of any version."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup request (KIP-345: an empty id removes by instance)."""

    member_id: str
    group_instance_id: str | None
    reason: str | None = None


class CompleteJoin(NamedTuple):
    """Effect: answer a parked JoinGroup."""

    waiter: JoinWaiter
    result: JoinResult

    def answer(self) -> None:
        """Do it."""
        self.waiter(self.result)


class CompleteSync(NamedTuple):
    """Effect: answer a parked SyncGroup."""

    waiter: SyncWaiter
    result: SyncResult

    def answer(self) -> None:
        """Do it."""
        self.waiter(self.result)


class AssignmentStored(NamedTuple):
    """Continuation: the leader's assignment for a generation."""

    generation: int
    assignments: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """Continuation: a static member came back to a stable group under a new id (KIP-345)."""

    instance_id: str
    old_member_id: str
    new_member_id: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    old_leader: str | None
    skip_assignment: bool


class Persist(NamedTuple):
    """Effect: write the group's metadata as it is now, with these assignments by member id.

    When the append is committed or has failed, `Group.stored(then, error, now)` wants to know,
    unless `then` is None.
    """

    assignments: dict[str, bytes]
    then: AssignmentStored | StaticMemberStored | None


Effect = CompleteJoin | CompleteSync | Persist


class Member:
    """One member of a classic group.

    Invariant: `deadline_ms` is None only while a JoinGroup or SyncGroup of this member is parked,
    which keeps it alive by itself, or before the group is followed by a timer.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: JoinWaiter | None = None
        self.awaiting_sync: SyncWaiter | None = None
        self.is_new = False
        self.deadline_ms: int | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What this member said about itself under a protocol it supports."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The first of its protocols that every member supports."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports no candidate protocol")

    @property
    def is_alive_without_heartbeat(self) -> bool:
        """A parked request stands for a heartbeat, except the first JoinGroup of a new member."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )


def select_protocol(members: list[Member]) -> str:
    """The protocol all members support that most of them want (first vote wins a tie)."""
    candidates = set.intersection(*({name for name, _ in member.protocols} for member in members))
    votes: dict[str, int] = {}
    for member in members:
        choice = member.vote(candidates)
        votes[choice] = votes.get(choice, 0) + 1
    return max(votes, key=lambda name: votes[name])


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a consumer's subscription: the version 0 prefix, which every version begins with.

    None if the bytes are not such a subscription: custom protocols may name themselves "consumer".
    """
    if len(metadata) < 6:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    if count < 0 or count > len(metadata):
        return None
    position, topics = 6, []
    for _ in range(count):
        length = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        end = position + 2 + length
        if length < 0 or end > len(metadata):
            return None
        try:
            topics.append(metadata[position + 2 : end].decode())
        except UnicodeDecodeError:
            return None
        position = end
    return frozenset(topics)
