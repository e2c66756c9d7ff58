"""Records of a consumer group in `__consumer_offsets`, from and to its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from tidelog.coordinators.groups.modern.member import LEAVING, Subscription
from tidelog.coordinators.groups.modern.records import PartitionRecords, Record
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages import consumer_records
from tidelog_protocol.messages.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)

if TYPE_CHECKING:
    from typing import Any

    from tidelog.coordinators.groups.consumer.member import Epochs
    from tidelog_protocol.messages.consumer_records import ConsumerGroupMemberMetadataValue

__all__ = ["RECORDS"]

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


def _listed(epochs: Epochs) -> list[_CurrentPartitions]:
    listed = []
    for topic in sorted(epochs):
        found = epochs[topic]
        partitions = sorted(found)
        listed.append(
            _CurrentPartitions(
                topic_id=topic,
                partitions=partitions,
                assignment_epochs=[found[each] for each in partitions],
            )
        )
    return listed


def _epochs(listed: list[_CurrentPartitions], member_epoch: int) -> Epochs:
    """Return the epochs of the partitions, without topics that have none; before Kafka 4.3 a record
    did not have epochs."""
    found: dict[bytes, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise ProtocolError("a current assignment with an epoch too many or too few")
        if epochs:
            found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
