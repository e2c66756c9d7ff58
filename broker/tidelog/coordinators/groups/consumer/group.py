"""One consumer group of KIP-848: it answers heartbeats and says which records to write.

`heartbeat` and `expire` change nothing: they return records, and `replay` applies each once it is
appended, as it does while loading. Only what no record holds changes at once: deadlines, and that
metadata must be looked at. Pure: `now_ms` and the topics are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.consumer.deadlines import Deadlines
from tidelog.coordinators.groups.consumer.draft import Draft, preferred_assignor
from tidelog.coordinators.groups.consumer.member import (
    FIRST_EPOCH,
    LEAVING,
    LEAVING_STATIC,
    NO_PARTITIONS,
    ConsumerMember,
    Subscription,
)
from tidelog.coordinators.groups.consumer.reconciliation import Wish, next_step
from tidelog.coordinators.groups.consumer.records import (
    assignment_record,
    epoch_record,
    pattern_record,
    removal,
    with_assignment,
    with_subscription,
)
from tidelog.coordinators.groups.consumer.requests import Answer, RefusedError
from tidelog.coordinators.groups.consumer.states import ConsumerGroupState, MemberState
from tidelog.coordinators.groups.consumer.subscriptions import Subscriptions
from tidelog.coordinators.groups.member import CONSUMER_PROTOCOL_TYPE, NO_TIMESTAMP
from tidelog.coordinators.groups.member_records import Record
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.consumer.requests import Heartbeat
    from tidelog.coordinators.groups.consumer.views import ConsumerLimits, Topics
    from tidelog.coordinators.groups.member import Now

__all__ = ["ConsumerGroup", "Step"]


class Step(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, answer."""

    answer: Answer
    records: list[Record]


class ConsumerGroup:
    """A group of consumers, as its records say.

    Invariant: a member of `targets` is in `members`; every partition that a member has, or still
    has to revoke, is in `_owners`.
    """

    type: Literal["consumer"] = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    retention_start_ms = NO_TIMESTAMP  # offsets expire by the time of their commits

    def __init__(self, group_id: str, limits: ConsumerLimits) -> None:
        self.group_id = group_id
        self.limits = limits
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, frozenset[str]] = {}  # topics by regular expression
        self.subscriptions = Subscriptions()  # of `members`
        self._statics: dict[str, str] = {}  # member ids by instance id
        self._owners: dict[tuple[bytes, int], str] = {}
        self.deadlines = Deadlines()
        self._is_stale = True  # topics may have changed since the last look

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from the members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members."""
        return not self.members

    @property
    def assignor(self) -> str:
        """Return the assignor that the members want."""
        return preferred_assignor(self.members.values(), self.limits.assignors)

    @property
    def is_all_classic(self) -> bool:
        """Return whether no member uses the consumer protocol."""
        return all(each.subscription.classic is not None for each in self.members.values())

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether others still have a partition of a member's target assignment."""
        return any(
            self._owners.get((topic, partition), member.member_id) != member.member_id
            for topic, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members may read a topic."""
        return topic in self.subscriptions.names(self.patterns)

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, topics: Topics, now: Now) -> Step:
        """Return what to do about a heartbeat whose fields are checked; RefusedError changes
        nothing."""
        if request.epoch < 0:
            return self._leave(request, topics)
        self.check_room(request.member_id)
        member, replaced = self._member_of(request)
        updated = member._replace(subscription=_merged(member.subscription, request))
        records: list[Record] = []
        stepped = updated
        if replaced is not None or updated != member or not self._is_settled(member):
            draft = Draft(self, updated, replaced)
            draft.subscribe(member, topics, now)
            draft.assign(topics, now)
            is_changed = not updated.subscription.subscribes_as(member.subscription)
            wish = Wish(draft.topic_ids(topics), is_changed)
            stepped = self._reconciled(draft, request, wish)
            records = draft.records
        if stepped != updated:
            records.append(assignment_record(self.group_id, stepped))
        self.deadlines.alive(stepped, self.limits, now)
        if stepped != updated:
            self.deadlines.changed(stepped, now)
        is_shown = request.is_full or stepped.assigned != member.assigned
        assigned = _without_epochs(stepped) if is_shown else None
        interval_ms = self.limits.heartbeat_interval_ms
        answer = Answer(stepped.member_id, stepped.epoch, assigned, interval_ms)
        return Step(answer, records)

    def _is_settled(self, member: ConsumerMember) -> bool:
        """Return whether a member has its part of the last assignment, and no other one is due.

        Most heartbeats find it so."""
        return (
            not self._is_stale
            and self.epoch == self.assignment_epoch
            and member.is_reconciled(self.epoch)
        )

    def check_room(self, member_id: str) -> None:
        """Refuse a new member of a full group."""
        if len(self.members) >= self.limits.size_max and member_id not in self.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self.limits.size_max} members.",
            )

    def _reconciled(self, draft: Draft, request: Heartbeat, wish: Wish) -> ConsumerMember:
        member = draft.member
        if member.state is MemberState.UNKNOWN and (request.owned is None or request.owned):
            raise RefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            )
        owner_ids = {member.member_id, draft.replaced and draft.replaced.member_id, None}
        return next_step(
            member,
            draft.target,
            request.owned,
            lambda topic, partition: self._owners.get((topic, partition)) not in owner_ids,
            wish,
        )

    def _member_of(self, request: Heartbeat) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member of a heartbeat, and the static member that it replaces."""
        if request.instance_id is not None:
            return self._static_member_of(request)
        if request.epoch == 0 and request.member_id not in self.members:
            return ConsumerMember(request.member_id), None
        member = self.known(request.member_id, None)
        _check_epoch(member, request)
        return member, None

    def _static_member_of(self, request: Heartbeat) -> tuple[ConsumerMember, ConsumerMember | None]:
        assert request.instance_id is not None
        if request.epoch != 0:
            member = self.known(request.member_id, request.instance_id)
            _check_epoch(member, request)
            return member, None
        held_by = self._statics.get(request.instance_id)
        if held_by is None:
            return self.members.get(request.member_id, ConsumerMember(request.member_id)), None
        previous = self.members[held_by]
        is_swapping = previous.subscription.classic is not None or request.classic is not None
        if previous.epoch != LEAVING_STATIC and not is_swapping:
            raise RefusedError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot "
                f"join the group because the instance id is owned by {held_by} member.",
            )
        return previous._replace(member_id=request.member_id, epoch=0, previous_epoch=0), previous

    def has_static(self, instance_id: str) -> bool:
        """Return whether there is a static member with this instance id."""
        return instance_id in self._statics

    def static_member(self, instance_id: str) -> ConsumerMember:
        """Return a static member, or refuse."""
        held_by = self._statics.get(instance_id)
        if held_by is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        return self.members[held_by]

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member that no other has replaced, or refuse."""
        if instance_id is not None:
            member = self.static_member(instance_id)
            if member.member_id != member_id:
                raise RefusedError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} was fenced by "
                    f"member {member.member_id}.",
                )
            return member
        if member_id not in self.members:
            raise RefusedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return self.members[member_id]

    def _leave(self, request: Heartbeat, topics: Topics) -> Step:
        answer = Answer(request.member_id, request.epoch)
        member = self.known(request.member_id, request.instance_id)
        if request.instance_id is not None and request.epoch == LEAVING_STATIC:
            away = member._replace(epoch=LEAVING_STATIC, revoking=NO_PARTITIONS)
            return Step(answer, [assignment_record(self.group_id, away)])
        return Step(answer, self.fence([request.member_id], topics))

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets."""
        leaving = sorted(member_ids)
        records = [record for each in leaving for record in removal(self.group_id, each)]
        rest = self.subscriptions.copy()
        for each in leaving:
            rest.remove(self.members[each].subscription)
        unused = sorted(self.patterns.keys() - rest.patterns)
        records += [pattern_record(self.group_id, regex, None) for regex in unused]
        metadata_hash = topics.hash_of(rest.names(self.patterns))
        records.append(epoch_record(self.group_id, self.epoch + 1, metadata_hash))
        return records

    # ---- time --------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Note that the next heartbeat must look at the topics."""
        self._is_stale = True

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
        for member in self.members.values():
            self.deadlines.alive(member, self.limits, now)
            self.deadlines.changed(member, now)

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` is due, None if nothing can expire."""
        return self.deadlines.next_ms(self.members)

    def expire(self, topics: Topics, now: Now) -> list[Record]:
        """Return the records that remove members whose session or rebalance timeout has passed."""
        late = self.deadlines.late(self.members, now)
        return self.fence(late, topics) if late else []

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        key, value = record
        if isinstance(key, ConsumerGroupMetadataKey):
            if value is not None:  # a tombstone removes the group, which its shard does
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assignment_ms = 0 if value is None else value.assignment_timestamp
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            self.patterns.pop(key.regular_expression, None)
            if value is not None:
                self.patterns[key.regular_expression] = frozenset(value.topics)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = {
                    each.topic_id: frozenset(each.partitions) for each in value.topic_partitions
                }
        elif isinstance(key, ConsumerGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            self._replay_assignment(key.member_id, value)

    def _replay_member(self, member_id: str, value: Any) -> None:
        member = self.members.get(member_id, ConsumerMember(member_id))
        self._remove(member)
        if value is not None:
            self._insert(with_subscription(member, value))

    def _replay_assignment(self, member_id: str, value: Any) -> None:
        member = self.members.get(member_id)
        if value is not None:
            member = member or ConsumerMember(member_id)
            self._remove(member)
            self._insert(with_assignment(member, value))
        elif member is not None:  # the tombstone of the member itself follows
            self._remove(member)
            self._insert(
                member._replace(
                    epoch=LEAVING,
                    previous_epoch=LEAVING,
                    assigned=NO_PARTITIONS,
                    revoking=NO_PARTITIONS,
                )
            )

    def _insert(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        self.subscriptions.add(member.subscription)
        if member.subscription.instance_id is not None:
            self._statics[member.subscription.instance_id] = member.member_id
        for partition in _partitions_of(member):
            self._owners[partition] = member.member_id

    def _remove(self, member: ConsumerMember) -> None:
        if self.members.pop(member.member_id, None) is not None:
            self.subscriptions.remove(member.subscription)
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._statics.get(instance_id) == member.member_id:
            del self._statics[instance_id]
        # After compaction the record of a later owner may come first: leave that one its partition.
        for partition in _partitions_of(member):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members."""
        records = [
            record for each in sorted(self.members) for record in removal(self.group_id, each)
        ]
        records += [pattern_record(self.group_id, regex, None) for regex in sorted(self.patterns)]
        records.append(Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id)))
        records.append(Record(ConsumerGroupMetadataKey(group_id=self.group_id)))
        return records


def _merged(known: Subscription, request: Heartbeat) -> Subscription:
    """Return what the member says now; what the request leaves out stays."""
    return Subscription(
        instance_id=_or(request.instance_id, known.instance_id),
        rack_id=_or(request.rack_id, known.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=known.topic_names
        if request.topic_names is None
        else frozenset(request.topic_names),
        topic_regex=_or(request.topic_regex, known.topic_regex),
        rebalance_timeout_ms=known.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        server_assignor=_or(request.server_assignor, known.server_assignor),
        classic=request.classic,
    )


def _or(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _check_epoch(member: ConsumerMember, request: Heartbeat) -> None:
    """Refuse a wrong epoch; the previous one is right if the last answer may be lost."""
    received, known = request.epoch, member.epoch
    if received in (0, known) or request.classic is not None:
        return
    if received == member.previous_epoch < known and _is_part(request.owned, member):
        return
    size = "greater" if received > known else "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by "
        f"the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _is_part(owned: Partitions | None, member: ConsumerMember) -> bool:
    return owned is not None and all(
        partitions <= member.assigned.get(topic, {}).keys() for topic, partitions in owned.items()
    )


def _without_epochs(member: ConsumerMember) -> Partitions:
    return {topic: frozenset(partitions) for topic, partitions in member.assigned.items()}


def _partitions_of(member: ConsumerMember) -> Iterator[tuple[bytes, int]]:
    for epochs in (member.assigned, member.revoking):
        for topic, partitions in epochs.items():
            for partition in partitions:
                yield topic, partition
