"""States of a classic group and the transitions of a rebalance: the inner half of the group
machine.

`group.py` builds the steps (requests, timeouts, finished writes) on it. Pure: no wire, log, task or
timer; deadlines are fields, effects gather until a step returns them.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.member import (
    CONSUMER_PROTOCOL_TYPE,
    CompleteJoin,
    CompleteSync,
    Effect,
    JoinedMember,
    JoinResult,
    JoinWaiter,
    Member,
    Now,
    Persist,
    SyncResult,
    select_protocol,
    subscribed_topics,
)
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)


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


class GroupRebalance:
    """Fields of one classic group and the transitions between its states.

    Invariants: the leader is a member, or None when there are none; `generation` never goes back; a
    static member id belongs to a member; pending members (KIP-394) are not members.
    """

    def __init__(self, group_id: str, now: Now, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now.wall_ms  # -1 if read from an old record
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_members: dict[str, int] = {}  # member id -> deadline
        self.pending_sync: set[str] = set()  # members of this generation that have not synced
        self.topics: frozenset[str] | None = None  # subscribed topics, None if unknown
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        # set while the first rebalance waits for more members
        self._initial_delay_ms: int | None = None
        self._initial_remaining_ms = 0
        self._new_member_added = False
        self._effects: list[Effect] = []

    # ---- questions ---------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members and no rebalance."""
        return self.state is GroupState.EMPTY

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members may read a topic; a consumer group with unknown topics may read
        any."""
        if self.topics is not None:
            return topic in self.topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is next due. Heartbeats only move it later."""
        deadlines = [member.deadline_ms for member in self.members.values()]
        deadlines += [self.join_deadline_ms, self.sync_deadline_ms, *self.pending_members.values()]
        return min((at for at in deadlines if at is not None), default=None)

    @property
    def awaiting_join_count(self) -> int:
        """Return the number of members whose JoinGroup is parked."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the rebalance timeout: the longest of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def _all_joined(self) -> bool:
        return not self.pending_members and self.awaiting_join_count == len(self.members)

    @property
    def _in_initial_rebalance(self) -> bool:
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    # ---- members -----------------------------------------------------------------------------

    def insert(self, member: Member, protocol_type: str) -> None:
        """Add a member to the group, for a join or while loading a record."""
        instance_id = member.group_instance_id
        assert instance_id is None or instance_id not in self.static_members
        if instance_id is not None:
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.pop(member.member_id, None)

    def _remove(self, member_id: str) -> None:
        self.pending_members.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        # The parked request of a removed member is answered, so that a live client rejoins as a new
        # member.
        self._complete_join_of(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self._complete_sync_of(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _touch(self, member: Member, now: Now) -> None:
        """Restart the member's session."""
        member.deadline_ms = now.ticks_ms + member.session_timeout_ms

    def _complete_join_of(self, member: Member, result: JoinResult) -> None:
        if member.awaiting_join is not None:
            self._effects.append(CompleteJoin(member.awaiting_join, result))
            member.awaiting_join = None

    def _complete_sync_of(self, member: Member, result: SyncResult) -> bool:
        if member.awaiting_sync is None:
            return False
        self._effects.append(CompleteSync(member.awaiting_sync, result))
        member.awaiting_sync = None
        return True

    def _refuse(self, waiter: JoinWaiter, member_id: str, error: ErrorCode) -> None:
        self._effects.append(CompleteJoin(waiter, JoinResult(error, member_id)))

    def _joined(self, member: Member) -> JoinResult:
        """Return a member's result of the current generation."""
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader,
            members=self.joined_members() if self.leader == member.member_id else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return all members with their metadata of the chosen protocol."""
        return tuple(
            JoinedMember(
                member.member_id, member.group_instance_id, member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        )

    # ---- moves -------------------------------------------------------------------------------

    def transition(self, state: GroupState, now: Now) -> None:
        """Change the state; an illegal transition is a bug and raises."""
        assert state in TRANSITIONS[self.state], (
            f"group {self.group_id}: {self.state.value} -> {state.value}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _rebalance_or_complete(self, reason: str, now: Now) -> None:
        """After a change of members, begin a rebalance, or end one that waited for it."""
        if self.state is GroupState.PREPARING_REBALANCE:
            # The first rebalance always waits its full delay for more members.
            if self.previous_state is not GroupState.EMPTY and self._all_joined:
                self._complete_join(now)
        else:
            self._prepare_rebalance(reason, now)

    def _prepare_rebalance(self, reason: str, now: Now) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._propagate_error(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.pending_sync.clear()
        self.sync_deadline_ms = None
        is_initial = self.is_empty
        if is_initial:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._initial_delay_ms = delay_ms
            self._initial_remaining_ms = max(self.rebalance_timeout_ms - delay_ms, 0)
            self.join_deadline_ms = now.ticks_ms + delay_ms
        self.transition(GroupState.PREPARING_REBALANCE, now)
        logger.info(
            "Preparing to rebalance group %s with old generation %s: %s",
            self.group_id,
            self.generation,
            reason,
        )
        if is_initial:
            return
        if self._all_joined:
            self._complete_join(now)
        else:
            self.join_deadline_ms = now.ticks_ms + self.rebalance_timeout_ms

    def _complete_join(self, now: Now) -> None:
        """End the join phase: remove members that have not rejoined, except static ones
        (KIP-345)."""
        assert self.state is GroupState.PREPARING_REBALANCE
        self.join_deadline_ms = self._initial_delay_ms = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._remove(member.member_id)
        if self.members and not self._elect_joined_leader():
            # No member has rejoined; static ones stay until their sessions end.
            self.join_deadline_ms = now.ticks_ms + self.rebalance_timeout_ms
            return
        self.generation += 1
        self.pending_sync.clear()
        if not self.members:
            self.protocol_name = None
            self.topics = self._compute_topics()
            self.transition(GroupState.EMPTY, now)
            self._new_member_added = False
            self._effects.append(Persist({}, None))
            return
        self.protocol_name = select_protocol(list(self.members.values()))
        self.topics = self._compute_topics()
        self.transition(GroupState.COMPLETING_REBALANCE, now)
        self._new_member_added = False
        for member in self.members.values():
            self._complete_join_of(member, self._joined(member))
            self._touch(member, now)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.sync_deadline_ms = now.ticks_ms + self.rebalance_timeout_ms
        logger.info(
            "Group %s begins generation %s with %s members",
            self.group_id,
            self.generation,
            len(self.members),
        )

    def _elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, else choose a member that has; False if none has."""
        assert self.leader is not None
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def _compute_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            subscribed = subscribed_topics(member.metadata(self.protocol_name))
            if subscribed is None:
                return None
            topics |= subscribed
        return topics

    def _propagate_error(self, error: ErrorCode, now: Now) -> None:
        assert self.state is GroupState.COMPLETING_REBALANCE
        for member in self.members.values():
            member.assignment = b""
            if self._complete_sync_of(member, SyncResult(error)):
                self._touch(member, now)
