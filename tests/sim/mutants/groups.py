"""Planted bugs of groups of KIP-848: reconciliation, sessions, fencing, loading, migration.

They are looked for where members come and go and little else is done (`sim/consumer_groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.coordinators.groups import admin
from tidelog.coordinators.groups.consumer import (
    assignors,
    commits,
    group,
    membership,
    migration,
    mixed,
    reconciliation,
)
from tidelog.coordinators.groups.consumer.group import ConsumerGroup
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.consumer.requests import Heartbeat
from tidelog.coordinators.groups.modern.deadlines import Deadlines
from tidelog.coordinators.groups.modern.member import LEAVING_STATIC
from tidelog.coordinators.groups.modern.membership import ModernMembership
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


def offsets_are_told_before_they_are_committed(patch: Patch) -> None:
    """Readers see offsets that a change of leader takes back."""
    original = GroupShard.advance
    patch(GroupShard, "advance", lambda self, _high_watermark: original(self, 1 << 62))

    def knows_committed(self: GroupShard) -> bool:
        original(self, 1 << 62)
        return True

    patch(GroupShard, "knows_committed", property(knows_committed))


def loaded_offsets_count_as_committed(patch: Patch) -> None:
    """A new coordinator tells what is below its high watermark, which may be an old one."""
    patch(GroupShard, "knows_committed", property(lambda _self: True))


def answered_before_they_are_stored(patch: Patch) -> None:
    """The coordinator answers a heartbeat before its records are committed."""
    patch(ModernMembership, "_settling", lambda *_, **__: None)


def previous_epochs_are_not_loaded(patch: Patch) -> None:
    """A member whose answer was lost with its coordinator is fenced by the next one."""
    kind = type(RECORDS)
    original = kind.with_assignment

    def with_assignment(self: Any, member: Any, value: Any) -> Any:
        return original(self, member, value)._replace(previous_epoch=-1)

    patch(kind, "with_assignment", with_assignment)


def what_is_to_be_revoked_is_not_stored(patch: Patch) -> None:
    """With the next coordinator a partition is free that its member has still to give up."""
    original = membership.encoded_assignment

    def encoded(group_id: str, member: Any) -> Any:
        return original(group_id, member._replace(revoking={}))

    patch(membership, "encoded_assignment", encoded)


def late_members_commit_what_others_have(patch: Patch) -> None:
    """A known member commits to any partition in any epoch up to its own (KIP-1251 refuses it)."""
    patch(commits, "_assigned_since", lambda *_: 0)


def replaced_processes_go_on(patch: Patch) -> None:
    """A process is answered after another one of its instance took its place."""
    original = ConsumerGroup.known

    def known(self: ConsumerGroup, member_id: str, instance_id: str | None) -> Any:
        if instance_id is not None:
            return self.static_member(instance_id)
        return original(self, member_id, instance_id)

    patch(ConsumerGroup, "known", known)


def instances_stay_away_for_ever(patch: Patch) -> None:
    """The session of an instance that has left for a while does not end."""
    original = ConsumerGroup.fence

    def fence(self: ConsumerGroup, member_ids: Any, topics: Any) -> Any:
        gone = [each for each in member_ids if self.members[each].epoch != LEAVING_STATIC]
        return original(self, gone, topics) if gone else []

    patch(ConsumerGroup, "fence", fence)


MUTANTS: dict[str, Callable[[Patch], None]] = {
    "a-lost-answer-costs-the-place": a_lost_answer_costs_the_place,
    "assignments-are-not-loaded": assignments_are_not_loaded,
    "assignments-are-told-once": assignments_are_told_once,
    "classic-members-need-not-join-again": classic_members_need_not_join_again,
    "downgrades-lose-a-member": downgrades_lose_a_member,
    "group-epochs-are-not-loaded": group_epochs_are_not_loaded,
    "heartbeats-are-answered-before-they-are-stored": answered_before_they_are_stored,
    "heartbeats-renew-no-session": heartbeats_renew_no_session,
    "instances-are-taken-at-once": instances_are_taken_at_once,
    "instances-away-lose-their-place": instances_away_lose_their_place,
    "instances-stay-away-for-ever": instances_stay_away_for_ever,
    "late-members-commit-what-others-have": late_members_commit_what_others_have,
    "loaded-offsets-count-as-committed": loaded_offsets_count_as_committed,
    "members-commit-when-they-are-out": members_commit_when_they_are_out,
    "members-stay-without-heartbeats": members_stay_without_heartbeats,
    "new-topics-are-passed-over": new_topics_are_passed_over,
    "no-session-begins-at-load": no_session_begins_at_load,
    "no-time-to-revoke": no_time_to_revoke,
    "offsets-are-told-before-they-are-committed": offsets_are_told_before_they_are_committed,
    "one-partition-is-left-over": one_partition_is_left_over,
    "partitions-are-free-before-they-are-revoked": free_before_they_are_revoked,
    "partitions-are-given-before-they-are-free": given_before_they_are_free,
    "previous-epochs-are-not-loaded": previous_epochs_are_not_loaded,
    "released-partitions-stay-owned": released_partitions_stay_owned,
    "replaced-processes-go-on": replaced_processes_go_on,
    "subscriptions-are-not-loaded": subscriptions_are_not_loaded,
    "targets-are-not-loaded": targets_are_not_loaded,
    "upgrades-forget-who-has-what": upgrades_forget_who_has_what,
    "what-is-to-be-revoked-is-not-stored": what_is_to_be_revoked_is_not_stored,
}
