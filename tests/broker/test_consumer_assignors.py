"""The assignors of KIP-848, beside what those of Apache Kafka 4.3.1 decided.

`vectors/kafka-4.3.1-assignors.jsonl` has random groups that change, and the assignment by Kafka's
own classes. `range` is the same to the partition. `uniform` is free in Kafka too (it goes by the
order of a hash map), so ours must be balanced as well and move no more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinators.groups.consumer.assignors import (
    ASSIGNORS,
    range_assignor,
    uniform_assignor,
)
from tidelog.coordinators.groups.modern.member import Subscriber
from wire_values import SMALL_AND_SAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.coordinators.groups.modern.member import Partitions

LINES = (Path(__file__).parent / "vectors" / "kafka-4.3.1-assignors.jsonl").read_text().splitlines()
VECTORS = [json.loads(line) for line in LINES]


def partitions(given: Mapping[str, list[int]]) -> Partitions:
    return {topic.encode(): frozenset(each) for topic, each in given.items()}


def case(vector: Any) -> tuple[dict[str, Subscriber], dict[bytes, int], dict[str, Partitions]]:
    """Members, topics, and what Kafka assigned."""
    members = {
        name: Subscriber(
            frozenset(topic.encode() for topic in each["topics"]),
            partitions(each["owned"]),
            each["instance"],
        )
        for name, each in vector["members"].items()
    }
    topics = {topic.encode(): count for topic, count in vector["topics"].items()}
    return members, topics, {name: partitions(each) for name, each in vector["assigned"].items()}


def owners(assigned: Mapping[str, Partitions]) -> dict[tuple[bytes, int], str]:
    """The owner of each partition; no partition has two."""
    found: dict[tuple[bytes, int], str] = {}
    for name, topics in assigned.items():
        for topic, each in topics.items():
            assert each
            for partition in each:
                assert found.setdefault((topic, partition), name) == name
    return found


def loads(assigned: Mapping[str, Partitions]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in assigned.values())


def moves(members: Mapping[str, Subscriber], assigned: Mapping[str, Partitions]) -> int:
    """Partitions taken from a member that subscribes to them."""
    return sum(
        len(each - assigned[name].get(topic, frozenset()))
        for name, member in members.items()
        for topic, each in member.owned.items()
        if topic in member.topics
    )


def is_alike(members: Mapping[str, Subscriber]) -> bool:
    return len({member.topics for member in members.values()}) == 1


def check_whole(
    members: Mapping[str, Subscriber],
    topics: Mapping[bytes, int],
    assigned: Mapping[str, Partitions],
) -> None:
    """Each partition that any member subscribes to has one owner, which subscribes to it."""
    assert assigned.keys() == members.keys()
    found = owners(assigned)
    subscribed = {topic for member in members.values() for topic in member.topics}
    assert found.keys() == {(topic, n) for topic in subscribed for n in range(topics[topic])}
    assert all(topic in members[name].topics for (topic, _), name in found.items())


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_assignments_are_as_good_as_kafkas(number: int) -> None:
    vector = VECTORS[number]
    members, topics, kafkas = case(vector)
    assigned = ASSIGNORS[vector["assignor"]](members, topics)
    check_whole(members, topics, assigned)
    if vector["assignor"] == "range":
        assert assigned == kafkas
    elif is_alike(members):
        assert loads(assigned) == loads(kafkas)
        assert moves(members, assigned) <= moves(members, kafkas)
    else:
        assert sum(n * n for n in loads(assigned)) <= sum(n * n for n in loads(kafkas))


TOPICS = [b"a", b"b", b"c"]
SUBSCRIPTIONS = st.frozensets(st.sampled_from(TOPICS), max_size=3)
GROUPS = st.dictionaries(st.text("mnopq", min_size=1, max_size=3), SUBSCRIPTIONS, max_size=7)
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_partition_has_one_subscribed_owner_and_a_second_run_moves_nothing(name: str) -> None:
    assignor = ASSIGNORS[name]

    @SMALL_AND_SAME
    @given(GROUPS, GROUPS, COUNTS)
    def compare(
        before: dict[str, frozenset[bytes]],
        after: dict[str, frozenset[bytes]],
        counts: dict[bytes, int],
    ) -> None:
        old = assignor({m: Subscriber(topics, {}) for m, topics in before.items()}, counts)
        members = {m: Subscriber(topics, old.get(m, {})) for m, topics in after.items()}
        assigned = assignor(members, counts)
        check_whole(members, counts, assigned)
        settled = {m: Subscriber(topics, assigned[m]) for m, topics in after.items()}
        assert assignor(settled, counts) == assigned

    compare()


def test_uniform_evens_out_every_pair_that_shares_a_topic() -> None:
    """No single move within a topic makes two of its subscribers more even."""

    @SMALL_AND_SAME
    @given(GROUPS, GROUPS, COUNTS)
    def compare(
        before: dict[str, frozenset[bytes]],
        after: dict[str, frozenset[bytes]],
        counts: dict[bytes, int],
    ) -> None:
        old = uniform_assignor({m: Subscriber(topics, {}) for m, topics in before.items()}, counts)
        members = {m: Subscriber(topics, old.get(m, {})) for m, topics in after.items()}
        assigned = uniform_assignor(members, counts)
        size = {name: sum(map(len, each.values())) for name, each in assigned.items()}
        for giver, topics in assigned.items():
            for topic in topics:
                for taker, member in members.items():
                    assert topic not in member.topics or size[giver] - size[taker] <= 1

    compare()


def test_a_new_member_takes_its_share_and_nothing_else_moves() -> None:
    topics = {b"t": 6}
    old = uniform_assignor({name: Subscriber(frozenset(topics), {}) for name in "ab"}, topics)
    members = {name: Subscriber(frozenset(topics), old.get(name, {})) for name in "abc"}
    assigned = uniform_assignor(members, topics)
    assert loads(assigned) == [2, 2, 2]
    assert moves(members, assigned) == 2


def test_static_members_keep_their_ranges_under_other_member_ids() -> None:
    topics = {b"t": 3, b"u": 3}
    both = frozenset(topics)
    first = {"m1": Subscriber(both, {}, "i1"), "m2": Subscriber(both, {}, "i2")}
    again = {"m9": Subscriber(both, {}, "i1"), "m3": Subscriber(both, {}, "i2")}
    before, after = range_assignor(first, topics), range_assignor(again, topics)
    assert before["m1"] == after["m9"] == {b"t": {0, 1}, b"u": {0, 1}}
    assert before["m2"] == after["m3"] == {b"t": {2}, b"u": {2}}


def test_members_that_keep_their_partitions_keep_their_mapping() -> None:
    """Nothing has to compare or build it anew when one of many members comes."""
    topic = b"t" * 16
    owned = {f"m{n}": {topic: frozenset(range(n * 5, n * 5 + 5))} for n in range(20)}
    members = {name: Subscriber(frozenset({topic}), each) for name, each in owned.items()}
    members["new"] = Subscriber(frozenset({topic}), {})
    assigned = uniform_assignor(members, {topic: 100})
    same = [name for name, each in owned.items() if assigned[name] is each]
    assert len(assigned["new"][topic]) == 4
    assert len(same) == 16
