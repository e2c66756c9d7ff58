"""Records of a share group in `__consumer_offsets`, from and to its members and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinators.groups.modern.member import LEAVING, Subscription
from tidelog.coordinators.groups.modern.records import PartitionRecords, Record
from tidelog.coordinators.groups.share.member import NOTHING, ShareMember
from tidelog.coordinators.groups.share.partitions import SharePartitions, TopicPartitions
from tidelog_protocol.messages import share_group_records
from tidelog_protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.coordinators.groups.share.partitions import Topics
    from tidelog_protocol.messages.share_group_records import ShareGroupMemberMetadataValue

__all__ = ["RECORDS", "partitions_of", "partitions_record"]

_CurrentPartitions = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
_PartitionsInfo = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
_TopicInfo = ShareGroupStatePartitionMetadataValue.TopicInfo


class _ShareRecords(PartitionRecords[ShareMember]):
    """Records of share groups."""

    def new_member(self, member_id: str) -> ShareMember:
        """Return a member that has said nothing yet."""
        return ShareMember(member_id)

    def with_metadata(
        self, member: ShareMember, value: ShareGroupMemberMetadataValue
    ) -> ShareMember:
        """Return a member with what its record says about it."""
        return member._replace(
            subscription=Subscription(
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
            )
        )

    def assignment_record(self, group_id: str, member: ShareMember) -> Record:
        """Return the record of a member's epoch and partitions."""
        assigned = [
            _CurrentPartitions(topic_id=topic, partitions=sorted(member.assigned[topic]))
            for topic in sorted(member.assigned)
        ]
        return self.current_record(group_id, member, assigned_partitions=assigned)

    def with_assignment(
        self, member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue
    ) -> ShareMember:
        """Return a member with the epoch and the partitions of its record."""
        return member._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=self.state_of(value.state),
            assigned={
                each.topic_id: frozenset(each.partitions) for each in value.assigned_partitions
            },
        )

    def leaving(self, member: ShareMember) -> ShareMember:
        """Return a member that has nothing any more; its own tombstone follows."""
        return member._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING)


RECORDS = _ShareRecords(share_group_records, "ShareGroup")


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
