"""What members subscribe to, counted; and that assignments wait for their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.group_broker import ASSIGNMENT_INTERVAL, GroupBroker
from broker.test_consumer_membership import A, beat, group_of, join, numbers, owned
from support.consumer_groups import Life, id_of
from support.consumer_groups import numbers as assigned
from tidelog.coordinators.groups.consumer import draft
from tidelog.coordinators.groups.consumer.views import ConsumerLimits
from tidelog.coordinators.groups.modern import topics
from tidelog.coordinators.groups.modern.member import Subscription
from tidelog.coordinators.groups.modern.states import MemberState, ModernGroupState
from tidelog.coordinators.groups.modern.subscriptions import Subscriptions, subscribed_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.coordinators.groups.modern.member import Subscriber

T, U = id_of("t"), id_of("u")
pytestmark = pytest.mark.usefixtures("epochs_from_1")
BY_NAME = Subscription(topic_names=frozenset("ab"))
BY_BOTH = Subscription(topic_names=frozenset("b"), topic_regex="c.*")
FOUND = {"c.*": frozenset({"c1", "b"})}


def test_topics_of_all_members() -> None:
    counted = Subscriptions()
    counted.add(BY_NAME)
    counted.add(BY_BOTH)
    assert (counted.patterns, counted.names(FOUND)) == (["c.*"], {"a", "b", "c1"})
    assert counted.names({}) == {"a", "b"}, "no topic is known to match"
    rest = counted.copy()
    rest.remove(BY_NAME)
    assert rest.names(FOUND) == {"b", "c1"}
    rest.remove(BY_BOTH)
    assert (rest.patterns, rest.names(FOUND)) == ([], set())
    assert counted.names(FOUND) == {"a", "b", "c1"}, "a copy changes on its own"


def test_topics_of_one_member() -> None:
    assert subscribed_names(BY_NAME, FOUND) == frozenset("ab")
    assert subscribed_names(BY_BOTH, FOUND) == {"b", "c1"}
    assert subscribed_names(Subscription(topic_regex=""), FOUND) == frozenset()


# ---- the interval of assignments (KIP-1263) ------------------------------------------------------


def test_members_that_join_within_the_interval_are_assigned_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    uniform = draft.ASSIGNORS["uniform"]

    def counting(members: dict[str, Subscriber], counted: dict[bytes, int]) -> object:
        counts.append(len(members))
        return uniform(members, counted)

    monkeypatch.setattr(draft, "ASSIGNORS", {"uniform": counting})
    life = Life(ConsumerLimits(assignment_interval_ms=1000), t=4)
    assert assigned(life.join("a", "t").assigned) == [0, 1, 2, 3], "the first one does not wait"
    for ticks_ms, name in enumerate("bcd", 1):
        life.ticks_ms = ticks_ms
        late = life.join(name, "t")
        assert (late.epoch, assigned(late.assigned)) == (1, [])
    assert life.group.state is ModernGroupState.ASSIGNING
    life.ticks_ms = 999
    assert life.beat("a", 1).assigned is None
    life.ticks_ms = 1000
    assert assigned(life.beat("a", 1).assigned) == [0]
    assert life.group.state is ModernGroupState.RECONCILING
    assert counts == [1, 4]


def test_an_interval_of_0_assigns_at_once() -> None:
    life = Life(ConsumerLimits(assignment_interval_ms=0), t=2)
    life.join("a", "t")
    assert life.join("b", "t").epoch == 2
    assert life.group.targets["b"] == {T: {1}}


def test_a_clock_that_was_set_back_does_not_hold_an_assignment_up() -> None:
    life = Life(ConsumerLimits(assignment_interval_ms=1000), t=2)
    life.join("a", "t")
    life.ticks_ms = -3_600_000
    assert life.join("b", "t").epoch == 2


def test_another_coordinator_goes_on_with_the_interval() -> None:
    life = Life(ConsumerLimits(assignment_interval_ms=1000), t=2)
    life.join("a", "t")
    life.ticks_ms = 500
    life.group = life.loaded()
    assert life.join("b", "t").epoch == 1
    life.ticks_ms = 1000
    assert life.join("b", "t").epoch == 2


def test_the_interval_changes_while_the_broker_runs() -> None:
    broker = GroupBroker(group_consumer_assignment_interval_ms="1000")
    join(broker, "m")
    assert join(broker, "n").member_epoch == 1
    set_dynamic(broker, "0")
    assert numbers(beat(broker, "m", 1)) == {A: [0, 1]}
    beat(broker, "m", 1, topic_partitions=owned(a=[0, 1]))
    assert numbers(beat(broker, "n", 1)) == {A: [2]}
    broker.group_configs = {"g": {"consumer.assignment.interval.ms": "15000"}}
    set_dynamic(broker, "0")
    assert group_of(broker).limits.assignment_interval_ms == 15_000, "its own, not the broker's"


def set_dynamic(broker: GroupBroker, interval_ms: str) -> None:
    broker.broker_configs = {"": {ASSIGNMENT_INTERVAL: interval_ms}}
    broker.apply()


# ---- a topic that a member no longer wants, before the next assignment ---------------------------


def reader_of_both() -> Life:
    """Member a has t and u; the next assignment is not due."""
    life = Life(ConsumerLimits(assignment_interval_ms=1000), t=2, u=1)
    life.join("a", "t", "u")
    return life


def test_a_topic_that_is_no_longer_wanted_is_taken_away_at_once() -> None:
    life = reader_of_both()
    answer = life.beat("a", 1, topic_names=("t",))
    assert (answer.epoch, answer.assigned) == (1, {T: {0, 1}})
    member = life.group.members["a"]
    assert (member.state, member.revoking) == (MemberState.UNREVOKED, {U: {0: 1}})
    assert life.beat("a", 1, {T: frozenset({0, 1})}).epoch == 1
    assert life.group.members["a"].revoking == {}
    life.ticks_ms = 1000
    assert life.beat("a", 1).epoch == 2


def test_a_topic_that_is_already_revoked_is_not_waited_for() -> None:
    life = reader_of_both()
    answer = life.beat("a", 1, {T: frozenset({0, 1})}, topic_names=("t",))
    assert answer.assigned == {T: {0, 1}}
    member = life.group.members["a"]
    assert (member.state, member.revoking) == (MemberState.STABLE, {})


def test_a_topic_that_is_no_longer_wanted_joins_those_to_be_revoked() -> None:
    life = reader_of_both()
    life.beat("a", 1, topic_names=("t",))
    assert life.beat("a", 1, topic_names=()).assigned == {}
    assert life.group.members["a"].revoking == {U: {0: 1}, T: {0: 1, 1: 1}}
    life.beat("a", 1, {})
    assert life.group.members["a"].revoking == {}


def test_another_subscription_to_the_same_changes_nothing() -> None:
    life = reader_of_both()
    before = len(life.log)
    assert life.beat("a", 1, topic_names=("u", "t")).assigned is None
    assert len(life.log) == before


def test_the_target_of_an_unwanted_topic_is_not_given() -> None:
    life = Life(ConsumerLimits(assignment_interval_ms=1000), t=4, u=1)
    life.join("b", "t")
    life.ticks_ms = 1000
    life.join("a", "t", "u")
    assert life.group.targets["a"] == {T: {3}, U: {0}}
    assert life.group.members["a"].state is MemberState.UNRELEASED
    life.beat("a", 2, {U: frozenset({0})}, topic_names=("u",))
    life.beat("b", 1)
    life.beat("b", 1, {T: frozenset({0, 1, 2})})
    life.beat("a", 2)
    assert life.group.members["a"].assigned == {U: {0: 2}}, "t-3 is free, but not wanted"


# ---- topics --------------------------------------------------------------------------------------


def test_topics_are_hashed_once_for_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[set[str]] = []
    hash_of_topics = topics.hash_of_topics

    def counting(image: ClusterImage, names: Iterable[str]) -> int:
        hashed.append(set(names))
        return hash_of_topics(image, names)

    monkeypatch.setattr(topics, "hash_of_topics", counting)
    broker = GroupBroker()
    for name in "mno":
        join(broker, name)
    join(broker, "p", "b")
    assert hashed == [{"a"}, {"a", "b"}]
    broker.apply()
    join(broker, "q")
    assert hashed == [{"a"}, {"a", "b"}, {"a", "b"}]
