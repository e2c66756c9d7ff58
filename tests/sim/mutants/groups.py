"""Planted bugs of groups of KIP-848: reconciliation, sessions, fencing, loading, migration.

They are looked for where members come and go and little else is done (`sim/consumer_groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.coordinators.groups import admin
from tidelog.coordinators.groups.consumer import (
    assignors,
    group,
    migration,
    mixed,
    reconciliation,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.requests import Heartbeat
from tidelog.coordinators.groups.modern.deadlines import Deadlines
from tidelog.coordinators.groups.modern.member import LEAVING_STATIC
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.shard import GroupShard
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)

Patch = Callable[..., None]


def given_before_they_are_free(patch: Patch) -> None:
    """A member gets partitions that another one has not released."""
    original = group.next_step
    patch(group, "next_step", lambda *args: original(*args[:3], lambda *_: set(), *args[4:]))


def free_before_they_are_revoked(patch: Patch) -> None:
    """What a member must give up is free at once, whatever it says that it owns."""
    patch(reconciliation, "_owns_any", lambda *_: False)


def released_partitions_stay_owned(patch: Patch) -> None:
    """A partition that was released counts as taken for ever."""
    patch(ConsumerGroup, "_disown", lambda *_: None)


def one_partition_is_left_over(patch: Patch) -> None:
    """The uniform assignor forgets the last partition."""
    original = assignors._uniform_alike

    def without_last(members: Any, counts: Any) -> Any:
        last = max(counts, default=b"")
        return original(members, {**counts, last: max(counts[last] - 1, 1)} if counts else counts)

    patch(assignors, "_uniform_alike", without_last)


def members_stay_without_heartbeats(patch: Patch) -> None:
    """No session ends."""
    original = ConsumerGroup.expire

    def expire(self: ConsumerGroup, topics: Any, now: Any) -> Any:
        original(self, topics, now)  # so that it is not due again
        return []

    patch(ConsumerGroup, "expire", expire)


def heartbeats_renew_no_session(patch: Patch) -> None:
    """A session ends at its time after the member came, however often it beats."""
    original = Deadlines.alive

    def alive(self: Deadlines, member_id: str, *rest: Any) -> None:
        if member_id not in self._sessions:
            original(self, member_id, *rest)

    patch(Deadlines, "alive", alive)


def no_session_begins_at_load(patch: Patch) -> None:
    """A coordinator that has loaded a group waits for its members for ever."""
    patch(ConsumerGroup, "resume", lambda *_: None)


def no_time_to_revoke(patch: Patch) -> None:
    """A member that has to give something up has no time for that."""
    original = Deadlines.changed

    def changed(self: Deadlines, member: Any, timeout_ms: int | None, now: Any) -> None:
        original(self, member, None if timeout_ms is None else 50, now)

    patch(Deadlines, "changed", changed)


def members_commit_when_they_are_out(patch: Patch) -> None:
    """Commits are accepted from everybody."""
    patch(admin, "_fencing", lambda *_: ErrorCode.NONE)


def a_lost_answer_costs_the_place(patch: Patch) -> None:
    """A member that has not heard of its new epoch is fenced (KIP-848 accepts the one before)."""
    original = group._check_epoch

    def check_epoch(member: Any, request: Any) -> None:
        original(member._replace(previous_epoch=-1), request)

    patch(group, "_check_epoch", check_epoch)


def assignments_are_told_once(patch: Patch) -> None:
    """A member that asks for all, as an answer was lost, is told what has changed alone."""
    patch(Heartbeat, "is_full", property(lambda _self: False))


def instances_away_lose_their_place(patch: Patch) -> None:
    """An instance that leaves for a while has left."""
    original = ConsumerGroup._leave

    def leave(self: ConsumerGroup, request: Any, topics: Any) -> Any:
        step = original(self, request, topics)
        if request.epoch == LEAVING_STATIC:
            step = step._replace(records=self.fence([request.member_id], topics))
        return step

    patch(ConsumerGroup, "_leave", leave)


def instances_are_taken_at_once(patch: Patch) -> None:
    """A process takes the place of another one of its instance that is still there."""
    original = ConsumerGroup._static_member_of

    def static_member_of(self: ConsumerGroup, request: Any) -> Any:
        held_by = self._statics.get(request.instance_id)
        if request.epoch == 0 and held_by is not None:
            previous = self.members[held_by]
            own = previous._replace(member_id=request.member_id, epoch=0, previous_epoch=0)
            return own, previous
        return original(self, request)

    patch(ConsumerGroup, "_static_member_of", static_member_of)


def new_topics_are_passed_over(patch: Patch) -> None:
    """A group does not look at topics again that come, or grow, later."""
    patch(ConsumerGroup, "topics_changed", lambda _self: None)


def not_loaded(patch: Patch, kind: type) -> None:
    """Loading passes over the records of one kind."""
    original = GroupShard.replay

    def replay(self: GroupShard, change: Any, end_offset: int, *rest: Any) -> None:
        if isinstance(getattr(change, "key", None), kind) and change.value is not None:
            self.end_offset = end_offset
        else:
            original(self, change, end_offset, *rest)

    patch(GroupShard, "replay", replay)


def group_epochs_are_not_loaded(patch: Patch) -> None:
    """A group begins again with epoch 0 at its next coordinator."""
    not_loaded(patch, ConsumerGroupMetadataKey)


def assignments_are_not_loaded(patch: Patch) -> None:
    """The next coordinator does not know who has what."""
    not_loaded(patch, ConsumerGroupCurrentMemberAssignmentKey)


def targets_are_not_loaded(patch: Patch) -> None:
    """The next coordinator does not know who shall have what."""
    not_loaded(patch, ConsumerGroupTargetAssignmentMemberKey)


def subscriptions_are_not_loaded(patch: Patch) -> None:
    """The next coordinator does not know what its members want, nor which instances they are."""
    not_loaded(patch, ConsumerGroupMemberMetadataKey)


def upgrades_forget_who_has_what(patch: Patch) -> None:
    """The members of a classic group have nothing when it becomes a consumer group."""
    original = migration._consumer_members

    def consumer_members(*args: Any) -> list[Any]:
        return [member._replace(assigned={}) for member in original(*args)]

    patch(migration, "_consumer_members", consumer_members)


def downgrades_lose_a_member(patch: Patch) -> None:
    """Of several members of a consumer group that becomes a classic one, the first is forgotten."""
    original = mixed.downgraded

    def downgraded(of: Any, rest: Any, *args: Any, **options: Any) -> Any:
        kept = dict(list(rest.items())[1:]) if len(rest) > 1 else rest
        return original(of, kept, *args, **options)

    patch(mixed, "downgraded", downgraded)


def classic_members_need_not_join_again(patch: Patch) -> None:
    """Nothing tells a classic member of a consumer group that it has to give something up."""
    original = mixed.check_heartbeat

    def check_heartbeat(*args: Any) -> None:
        try:
            original(*args)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise

    patch(mixed, "check_heartbeat", check_heartbeat)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    "a-lost-answer-costs-the-place": a_lost_answer_costs_the_place,
    "assignments-are-not-loaded": assignments_are_not_loaded,
    "assignments-are-told-once": assignments_are_told_once,
    "classic-members-need-not-join-again": classic_members_need_not_join_again,
    "downgrades-lose-a-member": downgrades_lose_a_member,
    "group-epochs-are-not-loaded": group_epochs_are_not_loaded,
    "heartbeats-renew-no-session": heartbeats_renew_no_session,
    "instances-are-taken-at-once": instances_are_taken_at_once,
    "instances-away-lose-their-place": instances_away_lose_their_place,
    "members-commit-when-they-are-out": members_commit_when_they_are_out,
    "members-stay-without-heartbeats": members_stay_without_heartbeats,
    "new-topics-are-passed-over": new_topics_are_passed_over,
    "no-session-begins-at-load": no_session_begins_at_load,
    "no-time-to-revoke": no_time_to_revoke,
    "one-partition-is-left-over": one_partition_is_left_over,
    "partitions-are-free-before-they-are-revoked": free_before_they_are_revoked,
    "partitions-are-given-before-they-are-free": given_before_they_are_free,
    "released-partitions-stay-owned": released_partitions_stay_owned,
    "subscriptions-are-not-loaded": subscriptions_are_not_loaded,
    "targets-are-not-loaded": targets_are_not_loaded,
    "upgrades-forget-who-has-what": upgrades_forget_who_has_what,
}
