"""One share group (KIP-932): it answers heartbeats and says which records to write.

`heartbeat` and `expire` change nothing: they return records, and `replay` applies each once it is
appended, as it does while loading. Only what no record holds changes at once: deadlines, and that
metadata must be looked at. Pure: the time and the topics are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.member import FIRST_EPOCH, LEAVING
from tidelog.coordinators.groups.consumer.requests import Answer, RefusedError
from tidelog.coordinators.groups.consumer.subscriptions import Subscriptions
from tidelog.coordinators.groups.member import NO_TIMESTAMP
from tidelog.coordinators.groups.share.draft import Draft
from tidelog.coordinators.groups.share.member import NOTHING, ShareMember
from tidelog.coordinators.groups.share.partitions import SharePartitions, TopicPartitions
from tidelog.coordinators.groups.share.records import (
    epoch_record,
    partitions_of,
    partitions_record,
    removal,
    tombstones,
    with_assignment,
    with_subscription,
)
from tidelog.coordinators.groups.share.states import ShareGroupState
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Literal

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.consumer.views import Topics
    from tidelog.coordinators.groups.member import Now
    from tidelog.coordinators.groups.member_records import Record
    from tidelog.coordinators.groups.share.requests import ShareHeartbeat
    from tidelog.coordinators.groups.share.views import ShareLimits

__all__ = ["ShareGroup", "ShareStep"]


class ShareStep(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, answer, and have
    the state of these partitions initialized."""

    answer: Answer
    records: list[Record]
    initialize: dict[bytes, TopicPartitions]
    state_epoch: int = 0


class ShareGroup:
    """A group of share consumers, as its records say. A member of `targets` is in `members`."""

    type: Literal["share"] = "share"
    protocol_type = "share"
    retention_start_ms = NO_TIMESTAMP

    def __init__(self, group_id: str, limits: ShareLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0  # wall time of the target assignment
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.partitions = SharePartitions()
        self.subscriptions = Subscriptions()  # of `members`
        self._sessions: dict[str, int] = {}  # ticks_ms at which they end
        self._begun: dict[bytes, int] = {}  # by topic: ticks_ms when its state was last begun
        self._is_stale = True  # topics may have changed since the last look
        self._is_unassigned: bool | None = None  # None: to be looked at

    @property
    def state(self) -> ShareGroupState:
        """The state, which follows from the members."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members."""
        return not self.members

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members may read a topic."""
        return topic in self.subscriptions.names({})

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, topics: Topics, now: Now) -> ShareStep:
        """Return what to do about a heartbeat whose fields are checked; RefusedError changes
        nothing."""
        known = self.members.get(request.member_id)
        if request.epoch == LEAVING:
            self._must_be_member(request.member_id)
            answer = Answer(request.member_id, request.epoch)
            return ShareStep(answer, self.fence([request.member_id], topics), {})
        if known is None and len(self.members) >= self.limits.size_max:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The share group has reached its maximum capacity of "
                f"{self.limits.size_max} members.",
            )
        if request.epoch != 0:
            _check_epoch(self._must_be_member(request.member_id), request.epoch)
        member = known or ShareMember(request.member_id)
        draft = Draft(self, member, request)
        draft.subscribe(topics)
        draft.assign(topics, now)
        draft.reconcile(topics)
        self._sessions[request.member_id] = now.ticks_ms + self.limits.session_timeout_ms
        initialize = draft.initialize(topics, now)
        after = draft.member
        is_full = request.epoch == 0 or request.topic_names is not None
        is_shown = is_full or after.assigned != member.assigned
        assigned = after.assigned if is_shown else None
        answer = Answer(after.member_id, after.epoch, assigned, self.limits.heartbeat_interval_ms)
        return ShareStep(answer, draft.records, initialize, draft.epoch)

    def _must_be_member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets."""
        leaving = sorted(member_ids)
        records = [record for each in leaving for record in removal(self.group_id, each)]
        rest = self.subscriptions.copy()
        for each in leaving:
            rest.remove(self.members[each].subscription)
        metadata_hash = topics.hash_of(rest.names({}))
        records.append(epoch_record(self.group_id, self.epoch + 1, metadata_hash))
        return records

    # ---- state of share partitions -----------------------------------------------------------

    def is_unassigned(self, topics: Topics) -> bool:
        """Return whether the target assignment is not yet of all partitions that are initialized
        and subscribed to."""
        if self._is_unassigned is None:
            self._is_unassigned = self._look_for_unassigned(topics)
        return self._is_unassigned

    def _look_for_unassigned(self, topics: Topics) -> bool:
        names = self.subscriptions.names({})
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            each.name in names
            and assigned.get(topic_id, set()) != each.partitions
            and (topics.find(each.name) or (None,))[0] == topic_id
            for topic_id, each in self.partitions.initialized.items()
        )

    def may_retry(self, topic_id: bytes, now: Now) -> bool:
        """Return whether a topic's state may be initialized again: nothing was heard of it for
        `group.share.initialize.retry.interval.ms`, or since this broker loaded the group."""
        begun_ms = self._begun.get(topic_id)
        return begun_ms is None or now.ticks_ms - begun_ms >= self.limits.initialize_retry_ms

    def begun(self, topic_ids: Iterable[bytes], now: Now) -> None:
        """Note that the state of these topics is being initialized from now on."""
        self._begun.update(dict.fromkeys(topic_ids, now.ticks_ms))

    def forget_topics(self, topics: Iterable[tuple[str, bytes]]) -> list[Record]:
        """Return the record that takes deleted topics out of the partitions, if they are there."""
        after = self.partitions.forgotten(topic_id for _, topic_id in topics)
        return [] if after == self.partitions else [partitions_record(self.group_id, after)]

    # ---- time --------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Note that the next heartbeat must look at the topics."""
        self._is_stale = True
        self._is_unassigned = None

    def topics_seen(self) -> None:
        """Note that the group is of the current topics."""
        self._is_stale = False

    @property
    def is_stale(self) -> bool:
        """Return whether topics may have changed since the last look."""
        return self._is_stale

    def resume(self, now: Now) -> None:
        """Begin the sessions of all members, after loading."""
        self._is_stale = True
        session_ends_ms = now.ticks_ms + self.limits.session_timeout_ms
        self._sessions = dict.fromkeys(self.members, session_ends_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is due, None if nothing can expire."""
        return min(self._sessions.values(), default=None)

    def expire(self, topics: Topics, now: Now) -> list[Record]:
        """Return the records that remove members whose session has ended."""
        late = {name for name, at_ms in self._sessions.items() if at_ms <= now.ticks_ms}
        for name in late:
            del self._sessions[name]
        late &= self.members.keys()
        return self.fence(late, topics) if late else []

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        key, value = record
        if not isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            self._is_unassigned = None  # of targets, subscriptions and partitions alone
        if isinstance(key, ShareGroupMetadataKey):
            if value is not None:  # a tombstone removes the group, which its shard does
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assignment_ms = 0 if value is None else value.assignment_timestamp
        elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = {
                    each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
                }
        elif isinstance(key, ShareGroupStatePartitionMetadataKey):
            self.partitions = SharePartitions() if value is None else partitions_of(value)
        elif isinstance(key, ShareGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            self._replay_assignment(key.member_id, value)

    def _replay_member(self, member_id: str, value: Any) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.subscriptions.remove(member.subscription)
        if value is None:
            self._sessions.pop(member_id, None)
            return
        member = with_subscription(member or ShareMember(member_id), value)
        self.members[member_id] = member
        self.subscriptions.add(member.subscription)

    def _replay_assignment(self, member_id: str, value: Any) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self.members[member_id] = with_assignment(member or ShareMember(member_id), value)
        elif member is not None:  # the tombstone of the member itself follows
            self.members[member_id] = member._replace(
                epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING
            )

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members."""
        return tombstones(self.group_id, self.members)


def _check_epoch(member: ShareMember, received: int) -> None:
    """Refuse a wrong epoch; the previous one is right, because the last answer may be lost."""
    known = member.epoch
    if received in (known, member.previous_epoch if received < known else known):
        return
    if received > known:
        message = (
            f"The share group member has a greater member epoch ({received}) than the one known by "
            f"the group coordinator ({known}). The member must abandon all its partitions and "
            "rejoin."
        )
    else:
        message = (
            f"The share group member has a smaller member epoch ({received}) than the one known by "
            f"the group coordinator ({known}), and it does not match the previous member epoch "
            f"({member.previous_epoch}). The member must abandon all its partitions and rejoin."
        )
    raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH, message)
