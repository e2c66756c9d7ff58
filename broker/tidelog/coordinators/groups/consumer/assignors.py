"""Kafka's two server-side assignors of KIP-848, `uniform` and `range`, as pure functions.

An assignor takes the members with the topics they subscribe to and the partitions that they have
in the target assignment so far, and the number of partitions of every topic. It returns the next
target assignment, an entry for each member. Every topic that a member subscribes to must be among
the topics. Racks play no role, as in Kafka since 4.0.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.coordinators.groups.modern.member import Partitions, Subscriber

    Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Partitions]]

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "range_assignor", "uniform_assignor"]

DEFAULT_ASSIGNOR = "uniform"
_ROUNDS_MAX = 16  # over all topics; as in Kafka's UniformHeterogeneousAssignmentBuilder


def range_assignor(
    members: Mapping[str, Subscriber], topics: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Give each subscriber of a topic a range of its partitions; the first get one more.

    Static members come first, in the order of their instance ids, so that they get the same ranges
    under other member ids. Topics with the same subscribers and count are divided alike.
    """
    order = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic, count in topics.items():
        subscribers = [member_id for member_id in order if topic in members[member_id].topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + quota + (index < extra)
            if start < end:
                assigned[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _range_order(member_id: str, member: Subscriber) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id


def uniform_assignor(
    members: Mapping[str, Subscriber], topics: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Give every member as many partitions as its subscriptions allow; move as few as possible."""
    if not members:
        return {}
    first = next(iter(members.values())).topics
    if all(member.topics == first for member in members.values()):
        return _uniform_alike(members, {topic: topics[topic] for topic in first})
    return _UniformMixed(members, topics).assign()


def _uniform_alike(
    members: Mapping[str, Subscriber], counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """Divide the partitions of the topics that all members subscribe to.

    The members that own most get the extra partitions, which moves fewest. Most members keep what
    they have: they get the same mapping object, so that every join into a large group costs less.
    """
    free = {topic: set(range(counts[topic])) for topic in sorted(counts)}
    assigned = {each: _claimed(free, member.owned) for each, member in members.items()}
    load = {each: sum(map(len, owned.values())) for each, owned in assigned.items()}
    quota, extra = divmod(sum(counts.values()), len(members))
    order = sorted(members, key=lambda member_id: (-load[member_id], member_id))
    sizes = [quota + 1] * extra + [quota] * (len(order) - extra)
    for member_id, size in zip(order, sizes, strict=True):
        if load[member_id] > size:
            assigned[member_id] = _shortened(free, assigned[member_id], size)
            load[member_id] = size
    rest = ((topic, number) for topic, numbers in free.items() for number in sorted(numbers))
    for member_id, size in zip(order, sizes, strict=True):
        if load[member_id] < size:
            more = islice(rest, size - load[member_id])
            assigned[member_id] = _by_topic(chain(_flat(assigned[member_id]), more))
    assert next(rest, None) is None, "every partition has its place"
    return assigned


def _claimed(free: Mapping[bytes, set[int]], owned: Partitions) -> Partitions:
    """Take what a member owns out of the free partitions, and return it; others, and those that do
    not exist, are left out."""
    claimed = {}
    for topic, numbers in owned.items():
        if topic in free and (found := numbers & free[topic]):
            free[topic] -= found
            claimed[topic] = found
    return owned if claimed == owned else claimed


def _shortened(free: Mapping[bytes, set[int]], owned: Partitions, size: int) -> Partitions:
    """Return the first `size` partitions, and set the others free."""
    kept = {}
    for topic in sorted(owned):
        numbers = owned[topic]
        if len(numbers) > size:
            listed = sorted(numbers)
            free[topic].update(listed[size:])
            numbers = frozenset(listed[:size])
        if numbers:
            kept[topic] = numbers
        size -= len(numbers)
    return kept


class _UniformMixed:
    """The uniform assignor for members with different subscriptions.

    Members keep what they own; each other partition goes to the least loaded subscriber of its
    topic. Then single partitions move from the most to the least loaded subscriber of a topic,
    while they differ by more than one. Partitions can only move within a topic, so the topics are
    gone through until nothing moves.
    """

    def __init__(self, members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> None:
        self._members = members
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id in sorted(members):
            for topic in members[member_id].topics:
                self._subscribers.setdefault(topic, []).append(member_id)
        # Topics that leave least choice come first.
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -topics[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )
        self._counts = topics
        self._load = dict.fromkeys(members, 0)
        self._held: dict[bytes, dict[str, list[int]]] = {topic: {} for topic in self._topics}

    def assign(self) -> dict[str, Partitions]:
        free = {topic: self._keep(topic) for topic in self._topics}
        for topic in self._topics:
            self._fill(topic, free[topic])
        for _ in range(_ROUNDS_MAX):
            if not sum(self._balance(topic) for topic in self._topics):
                break
        assigned: dict[str, dict[bytes, frozenset[int]]] = {each: {} for each in self._members}
        for topic, holders in self._held.items():
            for member_id, partitions in holders.items():
                if partitions:
                    assigned[member_id][topic] = frozenset(partitions)
        return dict(assigned)

    def _keep(self, topic: bytes) -> list[int]:
        """Leave a topic's partitions with their owners; return the free ones."""
        free = set(range(self._counts[topic]))
        for member_id in self._subscribers[topic]:
            kept = sorted(free & self._members[member_id].owned.get(topic, frozenset()))
            free.difference_update(kept)
            self._held[topic][member_id] = kept
            self._load[member_id] += len(kept)
        return sorted(free)

    def _fill(self, topic: bytes, free: Sequence[int]) -> None:
        takers = [(self._load[each], each) for each in self._subscribers[topic]]
        heapify(takers)
        for partition in free:
            member_id = takers[0][1]
            self._held[topic][member_id].append(partition)
            self._load[member_id] += 1
            heapreplace(takers, (self._load[member_id], member_id))

    def _balance(self, topic: bytes) -> int:
        """Even out the subscribers of one topic; return the number of moves.

        A taker never becomes a giver: it is the least loaded, so it gets one above the least.
        """
        load, held = self._load, self._held[topic]
        takers = [(load[each], each) for each in self._subscribers[topic]]
        givers = [(-load[each], each) for each in self._subscribers[topic] if held[each]]
        heapify(takers)
        heapify(givers)
        moves = 0
        while givers:
            giver, taker = givers[0][1], takers[0][1]
            if takers[0][0] != load[taker]:  # it has given meanwhile
                heapreplace(takers, (load[taker], taker))
                continue
            if load[giver] - load[taker] <= 1:
                break
            held[taker].append(held[giver].pop())
            load[giver] -= 1
            load[taker] += 1
            moves += 1
            heapreplace(takers, (load[taker], taker))
            if held[giver]:
                heapreplace(givers, (-load[giver], giver))
            else:
                heappop(givers)
        return moves


def _flat(partitions: Partitions) -> Iterable[tuple[bytes, int]]:
    return ((topic, n) for topic, each in partitions.items() for n in each)


def _by_topic(partitions: Iterable[tuple[bytes, int]]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(each) for topic, each in found.items()}


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"uniform": uniform_assignor, "range": range_assignor}
)
"""Kafka's default `group.consumer.assignors`, by name."""
