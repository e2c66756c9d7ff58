"""Records of a consumer group in `__consumer_offsets`, from and to its members."""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from tidelog.coordinators.groups.modern.member import LEAVING, Subscription
from tidelog.coordinators.groups.modern.records import PartitionRecords, Record
from tidelog.coordinators.groups.modern.states import MemberState
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import consumer_records
from tidelog_protocol.messages.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from tidelog_protocol.primitives import write_uvarint

if TYPE_CHECKING:
    from typing import Any

    from tidelog.coordinators.groups.consumer.member import Epochs
    from tidelog.replication.internal_topics import KeyValue
    from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

__all__ = ["RECORDS", "encoded_assignment"]

_CURRENT_KEY, _CURRENT_HEAD, _SHORT = Struct(">hh"), Struct(">hiib"), Struct(">h")
_CURRENT_TYPE = 8
_CurrentPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


class _ConsumerRecords(PartitionRecords[ConsumerMember]):
    """Records of consumer groups."""

    def new_member(self, member_id: str) -> ConsumerMember:
        """Return a member that has said nothing yet."""
        return ConsumerMember(member_id)

    def subscription_record(self, group_id: str, member: ConsumerMember, **more: Any) -> Record:
        """Return the record of what a member says about itself."""
        said = member.subscription
        return super().subscription_record(
            group_id,
            member,
            instance_id=said.instance_id,
            subscribed_topic_regex=said.topic_regex or "",  # Kafka 4.3 never writes null
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            server_assignor=said.server_assignor,
            classic_member_metadata=said.classic,
            **more,
        )

    def with_metadata(
        self, member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
    ) -> ConsumerMember:
        """Return a member with what its record says about it."""
        return member._replace(
            subscription=Subscription(
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
                topic_regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=value.classic_member_metadata,
            )
        )

    def pattern_record(
        self, group_id: str, regex: str, found: tuple[frozenset[str], int, int] | None
    ) -> Record:
        """Return the record of a regular expression: topics, metadata version, time; None
        removes."""
        key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
        if found is None:
            return Record(key)
        names, version, timestamp = found
        return Record(
            key,
            ConsumerGroupRegularExpressionValue(
                topics=sorted(names), version=version, timestamp=timestamp
            ),
        )

    def assignment_record(self, group_id: str, member: ConsumerMember) -> Record:
        """Return the record of a member's epoch and partitions."""
        return self.current_record(
            group_id,
            member,
            assigned_partitions=_listed(member.assigned),
            partitions_pending_revocation=_listed(member.revoking),
        )

    def with_assignment(
        self, member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> ConsumerMember:
        """Return a member with the epoch and the partitions of its record."""
        return ConsumerMember(
            member.member_id,
            member.subscription,
            value.member_epoch,
            value.previous_member_epoch,
            self.state_of(value.state),
            _epochs(value.assigned_partitions, value.member_epoch),
            _epochs(value.partitions_pending_revocation, value.member_epoch),
        )

    def leaving(self, member: ConsumerMember) -> ConsumerMember:
        """Return a member that has nothing any more; its own tombstone follows."""
        return member._replace(
            epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS
        )


RECORDS = _ConsumerRecords(consumer_records, "ConsumerGroup")


def encoded_assignment(group_id: str, member: ConsumerMember) -> KeyValue:
    """Return the bytes of `assignment_record`, as `encode` does in three times the time: each step
    of a member writes one."""
    group, name = group_id.encode(), member.member_id.encode()
    key = b"".join(
        (_CURRENT_KEY.pack(_CURRENT_TYPE, len(group)), group, _SHORT.pack(len(name)), name)
    )
    state = min(MemberState.UNKNOWN, member.state)
    head = _CURRENT_HEAD.pack(0, member.epoch, member.previous_epoch, state)
    value = (head, _encoded(member.assigned), _encoded(member.revoking), b"\0")
    return key, b"".join(value)


def _encoded(epochs: Epochs) -> bytes:
    """Return an array of topics, each with its partitions and, tagged, their epochs."""
    parts = [write_uvarint(len(epochs) + 1)]
    for topic in sorted(epochs):
        found = epochs[topic]
        partitions = sorted(found)
        count, layout = write_uvarint(len(partitions) + 1), f">{len(partitions)}i"
        given = count + pack(layout, *map(found.__getitem__, partitions))
        tagged = b"\1\0" + write_uvarint(len(given))  # one field, with the tag 0
        parts += (topic, count, pack(layout, *partitions), tagged, given)
    return b"".join(parts)


def _listed(epochs: Epochs) -> list[_CurrentPartitions]:
    if not epochs:  # most members have nothing to revoke
        return []
    listed = []
    for topic in sorted(epochs):
        found = epochs[topic]
        partitions = sorted(found)
        given = list(map(found.__getitem__, partitions))
        listed.append(
            _CurrentPartitions(topic_id=topic, partitions=partitions, assignment_epochs=given)
        )
    return listed


def _epochs(listed: list[_CurrentPartitions], member_epoch: int) -> Epochs:
    """Return the epochs of the partitions, without topics that have none; before Kafka 4.3 a record
    did not have epochs."""
    if not listed:
        return NO_PARTITIONS
    found: dict[bytes, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise ProtocolError("a current assignment with an epoch too many or too few")
        if epochs:
            found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
