"""Records of a share group in `__consumer_offsets`, from and to its members and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.consumer.member import Subscription
from tidelog.coordinators.groups.consumer.states import MemberState
from tidelog.coordinators.groups.member_records import Record
from tidelog.coordinators.groups.share.partitions import SharePartitions, TopicPartitions
from tidelog_protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.consumer.assignors import Partitions
    from tidelog.coordinators.groups.share.member import ShareMember
    from tidelog.coordinators.groups.share.partitions import Topics

__all__ = [
    "assignment_record",
    "epoch_record",
    "partitions_of",
    "partitions_record",
    "removal",
    "subscription_record",
    "target_epoch_record",
    "target_record",
    "tombstones",
    "with_assignment",
    "with_subscription",
]

_CurrentPartitions = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
_TargetPartitions = ShareGroupTargetAssignmentMemberValue.TopicPartition
_PartitionsInfo = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
_TopicInfo = ShareGroupStatePartitionMetadataValue.TopicInfo


def subscription_record(group_id: str, member: ShareMember) -> Record:
    """Return the record of what a member says about itself."""
    said = member.subscription
    return Record(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=said.rack_id,
            client_id=said.client_id,
            client_host=said.client_host,
            subscribed_topic_names=sorted(said.topic_names),
        ),
    )


def with_subscription(member: ShareMember, value: ShareGroupMemberMetadataValue) -> ShareMember:
    """Return a member with what its record says."""
    return member._replace(
        subscription=Subscription(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """Return the record of a group's epoch and of the hash of its topics."""
    return Record(
        ShareGroupMetadataKey(group_id=group_id),
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    """Return the record of a member's target assignment."""
    return Record(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                _TargetPartitions(topic_id=topic, partitions=sorted(partitions[topic]))
                for topic in sorted(partitions)
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp: int) -> Record:
    """Return the record of a target assignment's epoch and time; it follows the members'."""
    return Record(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp
        ),
    )


def assignment_record(group_id: str, member: ShareMember) -> Record:
    """Return the record of a member's epoch and partitions."""
    return Record(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=[
                _CurrentPartitions(topic_id=topic, partitions=sorted(member.assigned[topic]))
                for topic in sorted(member.assigned)
            ],
        ),
    )


def with_assignment(
    member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue
) -> ShareMember:
    """Return a member with the epoch and the partitions of its record."""
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned={each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions},
    )


def partitions_record(group_id: str, partitions: SharePartitions) -> Record:
    """Return the record of a group's share partitions."""
    return Record(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_listed(partitions.initializing),
            initialized_topics=_listed(partitions.initialized),
            deleting_topics=[
                _TopicInfo(topic_id=topic_id, topic_name=partitions.deleting[topic_id])
                for topic_id in sorted(partitions.deleting)
            ],
        ),
    )


def partitions_of(value: ShareGroupStatePartitionMetadataValue) -> SharePartitions:
    """Return the share partitions of a record."""
    return SharePartitions(
        _topics(value.initializing_topics),
        _topics(value.initialized_topics),
        {each.topic_id: each.topic_name for each in value.deleting_topics},
    )


def _listed(topics: Topics) -> list[_PartitionsInfo]:
    return [
        _PartitionsInfo(
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=sorted(topics[topic_id].partitions),
        )
        for topic_id in sorted(topics)
    ]


def _topics(listed: Iterable[_PartitionsInfo]) -> Topics:
    return {
        each.topic_id: TopicPartitions(each.topic_name, frozenset(each.partitions))
        for each in listed
    }


def removal(group_id: str, member_id: str) -> list[Record]:
    """Return the tombstones of a member, in Kafka's order."""
    names = {"group_id": group_id, "member_id": member_id}
    return [
        Record(ShareGroupCurrentMemberAssignmentKey(**names)),
        Record(ShareGroupTargetAssignmentMemberKey(**names)),
        Record(ShareGroupMemberMetadataKey(**names)),
    ]


def tombstones(group_id: str, member_ids: Iterable[str]) -> list[Record]:
    """Return the records that remove a group and its members."""
    records = [record for each in sorted(member_ids) for record in removal(group_id, each)]
    records.append(Record(ShareGroupTargetAssignmentMetadataKey(group_id=group_id)))
    records.append(Record(ShareGroupStatePartitionMetadataKey(group_id=group_id)))
    records.append(Record(ShareGroupMetadataKey(group_id=group_id)))
    return records
