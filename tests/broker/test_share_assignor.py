"""The assignor of share groups, beside what that of Apache Kafka 4.3.1 decided.

`vectors/kafka-4.3.1-simple-assignor.jsonl` has random groups that change, and the assignment by
Kafka's own class. It goes by the order of hash maps, so ours must be balanced as well and move no
more.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.modern.member import Subscriber
from tidelog.coordinators.groups.share.assignor import simple_assignor
from wire_values import SMALL_AND_SAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.member import Partitions

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-simple-assignor.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text().splitlines()]


def partitions(given: Mapping[str, list[int]]) -> dict[bytes, frozenset[int]]:
    return {topic.encode(): frozenset(each) for topic, each in given.items()}


def holders(assigned: Mapping[str, Partitions]) -> Counter[tuple[bytes, int]]:
    """How many members each partition has."""
    return Counter(
        (topic, partition)
        for topics in assigned.values()
        for topic, each in topics.items()
        for partition in each
    )


def loads(assigned: Mapping[str, Partitions], topic: bytes | None = None) -> list[int]:
    """How many partitions each member has, of one topic or of all."""
    return sorted(
        sum(len(each) for name, each in topics.items() if topic in {None, name})
        for topics in assigned.values()
    )


def kept(members: Mapping[str, Subscriber], assigned: Mapping[str, Partitions]) -> int:
    return sum(
        len(each & assigned[name].get(topic, frozenset()))
        for name, member in members.items()
        for topic, each in member.owned.items()
    )


def of_subscribed(members: Mapping[str, Subscriber], given: Any) -> dict[str, Partitions]:
    """What Kafka assigned, without topics that no member subscribes to: it leaves those."""
    return {
        name: {topic: each for topic, each in partitions(topics).items() if topic in member.topics}
        for name, member in members.items()
        for topics in [given[name]]
    }


@pytest.mark.parametrize("number", range(len(CASES)))
def test_assignments_are_as_good_as_kafkas(number: int) -> None:
    vector = CASES[number]
    members = {
        name: Subscriber(
            frozenset(topic.encode() for topic in each["topics"]), partitions(each["owned"])
        )
        for name, each in vector["members"].items()
    }
    assignable = partitions(vector["topics"])
    assigned = simple_assignor(members, assignable)
    kafkas = of_subscribed(members, vector["assigned"])
    assert assigned.keys() == members.keys()
    assert holders(assigned).keys() == holders(kafkas).keys()
    if holders(assigned).total() > holders(kafkas).total():
        return  # Kafka leaves a partition with a member less when those left have it already
    assert sorted(holders(assigned).values()) == sorted(holders(kafkas).values())
    if len({member.topics for member in members.values()}) == 1:
        assert loads(assigned) == loads(kafkas)
    else:  # each topic is shared out on its own
        for topic in assignable:
            assert loads(assigned, topic) == loads(kafkas, topic)
    assert kept(members, assigned) >= kept(members, kafkas)


TOPICS = [b"a", b"b", b"c"]
GROUPS = st.dictionaries(
    st.text("mnopq", min_size=1, max_size=3),
    st.frozensets(st.sampled_from(TOPICS), max_size=3),
    max_size=7,
)
ASSIGNABLE = st.fixed_dictionaries(
    {topic: st.frozensets(st.integers(0, 6), max_size=7) for topic in TOPICS}
)


@SMALL_AND_SAME
@given(GROUPS, GROUPS, ASSIGNABLE, ASSIGNABLE)
def test_every_assignable_partition_has_subscribers_and_each_member_keeps_its_own(
    before: dict[str, frozenset[bytes]],
    after: dict[str, frozenset[bytes]],
    was: dict[bytes, frozenset[int]],
    now: dict[bytes, frozenset[int]],
) -> None:
    old = simple_assignor({name: Subscriber(topics, {}) for name, topics in before.items()}, was)
    members = {name: Subscriber(topics, old.get(name, {})) for name, topics in after.items()}
    assigned = simple_assignor(members, now)
    assert assigned.keys() == members.keys()
    subscribed = {topic for member in members.values() for topic in member.topics}
    assert holders(assigned).keys() == {(topic, n) for topic in subscribed for n in now[topic]}
    assert all(topic in members[name].topics for name, each in assigned.items() for topic in each)
    settled = {name: Subscriber(topics, assigned[name]) for name, topics in after.items()}
    again = simple_assignor(settled, now)
    assert kept(settled, again) == sum(loads(assigned))


def test_members_of_one_topic_share_partitions_evenly() -> None:
    three = {f"m{n}": Subscriber(frozenset({b"t"}), {}) for n in range(3)}
    assert loads(simple_assignor(three, {b"t": frozenset(range(6))})) == [2, 2, 2]
    assigned = simple_assignor(three, {b"t": frozenset({0})})
    assert loads(assigned) == [1, 1, 1]
    assert simple_assignor(three, {}) == {"m0": {}, "m1": {}, "m2": {}}
    assert simple_assignor({}, {}) == {}
