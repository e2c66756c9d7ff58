"""One share group (KIP-932): it answers heartbeats and says which records to write. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.group import ModernGroup
from tidelog.coordinators.groups.modern.member import LEAVING, Partitions
from tidelog.coordinators.groups.modern.records import Record
from tidelog.coordinators.groups.modern.requests import Answer, RefusedError
from tidelog.coordinators.groups.modern.subscriptions import Subscriptions
from tidelog.coordinators.groups.share.draft import Draft
from tidelog.coordinators.groups.share.member import ShareMember
from tidelog.coordinators.groups.share.partitions import SharePartitions, TopicPartitions
from tidelog.coordinators.groups.share.records import RECORDS, partitions_of, partitions_record
from tidelog.coordinators.groups.share.views import ShareLimits
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.share_group_records import ShareGroupStatePartitionMetadataKey

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet
    from typing import Any, Literal

    from tidelog.coordinators.groups.modern.topics import Topics
    from tidelog.coordinators.groups.now import Now
    from tidelog.coordinators.groups.share.requests import ShareHeartbeat

__all__ = ["ShareGroup", "ShareStep"]


class ShareStep(NamedTuple):
    """What to do about a heartbeat: append the records as one batch, replay them, answer, and have
    the state of these partitions initialized."""

    answer: Answer
    records: list[Record]
    initialize: dict[bytes, TopicPartitions]
    state_epoch: int = 0


class ShareGroup(ModernGroup[ShareMember, Partitions, ShareLimits]):
    """A group of share consumers."""

    type: Literal["share"] = "share"
    protocol_type = "share"
    records = RECORDS

    def __init__(self, group_id: str, limits: ShareLimits) -> None:
        super().__init__(group_id, limits)
        self.partitions = SharePartitions()
        self.subscriptions = Subscriptions()  # of `members`
        self._begun: dict[bytes, int] = {}  # by topic: ticks_ms when its state was last begun
        self._is_unassigned: bool | None = None  # None: to be looked at

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members may read a topic."""
        return topic in self.subscriptions.names({})

    # ---- heartbeats --------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, topics: Topics, now: Now) -> ShareStep:
        """Return what to do about a heartbeat whose fields are checked; RefusedError changes
        nothing."""
        known = self.members.get(request.member_id)
        if request.epoch == LEAVING:
            self.must_have(request.member_id)
            answer = Answer(request.member_id, request.epoch)
            return ShareStep(answer, self.fence([request.member_id], topics), {})
        if known is None and len(self.members) >= self.limits.size_max:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The share group has reached its maximum capacity of "
                f"{self.limits.size_max} members.",
            )
        if request.epoch != 0:
            _check_epoch(self.must_have(request.member_id), request.epoch)
        member = known or ShareMember(request.member_id)
        draft = Draft(self, member, request)
        draft.subscribe(topics)
        draft.assign(topics, now)
        draft.reconcile(topics)
        self.alive(draft.member, now)
        initialize = draft.initialize(topics, now)
        after = draft.member
        is_full = request.epoch == 0 or request.topic_names is not None
        is_shown = is_full or after.assigned != member.assigned
        assigned = after.assigned if is_shown else None
        answer = Answer(after.member_id, after.epoch, assigned, self.limits.heartbeat_interval_ms)
        return ShareStep(answer, draft.records, initialize, draft.epoch)

    def fence(self, member_ids: Iterable[str], topics: Topics) -> list[Record]:
        """Return the records that remove these members; the next heartbeat computes the targets."""
        leaving = sorted(member_ids)
        records = RECORDS.removal(self.group_id, leaving)
        rest = self.subscriptions.copy()
        for each in leaving:
            rest.remove(self.members[each].subscription)
        metadata_hash = topics.hash_of(rest.names({}))
        records.append(RECORDS.epoch_record(self.group_id, self.epoch + 1, metadata_hash))
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

    def forget_topics(self, topic_ids: AbstractSet[bytes]) -> list[Record]:
        """Return the record that takes deleted topics out of the partitions, if they are there."""
        after = self.partitions.forgotten(topic_ids)
        return [] if after == self.partitions else [partitions_record(self.group_id, after)]

    def topics_changed(self) -> None:
        """Note that the next heartbeat must look at the topics."""
        super().topics_changed()
        self._is_unassigned = None

    # ---- records -----------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record of this group that has been appended or loaded."""
        if type(record.key) is not RECORDS.current_key:
            self._is_unassigned = None  # of targets, subscriptions and partitions alone
        super().replay(record)

    def _replay_other(self, _key: Any, value: Any) -> None:
        self.partitions = SharePartitions() if value is None else partitions_of(value)

    def _added(self, member: ShareMember) -> None:
        self.subscriptions.add(member.subscription)

    def _removed(self, member: ShareMember) -> None:
        self.subscriptions.remove(member.subscription)

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group and its members, in Kafka's order."""
        return [
            *RECORDS.removal(self.group_id, self.members),
            Record(RECORDS.target_epoch_key(group_id=self.group_id)),
            Record(ShareGroupStatePartitionMetadataKey(group_id=self.group_id)),
            Record(RECORDS.group_key(group_id=self.group_id)),
        ]


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
