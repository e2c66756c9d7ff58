"""The offsets of share groups: describe, alter and delete those of their share partitions.

The share coordinator has them. All here is work for `awaiting.drive`; it does not know the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.coordinators.groups.modern.requests import RefusedError
from tidelog.coordinators.groups.share.group import ShareGroup
from tidelog.coordinators.groups.share.membership import share_group
from tidelog.coordinators.groups.share.partitions import TopicPartitions
from tidelog.coordinators.groups.share.records import partitions_record
from tidelog.coordinators.share.values import UNINITIALIZED, Initialization, Outcome, Reading
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinators.groups.coordinator import GroupCoordinator
    from tidelog.coordinators.groups.shard import GroupShard
    from tidelog.coordinators.groups.share.end_offsets import EndOffsets
    from tidelog.coordinators.groups.share.state_changes import StateChanges
    from tidelog.coordinators.share.values import SummaryOutcome

__all__ = ["DescribedOffset", "DescribedTopic", "ShareOffsets"]

ZERO_ID = bytes(16)
UNKNOWN = Outcome(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
_NO_OFFSETS = Outcome(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
)


class DescribedOffset(NamedTuple):
    """The start offset of a share partition; without a state it is -1, and no error."""

    partition: int
    start_offset: int = UNINITIALIZED
    leader_epoch: int = 0
    lag: int = -1
    error: ErrorCode = ErrorCode.NONE


class DescribedTopic(NamedTuple):
    """The share partitions of a topic; without an id it does not exist."""

    name: str
    topic_id: bytes
    partitions: list[DescribedOffset]


class ShareOffsets:
    """Offsets of the share groups of a `GroupCoordinator`."""

    def __init__(
        self, coordinator: GroupCoordinator, states: StateChanges, end_offsets: EndOffsets
    ) -> None:
        self._coordinator = coordinator
        self._states = states
        self._end_offsets = end_offsets

    # ---- describe ----------------------------------------------------------------------------

    async def describe(
        self, group_id: str, wanted: Mapping[str, Sequence[int]]
    ) -> list[DescribedTopic]:
        """Describe share partitions."""
        find = self._coordinator.topics.find
        known = {name: found[0] for name in wanted if (found := find(name)) is not None}
        described = await self._described(group_id, wanted, known)
        return described + [
            DescribedTopic(name, ZERO_ID, [DescribedOffset(each) for each in wanted[name]])
            for name in wanted
            if name not in known
        ]

    def initialized(self, group_id: str) -> dict[str, list[int]]:
        """Return the initialized partitions of a group, none if it is unknown; RefusedError if it
        is not served here."""
        if not group_id:
            return {}
        group = self._shard_of(group_id).groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return {}
        find = self._coordinator.topics.find
        return {
            each.name: sorted(each.partitions)
            for topic_id, each in group.partitions.initialized.items()
            if (find(each.name) or (None,))[0] == topic_id
        }

    async def _described(
        self, group_id: str, wanted: Mapping[str, Sequence[int]], known: Mapping[str, bytes]
    ) -> list[DescribedTopic]:
        places = [(name, each) for name in known for each in wanted[name]]
        if not places:
            return []
        readings = [Reading(known[name], partition) for name, partition in places]
        found = await self._states.persister.read_summary(group_id, readings)
        summaries = dict(zip(places, found, strict=True))
        ends = await self._end_offsets.of(
            [TopicPartition(*place) for place in places if _has_lag(summaries[place])]
        )
        return [
            DescribedTopic(
                name,
                known[name],
                [
                    _described(each, summaries[name, each], ends.get(TopicPartition(name, each)))
                    for each in wanted[name]
                ],
            )
            for name in known
        ]

    # ---- alter -------------------------------------------------------------------------------

    async def alter(
        self, group_id: str, topics: Mapping[str, Mapping[int, int]]
    ) -> list[tuple[str, bytes, dict[int, Outcome]]]:
        """Begin share partitions at these offsets; return each topic's name, id and results.
        RefusedError unless the group is an empty share
        group, or is made by this."""
        shard = self._shard_of(group_id)
        group = share_group(shard, group_id, 0)
        _must_be_empty(group)
        results: list[tuple[str, bytes, dict[int, Outcome]]] = []
        changes: dict[bytes, TopicPartitions] = {}
        items = []
        for name, offsets in topics.items():
            topic_id, count = self._coordinator.topics.find(name) or (ZERO_ID, 0)
            known = {each for each in offsets if 0 <= each < count}
            outcomes = {each: Outcome() if each in known else UNKNOWN for each in offsets}
            results.append((name, topic_id, outcomes))
            if known:
                changes[topic_id] = TopicPartitions(name, frozenset(known))
                items += [
                    Initialization(topic_id, each, group.epoch, offsets[each])
                    for each in sorted(known)
                ]
        if not items:
            return results
        await self._note(shard, group, changes)
        found = await self._states.persister.initialize(group_id, items)
        by_topic = {topic_id: outcomes for _, topic_id, outcomes in results}
        for item, outcome in zip(items, found, strict=True):
            by_topic[item.topic_id][item.partition] = outcome
        if all(each.error is ErrorCode.NONE for each in found):
            await self._states.initialized(group_id, changes, ErrorCode.NONE)
        return results

    async def _note(
        self, shard: GroupShard, group: ShareGroup, changes: Mapping[bytes, TopicPartitions]
    ) -> None:
        record = partitions_record(group.group_id, group.partitions.begun(changes))
        error = self._coordinator.append_consumer(shard, group, [record])
        if error is ErrorCode.NONE:
            error = await self._coordinator.settled(shard)
        if error is not ErrorCode.NONE:
            raise RefusedError(error)

    # ---- delete ------------------------------------------------------------------------------

    async def delete(self, group_id: str, names: Sequence[str]) -> list[tuple[str, bytes, Outcome]]:
        """Delete the share partitions of topics; return each topic's name, id and result.
        RefusedError unless the group is an empty share group."""
        shard = self._shard_of(group_id)
        group = share_group(shard, group_id, -1)
        _must_be_empty(group)
        find = self._coordinator.topics.find
        wanted: dict[bytes, frozenset[int]] = {}
        deleting: dict[bytes, str] = {}
        refused = []
        for name in names:
            topic_id, count = find(name) or (ZERO_ID, 0)
            if topic_id in group.partitions.initialized:
                wanted[topic_id] = group.partitions.initialized[topic_id].partitions
            elif topic_id in group.partitions.deleting:
                wanted[topic_id] = frozenset(range(count))
            else:
                refused.append((name, ZERO_ID, _NO_OFFSETS if count else UNKNOWN))
                continue
            deleting[topic_id] = name
        if not wanted:
            return refused
        error = await self._states.note(shard, group, group.partitions.deleting_now(deleting))
        if error is not ErrorCode.NONE:
            raise RefusedError(error)
        results = await self._deleted(group_id, wanted, deleting)
        gone = [topic_id for _, topic_id, outcome in results if outcome.error is ErrorCode.NONE]
        found = self._states.find(group_id)
        if gone and not isinstance(found, ErrorCode):
            shard, group = found
            error = await self._states.note(shard, group, group.partitions.deleted(gone))
            if error is not ErrorCode.NONE:
                raise RefusedError(error)
        return sorted(results, key=lambda each: each[2].error is not ErrorCode.NONE) + refused

    async def _deleted(
        self, group_id: str, wanted: Mapping[bytes, frozenset[int]], names: Mapping[bytes, str]
    ) -> list[tuple[str, bytes, Outcome]]:
        """Delete states; return the first error of each topic."""
        outcomes = iter(await self._states.delete_states(group_id, wanted))
        results = []
        for topic_id in sorted(wanted):
            found = [next(outcomes) for _ in wanted[topic_id]]
            failed = [each for each in found if each.error is not ErrorCode.NONE]
            results.append((names[topic_id], topic_id, failed[0] if failed else Outcome()))
        return results

    def _shard_of(self, group_id: str) -> GroupShard:
        if not group_id:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
        shard = self._coordinator.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            raise RefusedError(shard)
        return shard


def _must_be_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise RefusedError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def _has_lag(summary: SummaryOutcome) -> bool:
    """Return whether a lag is known, as in Kafka's `shouldComputeSharePartitionLag`."""
    known = (summary.start_offset, summary.delivery_complete_count)
    return summary.error is ErrorCode.NONE and UNINITIALIZED not in known


def _described(
    partition: int, summary: SummaryOutcome, end: int | ErrorCode | None
) -> DescribedOffset:
    """Describe a share partition; `end` is its end offset, None if that does not count."""
    if summary.error is not ErrorCode.NONE:
        return DescribedOffset(partition)
    if isinstance(end, ErrorCode):
        return DescribedOffset(partition, 0, error=end)
    lag = -1
    if end is not None:
        lag = end - summary.start_offset - summary.delivery_complete_count
    return DescribedOffset(partition, summary.start_offset, summary.leader_epoch, lag)
