"""The records of one heartbeat of a share group's member. Pure.

`ShareGroup.heartbeat` makes a draft for each heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.draft import is_too_early, target_records
from tidelog.coordinators.groups.modern.member import Subscriber
from tidelog.coordinators.groups.modern.states import is_reconciled
from tidelog.coordinators.groups.share.assignor import simple_assignor
from tidelog.coordinators.groups.share.member import NOTHING
from tidelog.coordinators.groups.share.partitions import TopicPartitions
from tidelog.coordinators.groups.share.records import RECORDS, partitions_record

if TYPE_CHECKING:
    from tidelog.coordinators.groups.modern.member import Partitions
    from tidelog.coordinators.groups.modern.records import Record
    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.share.member import ShareMember
    from tidelog.coordinators.groups.share.requests import ShareHeartbeat
    from tidelog.coordinators.groups.share.views import ShareGroupView

__all__ = ["Draft"]


class Draft:
    """The member after a heartbeat, and the records so far. The group is only read."""

    def __init__(self, group: ShareGroupView, before: ShareMember, request: ShareHeartbeat) -> None:
        self.member = before._replace(
            subscription=before.subscription._replace(
                rack_id=before.subscription.rack_id if request.rack_id is None else request.rack_id,
                client_id=request.client_id,
                client_host=request.client_host,
                topic_names=before.subscription.topic_names
                if request.topic_names is None
                else frozenset(request.topic_names),
            )
        )
        self.records: list[Record] = []
        self.epoch = group.epoch
        self._group = group
        self._target_epoch = group.assignment_epoch
        self._target: Partitions = group.targets.get(before.member_id, NOTHING)
        self._names = group.subscriptions.names({})

    @property
    def _is_changed(self) -> bool:
        """Return whether the group begins an epoch with this heartbeat."""
        return self.epoch > self._group.epoch

    def subscribe(self, topics: Topics) -> None:
        """Add what the member says that is new; begin an epoch if it subscribes to other topics, if
        the topics have changed, or if partitions wait that are initialized now."""
        group, member = self._group, self.member
        known = group.members.get(member.member_id)
        is_changed = known is None or (
            known.subscription.topic_names != member.subscription.topic_names
        )
        if known is None or member.subscription != known.subscription:
            self.records.append(RECORDS.subscription_record(group.group_id, member))
        if group.assignment_epoch >= group.epoch and group.members:
            is_changed |= group.is_unassigned(topics)
        if not (is_changed or group.is_stale):
            return
        subscriptions = group.subscriptions.copy()
        if known is not None:
            subscriptions.remove(known.subscription)
        subscriptions.add(member.subscription)
        self._names = subscriptions.names({})
        metadata_hash = topics.hash_of(self._names)
        if is_changed or metadata_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(RECORDS.epoch_record(group.group_id, self.epoch, metadata_hash))
        else:  # after a change this waits for the next heartbeat: the write may fail
            group.is_stale = False

    def assign(self, topics: Topics, now: Now) -> None:
        """Add the target assignment of the group's epoch if it is due and not computed yet."""
        group = self._group
        if self.epoch <= group.assignment_epoch or is_too_early(group, now):
            return
        members = {**group.members, self.member.member_id: self.member}
        subscribers = {
            member_id: Subscriber(_ids(member, topics), group.targets.get(member_id, NOTHING))
            for member_id, member in members.items()
        }
        counts = dict(filter(None, map(topics.find, self._names)))
        assignable = {
            topic_id: each.partitions.intersection(range(counts[topic_id]))
            for topic_id, each in group.partitions.initialized.items()
            if topic_id in counts
        }
        targets = simple_assignor(subscribers, assignable)
        self.records += target_records(RECORDS, group.group_id, group.targets, targets)
        self.records.append(RECORDS.target_epoch_record(group.group_id, self.epoch, now.wall_ms))
        self._target_epoch, self._target = self.epoch, targets[self.member.member_id]

    def reconcile(self, topics: Topics) -> None:
        """Move the member to the target assignment, without topics it does not subscribe to: the
        target may be older than the subscription."""
        before = self.member
        if is_reconciled(before, self._target_epoch) and not self._is_changed:
            return
        subscribed = _ids(before, topics)
        partitions = {
            topic_id: each for topic_id, each in self._target.items() if topic_id in subscribed
        }
        self.member = before.moved(self._target_epoch, partitions)
        if self.member != before:
            self.records.append(RECORDS.assignment_record(self._group.group_id, self.member))

    def initialize(self, topics: Topics, now: Now) -> dict[bytes, TopicPartitions]:
        """Return the partitions that members subscribe to and whose state is to be initialized;
        add a record of them."""
        group = self._group
        missing = {}
        for name in sorted(self._names):
            found = topics.find(name)
            if found is None:
                continue
            topic_id, count = found
            is_retry = group.may_retry(topic_id, now)
            partitions = group.partitions.missing(topic_id, count, is_retry=is_retry)
            if partitions:
                missing[topic_id] = TopicPartitions(name, partitions)
        if missing:
            record = partitions_record(group.group_id, group.partitions.begun(missing))
            self.records.append(record)
        return missing


def _ids(member: ShareMember, topics: Topics) -> frozenset[bytes]:
    found = map(topics.find, member.subscription.topic_names)
    return frozenset(each[0] for each in found if each is not None)
