"""One consumer group of KIP-848: it answers heartbeats and says which records to write. Pure."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.classic.member import CONSUMER_PROTOCOL_TYPE
from tidelog.coordinators.groups.consumer.deadlines import ConsumerDeadlines
from tidelog.coordinators.groups.consumer.draft import Draft, preferred_assignor
from tidelog.coordinators.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from tidelog.coordinators.groups.consumer.reconciliation import Target, next_step
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.modern.group import ModernGroup
from tidelog.coordinators.groups.modern.member import (
    LEAVING_STATIC,
    Partitions,
    Subscription,
)
from tidelog.coordinators.groups.modern.records import Record
from tidelog.coordinators.groups.modern.requests import Answer, RefusedError
from tidelog.coordinators.groups.modern.states import MemberState, is_reconciled
from tidelog.coordinators.groups.modern.subscriptions import Subscriptions
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.consumer_records import ConsumerGroupPartitionMetadataKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any, Literal

    from tidelog.coordinators.groups.consumer.requests import Heartbeat
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now

__all__ = ["ConsumerGroup", "Step"]

_new = tuple.__new__  # what a NamedTuple's own constructor calls, three times as fast


class Step(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, answer. The last
    record is that of the member, if it has moved: its bytes come of `encoded_assignment`, and
    `moved_to` replays it."""

    answer: Answer
    records: list[Record]
    moved: ConsumerMember | None = None

    def all_records(self, group_id: str) -> list[Record]:
        """Return the records with that of the member."""
        if self.moved is None:
            return self.records
        return [*self.records, RECORDS.assignment_record(group_id, self.moved)]


class ConsumerGroup(ModernGroup[ConsumerMember, Partitions, ConsumerLimits]):
    """A group of consumers.

    Invariant: every partition that a member has, or still has to revoke, is in `_owners`.
    """

    type: Literal["consumer"] = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    records = RECORDS

    def __init__(self, group_id: str, limits: ConsumerLimits) -> None:
        self.deadlines = ConsumerDeadlines()
        super().__init__(group_id, limits, self.deadlines)
        self.patterns: dict[str, frozenset[str]] = {}  # topics by regular expression
        self.subscriptions = Subscriptions()  # of `members`
        self._statics: dict[str, str] = {}  # member ids by instance id
        self._owners: dict[bytes, dict[int, str]] = {}  # member ids by topic id and partition
        self._has_partition_metadata = False  # a record that Kafka wrote until 4.0

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
        own_ids = (member.member_id,)
        target = self.targets.get(member.member_id, {})
        return any(self._taken(own_ids, *each) for each in target.items())

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
        updated = member
        if not _says_known(member.subscription, request):
            updated = member._replace(subscription=_merged(member.subscription, request))
        records: list[Record] = []
        stepped = updated
        if replaced is None and updated is member and self._is_assigned:
            if not is_reconciled(member, self.epoch):
                stepped = self._towards_target(member, request)
        else:
            draft = Draft(self, updated, replaced)
            draft.subscribe(member, topics, now)
            draft.assign(topics, now)
            is_changed = not updated.subscription.subscribes_as(member.subscription)
            stepped = self._reconciled(
                draft, request, draft.topic_ids(topics), is_changed=is_changed
            )
            records = draft.records
        self.alive(stepped, now)
        moved = None
        if stepped != updated:
            moved = stepped
            self.moved(stepped, now)
        is_shown = request.is_full or stepped.assigned != member.assigned
        assigned = _without_epochs(stepped) if is_shown else None
        interval_ms = self.limits.heartbeat_interval_ms
        answer = Answer(stepped.member_id, stepped.epoch, assigned, interval_ms)
        return _new(Step, (answer, records, moved))

    def renewed(self, member_id: str, epoch: int, client: tuple[str, str], ticks_ms: int) -> bool:
        """Begin a member's session if it is what its heartbeat says, and has all that it will have;
        return whether it is so."""
        member = self.members.get(member_id)
        if member is None or member.epoch != epoch or self.is_stale:
            return False
        said = member.subscription
        if (
            not epoch == self.epoch == self.assignment_epoch
            or member.state is not MemberState.STABLE
            or said.classic is not None
            or client != (said.client_id, said.client_host)
        ):
            return False
        self.deadlines.alive(member_id, ticks_ms + self.limits.session_timeout_ms)
        return True

    @property
    def _is_assigned(self) -> bool:
        """Return whether no other assignment is due. Most heartbeats find it so."""
        return not self.is_stale and self.epoch == self.assignment_epoch

    def _towards_target(self, member: ConsumerMember, request: Heartbeat) -> ConsumerMember:
        """Return a member after its next step to an assignment of all that it subscribes to."""
        partitions = self.targets.get(member.member_id, {})
        target = _new(Target, (self.assignment_epoch, partitions))
        taken = partial(self._taken, (member.member_id,))
        return next_step(member, target, request.owned, taken)

    def _taken(
        self, own_ids: Collection[str | None], topic: bytes, partitions: Iterable[int]
    ) -> set[int]:
        """Return the partitions of a topic that others have."""
        owners = self._owners.get(topic)
        if not owners or not (owned := owners.keys() & partitions):
            return set()
        return {each for each in owned if owners[each] not in own_ids}

    def check_room(self, member_id: str) -> None:
        """Refuse a new member of a full group."""
        if len(self.members) >= self.limits.size_max and member_id not in self.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{self.limits.size_max} members.",
            )

    def _reconciled(
        self, draft: Draft, request: Heartbeat, topic_ids: Collection[bytes], *, is_changed: bool
    ) -> ConsumerMember:
        """Return a member after its next step, of which topics it may have unsubscribed."""
        member, target = draft.member, draft.target
        wanted = {topic: each for topic, each in target.partitions.items() if topic in topic_ids}
        own_ids = {member.member_id, draft.replaced and draft.replaced.member_id}
        taken = partial(self._taken, own_ids)
        target = Target(target.epoch, wanted)
        new_topics = topic_ids if is_changed else None
        return next_step(member, target, request.owned, taken, new_topics)

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
        return self.must_have(member_id)

    def _leave(self, request: Heartbeat, topics: Topics) -> Step:
        answer = Answer(request.member_id, request.epoch)
        member = self.known(request.member_id, request.instance_id)
        if request.instance_id is not None and request.epoch == LEAVING_STATIC:
            # As in Kafka, its next process may commit what it has in any epoch.
            held = {topic: dict.fromkeys(each, 0) for topic, each in member.assigned.items()}
            away = member._replace(epoch=LEAVING_STATIC, assigned=held, revoking=NO_PARTITIONS)
            return Step(answer, [RECORDS.assignment_record(self.group_id, away)])
        return Step(answer, self.fence([request.member_id], topics))

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets."""
        leaving = sorted(member_ids)
        records = RECORDS.removal(self.group_id, leaving)
        rest = self.subscriptions.copy()
        for each in leaving:
            rest.remove(self.members[each].subscription)
        unused = sorted(self.patterns.keys() - rest.patterns)
        records += [RECORDS.pattern_record(self.group_id, regex, None) for regex in unused]
        metadata_hash = topics.hash_of(rest.names(self.patterns))
        records.append(RECORDS.epoch_record(self.group_id, self.epoch + 1, metadata_hash))
        return records

    # ---- time --------------------------------------------------------------------------------

    def session_ms(self, member: ConsumerMember) -> int:
        """Return how long a member stays without heartbeats; a classic one has asked for it."""
        classic = member.subscription.classic
        return self.limits.session_timeout_ms if classic is None else classic.session_timeout_ms

    def revocation_ms(self, member: ConsumerMember) -> int | None:
        """Return how long a member may take to revoke partitions, None if it need not; a classic
        one has its time to join instead."""
        said = member.subscription
        is_revoking = member.state is MemberState.UNREVOKED and said.classic is None
        return said.rebalance_timeout_ms if is_revoking else None

    # ---- records -----------------------------------------------------------------------------

    def moved_to(self, member: ConsumerMember) -> None:
        """Apply a member's step that was appended, as a replay of its record would."""
        before = self.members.pop(member.member_id, None)
        if before is not None and before.subscription is not member.subscription:
            member = member._replace(subscription=before.subscription)  # as its own record says
        self.members[member.member_id] = member
        self._stepped(before, member)

    def _replay_other(self, key: Any, value: Any) -> None:
        if isinstance(key, ConsumerGroupPartitionMetadataKey):
            self._has_partition_metadata = value is not None
            return
        self.patterns.pop(key.regular_expression, None)
        if value is not None:
            self.patterns[key.regular_expression] = frozenset(value.topics)

    def _added(self, member: ConsumerMember) -> None:
        self.subscriptions.add(member.subscription)
        if member.subscription.instance_id is not None:
            self._statics[member.subscription.instance_id] = member.member_id
        self._own(member)

    def _removed(self, member: ConsumerMember) -> None:
        self.subscriptions.remove(member.subscription)
        instance_id = member.subscription.instance_id
        if instance_id is not None and self._statics.get(instance_id) == member.member_id:
            del self._statics[instance_id]
        self._disown(member)

    def _stepped(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        if before is None:
            self._added(after)
        elif before.assigned != after.assigned or before.revoking != after.revoking:
            self._disown(before)
            self._own(after)

    def _own(self, member: ConsumerMember) -> None:
        for topic, partitions in _parts_of(member):
            owners = self._owners.setdefault(topic, {})
            owners.update(dict.fromkeys(partitions, member.member_id))

    def _disown(self, member: ConsumerMember) -> None:
        # After compaction the record of a later owner may come first: leave that one its partition.
        for topic, partitions in _parts_of(member):
            owners = self._owners.get(topic, {})
            for partition in partitions:
                if owners.get(partition) == member.member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic, None)

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members, in Kafka's order."""
        return [
            *RECORDS.removal(self.group_id, self.members),
            *(RECORDS.pattern_record(self.group_id, each, None) for each in sorted(self.patterns)),
            Record(RECORDS.target_epoch_key(group_id=self.group_id)),
            *self._partition_metadata_tombstones(),
            Record(RECORDS.group_key(group_id=self.group_id)),
        ]

    def _partition_metadata_tombstones(self) -> list[Record]:
        """Without it, a start would find the group again by this record alone."""
        if not self._has_partition_metadata:
            return []
        return [Record(ConsumerGroupPartitionMetadataKey(group_id=self.group_id))]


def _says_known(known: Subscription, request: Heartbeat) -> bool:
    """Return whether a member says what is known of it, or less."""
    names = request.topic_names
    return (
        request.client_id == known.client_id
        and request.client_host == known.client_host
        and request.instance_id in (None, known.instance_id)
        and request.rack_id in (None, known.rack_id)
        and (names is None or frozenset(names) == known.topic_names)
        and request.topic_regex in (None, known.topic_regex)
        and request.rebalance_timeout_ms in (-1, known.rebalance_timeout_ms)
        and request.server_assignor in (None, known.server_assignor)
        and request.classic == known.classic
    )


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


def _parts_of(member: ConsumerMember) -> Iterable[tuple[bytes, Iterable[int]]]:
    """Return what a member has and what it must still revoke, by topic id."""
    return chain(member.assigned.items(), member.revoking.items())
