"""The records of one heartbeat: what the member subscribes to, and a new target assignment.

Pure; `ConsumerGroup.heartbeat` makes a draft for each heartbeat.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.assignors import ASSIGNORS
from tidelog.coordinators.groups.consumer.reconciliation import Target
from tidelog.coordinators.groups.consumer.records import RECORDS
from tidelog.coordinators.groups.modern.draft import is_too_early, target_records
from tidelog.coordinators.groups.modern.member import Subscriber
from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.modern.subscriptions import subscribed_names
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.coordinators.groups.consumer.member import ConsumerMember
    from tidelog.coordinators.groups.consumer.views import ConsumerGroupView
    from tidelog.coordinators.groups.modern.member import Subscription
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.subscriptions import Patterns, Subscriptions
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now

__all__ = ["Draft", "preferred_assignor"]


class Draft:
    """The member after a heartbeat, and the records so far. The group is only read."""

    def __init__(
        self, group: ConsumerGroupView, member: ConsumerMember, replaced: ConsumerMember | None
    ) -> None:
        """`replaced` is the static member whose place the member takes."""
        self.member = member
        self.replaced = replaced
        self.records: list[Record] = []
        self.target = Target(
            group.assignment_epoch, group.targets.get((replaced or member).member_id, {})
        )
        self._group = group
        self._epoch = group.epoch
        self._patterns: Patterns = group.patterns
        if replaced is not None:
            self.records += [
                *RECORDS.removal(group.group_id, [replaced.member_id]),
                RECORDS.subscription_record(group.group_id, member),
                RECORDS.target_record(group.group_id, member.member_id, self.target.partitions),
                RECORDS.assignment_record(group.group_id, member),
            ]

    def subscribe(self, before: ConsumerMember, topics: Topics, now: Now) -> None:
        """Add what the member says that is new; begin an epoch if it subscribes to other topics, or
        if the topics have changed."""
        group, member = self._group, self.member
        is_new = self.replaced is None and member.member_id not in group.members
        if is_new or (self.replaced is None and member.subscription != before.subscription):
            self.records.append(RECORDS.subscription_record(group.group_id, member))
        if member.subscription.subscribes_as(before.subscription) and not group.is_stale:
            return
        subscriptions = self._subscriptions()
        is_changed = self._is_other_choice(before.subscription)
        is_changed |= self._resolve(subscriptions.patterns, topics, now)
        metadata_hash = topics.hash_of(subscriptions.names(self._patterns))
        if is_changed or metadata_hash != group.metadata_hash:
            self._epoch += 1
            self.records.append(RECORDS.epoch_record(group.group_id, self._epoch, metadata_hash))
        else:  # after a change this waits for the next heartbeat: the write may fail
            group.is_stale = False

    def _members(self) -> dict[str, ConsumerMember]:
        """Return the members as they will be."""
        members = dict(self._group.members)
        if self.replaced is not None:
            members.pop(self.replaced.member_id, None)
        members[self.member.member_id] = self.member
        return members

    def _subscriptions(self) -> Subscriptions:
        """Return the members' subscriptions as they will be."""
        subscriptions = self._group.subscriptions.copy()
        known = self._group.members.get((self.replaced or self.member).member_id)
        if known is not None:
            subscriptions.remove(known.subscription)
        subscriptions.add(self.member.subscription)
        return subscriptions

    def _is_other_choice(self, before: Subscription) -> bool:
        """Return whether the member subscribes to other topics, whatever a regular expression that
        is new to the group matches."""
        said = self.member.subscription
        if said.topic_names != before.topic_names:
            return True
        regex = said.topic_regex or ""
        return regex != (before.topic_regex or "") and (not regex or regex in self._group.patterns)

    def _resolve(self, wanted: Sequence[str], topics: Topics, now: Now) -> bool:
        """Match the regular expressions with the topics; return whether any match has changed."""
        group = self._group
        own = self.member.subscription.topic_regex
        patterns = {}
        is_changed = False
        for regex in wanted:
            known = group.patterns.get(regex)
            if known is not None and not group.is_stale:
                patterns[regex] = known
                continue
            try:
                patterns[regex] = topics.matching(regex)
            except ValueError as error:
                if regex == own:
                    raise RefusedError(
                        ErrorCode.INVALID_REGULAR_EXPRESSION,
                        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
                        f"{error}.",
                    ) from None
                patterns[regex] = frozenset()
            if patterns[regex] != known:
                is_changed |= patterns[regex] != (known or frozenset())
                found = (patterns[regex], topics.version, now.wall_ms)
                self.records.append(RECORDS.pattern_record(group.group_id, regex, found))
        for regex in sorted(group.patterns.keys() - patterns.keys()):
            self.records.append(RECORDS.pattern_record(group.group_id, regex, None))
        self._patterns = patterns
        return is_changed

    def topic_ids(self, topics: Topics) -> set[bytes]:
        """Return the topics that the member subscribes to; those that do not exist have no id."""
        names = subscribed_names(self.member.subscription, self._patterns)
        return {found[0] for found in map(topics.find, names) if found is not None}

    def assign(self, topics: Topics, now: Now) -> None:
        """Add the target assignment of the group's epoch if it is due and not computed yet."""
        group = self._group
        if self._epoch <= group.assignment_epoch or is_too_early(group, now):
            return
        members = self._members()
        known = dict(group.targets)
        known[self.member.member_id] = self.target.partitions
        counts: dict[bytes, int] = {}
        ids_of: dict[frozenset[str], frozenset[bytes]] = {}  # members often subscribe alike
        subscribers = {}
        for member_id, member in members.items():
            names = subscribed_names(member.subscription, self._patterns)
            if names not in ids_of:
                found = [each for each in map(topics.find, names) if each is not None]
                counts.update(found)
                ids_of[names] = frozenset(topic_id for topic_id, _ in found)
            subscribers[member_id] = Subscriber(
                ids_of[names], known.get(member_id, {}), member.subscription.instance_id
            )
        assignor = preferred_assignor(members.values(), group.limits.assignors)
        targets = ASSIGNORS[assignor](subscribers, counts)
        before = group.targets if self.replaced is None else known  # a replaced one's is written
        self.records += target_records(RECORDS, group.group_id, before, targets)
        self.records.append(RECORDS.target_epoch_record(group.group_id, self._epoch, now.wall_ms))
        self.target = Target(self._epoch, targets[self.member.member_id])


def preferred_assignor(members: Iterable[ConsumerMember], names: Sequence[str]) -> str:
    """Return the assignor that most members want; the first if none of them wants one."""
    votes = Counter(each.subscription.server_assignor for each in members)
    return max(names, key=lambda name: votes[name])
