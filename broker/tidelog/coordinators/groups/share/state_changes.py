"""What a share group has the share coordinator do: begin and delete the state of its partitions.

Each change is noted in the group's record before and after, so that it is repeated if this broker
or the other one stops in between: initializing it does not hurt twice, nor does deleting. All here
is work for `awaiting.drive`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.records import partitions_record
from tidelog.coordinators.share.values import Deletion, Initialization
from tidelog_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.share.partitions import SharePartitions, TopicPartitions
    from tidelog.coordinators.share.persister import Persister
    from tidelog.coordinators.share.values import Outcome

__all__ = ["StateChanges", "first_error"]

logger = logging.getLogger(__name__)


class StateChanges:
    """The states of the share groups of a `GroupCoordinator`."""

    def __init__(self, coordinator: GroupCoordinator, persister: Persister) -> None:
        """Await the persister's methods in driven work (`DrivenPersister`)."""
        self._coordinator = coordinator
        self.persister = persister

    async def initialize(
        self, group_id: str, topics: Mapping[bytes, TopicPartitions], state_epoch: int
    ) -> ErrorCode:
        """Begin states, and note in the group which there are. If one fails, a later heartbeat
        begins all of them again."""
        items = [
            Initialization(topic_id, partition, state_epoch)
            for topic_id in sorted(topics)
            for partition in sorted(topics[topic_id].partitions)
        ]
        outcomes = await self.persister.initialize(group_id, items)
        error = first_error(outcomes)
        if error is not ErrorCode.NONE:
            logger.warning(
                "The state of %d partitions could not be initialized for share group %s: %s. "
                "The next heartbeat of a member tries again.",
                len(items),
                group_id,
                error.name,
            )
        return await self.initialized(group_id, topics, error)

    async def initialized(
        self, group_id: str, topics: Mapping[bytes, TopicPartitions], error: ErrorCode
    ) -> ErrorCode:
        """Note the result of an initialization."""
        found = self.find(group_id)
        if isinstance(found, ErrorCode):
            return found  # the group has moved or is deleted
        partitions = found[1].partitions
        after = (
            partitions.initialized_now(topics)
            if error is ErrorCode.NONE
            else partitions.failed(topics)
        )
        return await self.note(*found, after)

    async def delete(self, shard: GroupShard, group: ShareGroup) -> ErrorCode:
        """Delete all states of a group that is to be deleted."""
        topics = self._coordinator.topics
        names = {
            topic_id: each.name
            for of_topics in (group.partitions.initializing, group.partitions.initialized)
            for topic_id, each in of_topics.items()
        }
        counts = {}
        for topic_id, name in group.partitions.deleting.items():
            found = topics.find(name)
            if found is not None and found[0] == topic_id:
                counts[topic_id] = found[1]
                names[topic_id] = name
        wanted = group.partitions.to_delete(counts)
        if not wanted:
            return ErrorCode.NONE
        error = await self.note(shard, group, type(group.partitions)(deleting=names))
        if error is not ErrorCode.NONE:
            return error
        return first_error(await self.delete_states(group.group_id, wanted))

    async def delete_states(
        self, group_id: str, wanted: Mapping[bytes, frozenset[int]]
    ) -> list[Outcome]:
        """Delete the states of these partitions, by topic and in order."""
        items = [
            Deletion(topic_id, partition)
            for topic_id in sorted(wanted)
            for partition in sorted(wanted[topic_id])
        ]
        return await self.persister.delete(group_id, items)

    def find(self, group_id: str) -> tuple[GroupShard, ShareGroup] | ErrorCode:
        """Return a share group and its shard, or the error."""
        found = self._coordinator.find(group_id)
        if isinstance(found, ErrorCode):
            return found
        shard, group = found
        return (shard, group) if isinstance(group, ShareGroup) else ErrorCode.GROUP_ID_NOT_FOUND

    async def note(
        self, shard: GroupShard, group: ShareGroup, partitions: SharePartitions
    ) -> ErrorCode:
        """Write a group's share partitions; return when that is committed, or has failed."""
        record = partitions_record(group.group_id, partitions)
        error = self._coordinator.append_consumer(shard, group, [record])
        return await self._coordinator.settled(shard) if error is ErrorCode.NONE else error


def first_error(outcomes: Sequence[Outcome]) -> ErrorCode:
    """Return the first error of some outcomes, NONE if there is none."""
    errors = (each.error for each in outcomes)
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)
