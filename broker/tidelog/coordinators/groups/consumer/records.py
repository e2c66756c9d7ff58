"""Records of a consumer group in `__consumer_offsets`, from and to its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.member import ConsumerMember, Subscription
from tidelog.coordinators.groups.consumer.states import MemberState
from tidelog.coordinators.groups.member_records import Record
from tidelog_protocol.errors import ProtocolError
from tidelog_protocol.messages.consumer_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.consumer.member import Epochs

__all__ = [
    "assignment_record",
    "epoch_record",
    "pattern_record",
    "removal",
    "subscription_record",
    "target_epoch_record",
    "target_record",
    "with_assignment",
    "with_subscription",
]

_CurrentPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
_TargetPartitions = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


def subscription_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of what a member says about itself."""
    said = member.subscription
    return Record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=said.instance_id,
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
            subscribed_topic_regex=said.topic_regex or "",  # Kafka 4.3 never writes null
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            server_assignor=said.server_assignor,
            classic_member_metadata=said.classic,
        ),
    )


def with_subscription(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    """Return a member with what its record says."""
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


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Return the record of a group's epoch and of the hash of its topics."""
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def pattern_record(
    group_id: str, regex: str, found: tuple[frozenset[str], int, int] | None
) -> Record:
    """Return the record of a regular expression: topics, metadata version, time; None removes."""
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


def target_epoch_record(group_id: str, epoch: int, timestamp: int) -> Record:
    """Return the record of a target assignment's epoch and time; it follows the members'."""
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp
        ),
    )


def removal(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member, in Kafka's order."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(**names)),
        Record(ConsumerGroupTargetAssignmentMemberKey(**names)),
        Record(ConsumerGroupMemberMetadataKey(**names)),
    ]


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """Return the record of a member's target assignment."""
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                _TargetPartitions(topic_id=topic, partitions=sorted(partitions[topic]))
                for topic in sorted(partitions)
            ]
        ),
    )


def assignment_record(group_id: str, member: ConsumerMember) -> Record:
    """Return the record of a member's epoch and partitions."""
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_listed(member.assigned),
            partitions_pending_revocation=_listed(member.revoking),
        ),
    )


def with_assignment(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    """Return a member with the epoch and the partitions of its record."""
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_epochs(value.assigned_partitions, value.member_epoch),
        revoking=_epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _listed(epochs: Epochs) -> list[_CurrentPartitions]:
    return [
        _CurrentPartitions(
            topic_id=topic,
            partitions=sorted(epochs[topic]),
            assignment_epochs=[epochs[topic][partition] for partition in sorted(epochs[topic])],
        )
        for topic in sorted(epochs)
    ]


def _epochs(listed: list[_CurrentPartitions], member_epoch: int) -> Epochs:
    """Return the epochs of the partitions; before Kafka 4.3 a record did not have them."""
    found: dict[bytes, dict[int, int]] = {}
    for each in listed:
        epochs = each.assignment_epochs or [member_epoch] * len(each.partitions)
        if len(epochs) != len(each.partitions):
            raise ProtocolError("a current assignment with an epoch too many or too few")
        found[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return found
