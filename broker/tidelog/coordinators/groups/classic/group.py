"""The classic consumer group: a pure state machine (KIP-62, 345, 394, 559, 800, 814).

`coordinator.py` owns it, passes requests, the time and finished writes in, and performs the
returned effects. It must not know the wire, the log, tasks or timers: a step takes `Now`, changes
the group at once and returns effects; `next_deadline_ms` is when `expire` is due. States and their
table are in `states.py`, the rules of membership in `members.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.classic.member import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    AssignmentStored,
    CompleteJoin,
    CompleteSync,
    Effect,
    JoinRequest,
    JoinResult,
    JoinWaiter,
    LeaveResult,
    LeavingMember,
    Member,
    Persist,
    Protocols,
    StaticMemberStored,
    SyncRequest,
    SyncResult,
    SyncWaiter,
)
from tidelog.coordinators.groups.classic.members import Members
from tidelog.coordinators.groups.classic.states import TRANSITIONS, GroupLimits, GroupState
from tidelog.coordinators.groups.now import NO_TIMESTAMP, Now
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

__all__ = ["TRANSITIONS", "Group", "GroupLimits", "GroupState"]

logger = logging.getLogger(__name__)

EXPIRED_AT_ONCE = 100  # members that leave in one turn of the loop: each may look at all others


class Group:
    """One classic group: its fields, its steps and the moves of a rebalance.

    Invariants: `generation` never goes back; `pending_sync` names members.
    """

    type: Literal["classic"] = "classic"

    def __init__(self, group_id: str, now: Now, limits: GroupLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now.wall_ms  # -1 if read from an old record
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.pending_sync: set[str] = set()  # members of this generation that have not synced
        self.topics: frozenset[str] | None = None  # subscribed topics, None if unknown
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        # set while the first rebalance waits for more members
        self._initial_delay_ms: int | None = None
        self._initial_remaining_ms = 0
        self._new_member_added = False
        self._effects: list[Effect] = []
        self._next_deadline_ms: int | None = None  # no deadline is earlier; None: look for it

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

    @property
    def retention_start_ms(self) -> int | None:
        """Return when the retention of offsets starts: a time, -1 for that of each commit, None for
        never."""
        if self.protocol_type is None:
            return NO_TIMESTAMP
        if self.is_empty:
            return self.state_timestamp_ms
        is_known = self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.topics is not None
        return NO_TIMESTAMP if is_known and self.state is GroupState.STABLE else None

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is next due, or earlier. Heartbeats only move it later.

        All deadlines are looked through only after `expire`, and once the next one has moved: each
        of ten thousand joins would look through all.
        """
        has_any = self.members or self.members.pending or self.join_deadline_ms is not None
        if self._next_deadline_ms is None or not has_any:
            deadlines = [member.deadline_ms for member in self.members.values()]
            deadlines += [self.join_deadline_ms, self.sync_deadline_ms]
            deadlines += self.members.pending.values()
            self._next_deadline_ms = min((at for at in deadlines if at is not None), default=None)
        return self._next_deadline_ms

    def _due(self, at_ms: int) -> int:
        """Return a new deadline; each passes through here."""
        if self._next_deadline_ms is not None:
            self._next_deadline_ms = min(self._next_deadline_ms, at_ms)
        return at_ms

    @property
    def _in_initial_rebalance(self) -> bool:
        return (
            self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY
        )

    # ---- questions of requests ---------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join this group."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return self.members.share(protocols)

    def validate_commit(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        """Check an OffsetCommit; a valid one counts as a heartbeat."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE  # an admin, or a consumer without group management
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is ErrorCode.NONE and self.state is GroupState.COMPLETING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE:
            self._touch(self.members[member_id], now)
        return error

    def validate_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Check a TxnOffsetCommit (KIP-447), which need not name a member."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and (self.is_empty or (not member_id and instance_id is None)):
            return ErrorCode.NONE
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    # ---- steps -------------------------------------------------------------------------------

    def join(self, request: JoinRequest, waiter: JoinWaiter, now: Now) -> list[Effect]:
        """Handle JoinGroup: park it, answer it, or begin a rebalance."""
        member_id = request.member_id
        if not self._accepts(member_id):
            self._remove(member_id)
            self._refuse(waiter, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif self.state is GroupState.DEAD:
            self._refuse(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self.supports(request.protocol_type, request.protocols):
            self._refuse(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_unknown(request, waiter, now)
        elif member_id in self.members.pending:
            if request.group_instance_id is not None:  # only dynamic members get an id in advance
                self._refuse(waiter, UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._add_member(member_id, request, waiter, now)
        else:
            error = self.members.check(member_id, request.group_instance_id)
            if error is not ErrorCode.NONE:
                self._refuse(waiter, member_id, error)
            else:
                self._join_known(self.members[member_id], request, waiter, now)
        return self._take_effects()

    def sync(self, request: SyncRequest, waiter: SyncWaiter, now: Now) -> list[Effect]:
        """Handle SyncGroup: the leader sends the assignment, each member fetches its own."""
        error = self._check_sync(request)
        if error is not ErrorCode.NONE:
            self._effects.append(CompleteSync(waiter, SyncResult(error)))
            return self._take_effects()
        member = self.members[request.member_id]
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.sync_deadline_ms = None
        if self.state is GroupState.STABLE:
            self._effects.append(CompleteSync(waiter, self._synced(member)))
            return self._take_effects()
        # A retry over another connection: the first request gets no assignment any more.
        self._complete_sync_of(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiter
        if self.members.leader == member.member_id:
            given = request.assignments
            assignments = {name: given.get(name, b"") for name in self.members}
            self._effects.append(
                Persist(assignments, AssignmentStored(self.generation, assignments))
            )
        return self._take_effects()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> ErrorCode:
        """Handle Heartbeat: extend the member's session; report a rebalance."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(self.members[member_id], now)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, leaving: Sequence[LeavingMember], now: Now
    ) -> tuple[list[LeaveResult], list[Effect]]:
        """Handle LeaveGroup: members by id, pending ones, static ones by instance (KIP-345)."""
        results = [self._leave_one(member) for member in leaving]
        gone = [result.member_id for result in results if result.error is ErrorCode.NONE]
        if gone and self.state not in {GroupState.EMPTY, GroupState.DEAD}:
            self._rebalance_or_complete(f"members {gone} left", now)
        return results, self._take_effects()

    def expire(self, now: Now) -> list[Effect]:
        """Time out sessions, joins and syncs that are due. Of thousands of members, the first ones:
        the others stay due, as each has a timer of its own in Kafka."""
        due = now.ticks_ms
        self._next_deadline_ms = None
        late_ids = [name for name, at in self.members.pending.items() if at <= due]
        for member_id in late_ids[:EXPIRED_AT_ONCE]:
            del self.members.pending[member_id]
            if self.state is GroupState.PREPARING_REBALANCE and self.members.all_joined:
                self._complete_join(now)
        late = [
            member
            for member in self.members.values()
            if member.deadline_ms is not None and member.deadline_ms <= due
        ]
        for member in late[:EXPIRED_AT_ONCE]:
            if member.deadline_ms is not None and member.deadline_ms <= due:
                self._expire_member(member, now)
        if max(len(late_ids), len(late)) > EXPIRED_AT_ONCE:
            return self._take_effects()
        if self.join_deadline_ms is not None and self.join_deadline_ms <= due:
            self._expire_join(now)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= due:
            self._expire_sync(now)
        return self._take_effects()

    def end_sessions(self, member_ids: Iterable[str], now: Now) -> list[Effect]:
        """Time out these members now, unless a parked request keeps them alive."""
        for member_id in member_ids:
            self.members[member_id].deadline_ms = self._due(now.ticks_ms)
        return self.expire(now)

    def stored(
        self, what: AssignmentStored | StaticMemberStored, error: ErrorCode, now: Now
    ) -> list[Effect]:
        """Continue after the write of `Persist` is committed, or failed with this error."""
        if isinstance(what, AssignmentStored):
            self._assignment_stored(what, error, now)
        else:
            self._static_member_stored(what, error, now)
        return self._take_effects()

    def begin_rebalance(self, reason: str, now: Now) -> list[Effect]:
        """Make all members join again, for example after loading a group above its size limit."""
        self._prepare_rebalance(reason, now)
        return self._take_effects()

    def resume(self, now: Now) -> None:
        """Start a full session for every member after loading."""
        for member in self.members.values():
            self._touch(member, now)
        self.topics = self._compute_topics()

    def topics_changed(self) -> None:
        """Do nothing: the members look at the topics themselves."""

    def unload(self, error: ErrorCode, now: Now) -> list[Effect]:
        """Answer parked requests because the group was deleted or has moved to another broker."""
        self.transition(GroupState.DEAD, now)
        self._next_deadline_ms = None
        for member in self.members.values():
            self._complete_join_of(member, JoinResult(error, member.member_id))
            self._complete_sync_of(member, SyncResult(error))
            member.deadline_ms = None
        self.members.pending.clear()
        self.join_deadline_ms = self.sync_deadline_ms = None
        return self._take_effects()

    # ---- joining -----------------------------------------------------------------------------

    def _accepts(self, member_id: str) -> bool:
        size_max = self.limits.group_size_max
        if self.state in {GroupState.EMPTY, GroupState.DEAD}:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # Only awaiting members count, so a group above a lowered limit loses the members that
            # rejoin last.
            waiting = member is not None and member.awaiting_join is not None
            # Counted only when it matters: each of ten thousand joins would count all.
            is_small = waiting or len(self.members) < size_max
            return is_small or self.members.awaiting_join_count < size_max
        return member is not None or len(self.members) < size_max

    def _join_unknown(self, request: JoinRequest, waiter: JoinWaiter, now: Now) -> None:
        new_id = request.new_member_id
        assert new_id
        assert new_id not in self.members
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in self.members.static:
            self._replace_static_member(instance_id, request, waiter, now)
        elif instance_id is None and request.requires_known_member_id:
            self.members.pending[new_id] = self._due(now.ticks_ms + request.session_timeout_ms)
            self._refuse(waiter, new_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._add_member(new_id, request, waiter, now)

    def _add_member(
        self, member_id: str, request: JoinRequest, waiter: JoinWaiter, now: Now
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
        )
        member.is_new = True
        if self._in_initial_rebalance:
            self._new_member_added = True
        self.insert(member, request.protocol_type)
        member.awaiting_join = waiter
        # A new member cannot heartbeat before it knows its id, and the JoinGroup of a client that
        # gave up stays parked, so it is dropped after five minutes.
        member.deadline_ms = self._due(now.ticks_ms + self.limits.new_member_join_timeout_ms)
        self._rebalance_or_complete(
            f"adding new member {member_id} (instance {request.group_instance_id}; "
            f"client reason: {request.reason or 'not provided'})",
            now,
        )

    def _join_known(
        self, member: Member, request: JoinRequest, waiter: JoinWaiter, now: Now
    ) -> None:
        is_leader = self.members.leader == member.member_id
        # A leader that joins a stable group asks for a rebalance, perhaps because topics have
        # changed. If its answer was lost, or for a follower without changes, the current generation
        # is the answer.
        if (
            self.state is GroupState.PREPARING_REBALANCE
            or member.protocols != request.protocols
            or (self.state is GroupState.STABLE and is_leader)
        ):
            self._update_member(member, request, waiter)
            self._rebalance_or_complete(
                f"member {member.member_id} joins again in state {self.state.value} "
                f"(client reason: {request.reason or 'not provided'})",
                now,
            )
        else:
            self._effects.append(CompleteJoin(waiter, self._joined(member)))

    def _update_member(self, member: Member, request: JoinRequest, waiter: JoinWaiter) -> None:
        # The same member on another connection: only its last request is answered at the end.
        self._complete_join_of(
            member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        )
        self.members.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = waiter

    # ---- static members (KIP-345) ------------------------------------------------------------

    def _rename_static_member(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Give a static member's place to a new id; requests of the old id are fenced."""
        member = self.members[old_id]
        self._complete_join_of(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._complete_sync_of(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        return self.members.rename(instance_id, old_id, new_id)

    def _replace_static_member(
        self, instance_id: str, request: JoinRequest, waiter: JoinWaiter, now: Now
    ) -> None:
        assert self.state not in {GroupState.EMPTY, GroupState.DEAD}
        old_id, old_leader = self.members.static[instance_id], self.members.leader
        member = self.members[old_id]
        undo = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        new_id = request.new_member_id
        self._rename_static_member(instance_id, old_id, new_id)
        self._touch(member, now)
        self._update_member(member, request, waiter)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._rebalance_or_complete("static member is back", now)
            return
        members = self.members
        if self.state is GroupState.STABLE and members.select_protocol() == self.protocol_name:
            # Same protocol: no rebalance, the member keeps its assignment.
            skips = request.supports_skipping_assignment
            stored = StaticMemberStored(instance_id, old_id, new_id, *undo, old_leader, skips)
            assignments = {each.member_id: each.assignment for each in members.values()}
            self._effects.append(Persist(assignments, stored))
            return
        # The leader may just be assigning to the old id, or the protocol changes.
        self._rebalance_or_complete(
            f"static member {instance_id} is back as {new_id} "
            f"(client reason: {request.reason or 'not provided'})",
            now,
        )

    def _static_member_stored(self, what: StaticMemberStored, error: ErrorCode, now: Now) -> None:
        member = self.members.get(what.new_member_id)
        if error is ErrorCode.NONE:
            if member is None:
                return  # it was answered when it was removed or replaced
            if self.state is not GroupState.STABLE:
                return  # a rebalance has begun meanwhile and will answer it
            result = self._joined(member)
            if what.skip_assignment:
                result = result._replace(skip_assignment=self.members.leader == member.member_id)
            else:
                # Before v9 a returning leader must not believe that it has to assign.
                result = result._replace(leader=what.old_leader, members=())
            self._touch(member, now)
            self._complete_join_of(member, result)
            return
        if member is not None and self.members.static.get(what.instance_id) == what.new_member_id:
            waiter, member.awaiting_join = member.awaiting_join, None
            self._rename_static_member(what.instance_id, what.new_member_id, what.old_member_id)
            self.members.set_protocols(member, what.old_protocols)
            member.rebalance_timeout_ms = what.old_rebalance_timeout_ms
            member.session_timeout_ms = what.old_session_timeout_ms
            self._touch(member, now)
            if waiter is not None:
                self._refuse(waiter, UNKNOWN_MEMBER_ID, error)

    # ---- syncing -----------------------------------------------------------------------------

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # KIP-559: the member's protocol must be the one that the group has chosen.
        for believed, chosen in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if believed is not None and chosen is not None and believed != chosen:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _assignment_stored(self, what: AssignmentStored, error: ErrorCode, now: Now) -> None:
        # If a member joined during the write, this generation has ended.
        if self.state is not GroupState.COMPLETING_REBALANCE or what.generation != self.generation:
            return
        if error is not ErrorCode.NONE:
            self._propagate_error(error, now)
            self._rebalance_or_complete(f"storing the assignment failed: {error.name}", now)
            return
        for member in self.members.values():
            member.assignment = what.assignments.get(member.member_id, b"")
            if self._complete_sync_of(member, self._synced(member)):
                self._touch(member, now)
        self.transition(GroupState.STABLE, now)

    # ---- leaving and time-outs ---------------------------------------------------------------

    def _leave_one(self, leaving: LeavingMember) -> LeaveResult:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        error = ErrorCode.NONE
        if self.state is GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif member_id == UNKNOWN_MEMBER_ID:
            known = self.members.static.get(instance_id) if instance_id is not None else None
            if known is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                self._remove(known)
        elif member_id in self.members.pending:
            self._remove(member_id)
        else:
            error = self.members.check(member_id, instance_id)
            if error is ErrorCode.NONE:
                self._remove(member_id)
        if error is ErrorCode.NONE:
            logger.info(
                "Member %s (instance %s) left group %s; client reason: %s",
                member_id,
                instance_id,
                self.group_id,
                leaving.reason or "not provided",
            )
        return LeaveResult(member_id, instance_id, error)

    def _expire_member(self, member: Member, now: Now) -> None:
        if member.is_alive_without_heartbeat:
            member.deadline_ms = None  # the answer to its parked request begins a new session
            return
        # If another timeout of this step ended the join phase, all members had joined.
        assert self.members.get(member.member_id) is member
        logger.info("Member %s of group %s timed out", member.member_id, self.group_id)
        self._remove(member.member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            if self.members.all_joined:
                self._complete_join(now)
        else:
            self._rebalance_or_complete(f"session of {member.member_id} timed out", now)

    def _expire_join(self, now: Now) -> None:
        delay_ms, remaining_ms = self._initial_delay_ms, self._initial_remaining_ms
        if delay_ms is not None and self._new_member_added and remaining_ms > 0:
            # KIP-134: while members keep joining, wait on, up to the rebalance timeout.
            self._new_member_added = False
            again_ms = min(self.limits.initial_rebalance_delay_ms, remaining_ms)
            self._initial_delay_ms = again_ms
            self._initial_remaining_ms = max(remaining_ms - delay_ms, 0)
            self.join_deadline_ms = self._due(now.ticks_ms + again_ms)
        else:
            self._complete_join(now)

    def _expire_sync(self, now: Now) -> None:
        """Remove members that joined but did not sync in time: they must not block the others."""
        self.sync_deadline_ms = None
        if not self.pending_sync:
            return
        silent = sorted(self.pending_sync)
        for member_id in silent:
            self._remove(member_id)
        self._prepare_rebalance(f"members {silent} did not sync in time", now)

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
            if self.previous_state is not GroupState.EMPTY and self.members.all_joined:
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
            self._initial_remaining_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self.join_deadline_ms = self._due(now.ticks_ms + delay_ms)
        self.transition(GroupState.PREPARING_REBALANCE, now)
        logger.info(
            "Preparing to rebalance group %s with old generation %s: %s",
            self.group_id,
            self.generation,
            reason,
        )
        if is_initial:
            return
        if self.members.all_joined:
            self._complete_join(now)
        else:
            self.join_deadline_ms = self._due(now.ticks_ms + self.members.rebalance_timeout_ms)

    def _complete_join(self, now: Now) -> None:
        """End the join phase: remove members that have not rejoined, except static ones
        (KIP-345)."""
        assert self.state is GroupState.PREPARING_REBALANCE
        self.join_deadline_ms = self._initial_delay_ms = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                self._remove(member.member_id)
        if self.members and not self.members.elect_joined_leader():
            # No member has rejoined; static ones stay until their sessions end.
            self.join_deadline_ms = self._due(now.ticks_ms + self.members.rebalance_timeout_ms)
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
        self.protocol_name = self.members.select_protocol()
        self.topics = self._compute_topics()
        self.transition(GroupState.COMPLETING_REBALANCE, now)
        self._new_member_added = False
        for member in self.members.values():
            self._complete_join_of(member, self._joined(member))
            self._touch(member, now)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.sync_deadline_ms = self._due(now.ticks_ms + self.members.rebalance_timeout_ms)
        logger.info(
            "Group %s begins generation %s with %s members",
            self.group_id,
            self.generation,
            len(self.members),
        )

    def _compute_topics(self) -> frozenset[str] | None:
        is_consumers = self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return self.members.topics(self.protocol_name) if is_consumers else None

    def _propagate_error(self, error: ErrorCode, now: Now) -> None:
        assert self.state is GroupState.COMPLETING_REBALANCE
        for member in self.members.values():
            member.assignment = b""
            if self._complete_sync_of(member, SyncResult(error)):
                self._touch(member, now)

    # ---- members -----------------------------------------------------------------------------

    def insert(self, member: Member, protocol_type: str) -> None:
        """Add a member to the group, for a join or while loading a record."""
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        self.members.add(member)

    def _remove(self, member_id: str) -> None:
        self.pending_sync.discard(member_id)
        member = self.members.remove(member_id)
        if member is not None:
            # Its parked request is answered, so that a live client rejoins as a new member.
            self._complete_join_of(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
            self._complete_sync_of(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def _touch(self, member: Member, now: Now) -> None:
        """Restart the member's session."""
        if member.deadline_ms == self._next_deadline_ms:
            self._next_deadline_ms = None  # this was the next one: look for it again
        member.deadline_ms = self._due(now.ticks_ms + member.session_timeout_ms)

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
            self.members.leader,
            members=self.members.joined(self.protocol_name)
            if self.members.leader == member.member_id
            else (),
        )
