"""Kafka's assignor of share groups, `simple` (KIP-932), as a pure function.

Several members may read a partition. Each partition gets the same number of members: as few as
give every member one partition. The members' numbers of partitions differ by at most one, and they
keep what they have as far as that allows. Where members subscribe to different topics, each topic
is shared out on its own.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.coordinators.groups.modern.member import Partitions, Subscriber

    Assignable = Mapping[bytes, frozenset[int]]
    """The partitions of each topic whose state is initialized."""
    Partition = tuple[bytes, int]

__all__ = ["NAME", "simple_assignor"]

NAME = "simple"


def simple_assignor(
    members: Mapping[str, Subscriber], assignable: Assignable
) -> dict[str, Partitions]:
    """Return the target assignment, an entry for each member."""
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for topics in _shared_out_together(members):
        partitions = [
            (topic, partition)
            for topic in sorted(topics)
            for partition in sorted(assignable.get(topic, ()))
        ]
        subscribers = [each for each in sorted(members) if topics <= members[each].topics]
        for member_id, taken in _share_out(subscribers, partitions, members).items():
            for topic, partition in taken:
                assigned[member_id].setdefault(topic, set()).add(partition)
    return {
        member_id: {topic: frozenset(each) for topic, each in topics.items()}
        for member_id, topics in assigned.items()
    }


def _shared_out_together(members: Mapping[str, Subscriber]) -> list[frozenset[bytes]]:
    """Return all topics as one set if the members subscribe alike, else each topic alone."""
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        return list(subscriptions)
    return [frozenset((topic,)) for topic in sorted(frozenset().union(*subscriptions))]


def _share_out(
    member_ids: Sequence[str], partitions: Sequence[Partition], members: Mapping[str, Subscriber]
) -> dict[str, set[Partition]]:
    """Give each partition the same number of these members."""
    if not member_ids or not partitions:
        return {}
    sharing = -(-len(member_ids) // len(partitions))
    wanted = set(partitions)
    owned = {
        member_id: sorted(
            wanted.intersection(
                (topic, n) for topic, each in members[member_id].owned.items() for n in each
            )
        )
        for member_id in member_ids
    }
    quota, extra = divmod(sharing * len(partitions), len(member_ids))
    holders = dict.fromkeys(partitions, 0)
    taken: dict[str, set[Partition]] = {}
    room: dict[str, int] = {}
    # Those that have most get the larger numbers, so that fewest partitions move.
    order = sorted(member_ids, key=lambda member_id: (-len(owned[member_id]), member_id))
    for index, member_id in enumerate(order):
        size = quota + (index < extra)
        kept = [each for each in owned[member_id] if holders[each] < sharing][:size]
        for partition in kept:
            holders[partition] += 1
        taken[member_id] = set(kept)
        room[member_id] = size - len(kept)
    _fill(taken, room, {each: sharing - count for each, count in holders.items()})
    return taken


def _fill(
    taken: dict[str, set[Partition]], room: Mapping[str, int], missing: Mapping[Partition, int]
) -> None:
    """Give each partition the members that it misses, those with most room first.

    A partition stays without one if all members with room have it already, as in Kafka.
    """
    waiting = [(-size, member_id) for member_id, size in room.items() if size]
    heapify(waiting)
    for partition, wanted in missing.items():
        passed: list[tuple[int, str]] = []
        count = wanted
        while count and waiting:
            size, member_id = heappop(waiting)
            if partition not in taken[member_id]:
                taken[member_id].add(partition)
                size += 1
                count -= 1
            if size:
                passed.append((size, member_id))
        for each in passed:
            heappush(waiting, each)
