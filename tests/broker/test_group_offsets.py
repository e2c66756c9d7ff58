"""Committed offsets: the store, and what expires when."""

from __future__ import annotations

import pytest

from tidelog.coordinators.groups.classic.group import Group, GroupLimits, GroupState
from tidelog.coordinators.groups.classic.member import Member
from tidelog.coordinators.groups.now import Now
from tidelog.coordinators.groups.offsets import (
    ZERO_UUID,
    OffsetAndMetadata,
    OffsetChange,
    OffsetStore,
    expired_offsets,
)

HOUR_MS = 3_600_000
ID, OTHER_ID = b"1" * 16, b"2" * 16


def store_of(*offsets: tuple[str, int, OffsetAndMetadata], group_id: str = "g") -> OffsetStore:
    store = OffsetStore()
    for topic, partition, offset in offsets:
        store.apply(OffsetChange(group_id, topic, partition, offset))
    return store


def test_store_keeps_the_last_and_forgets_without_a_trace() -> None:
    store = store_of(("t", 0, OffsetAndMetadata(1)), ("t", 0, OffsetAndMetadata(2)))
    store.apply(OffsetChange("g", "u", 3, OffsetAndMetadata(7)))
    assert store.of_group("g") == {"t": {0: OffsetAndMetadata(2)}, "u": {3: OffsetAndMetadata(7)}}
    for change in [*store.forget_group("g"), OffsetChange("g", "x", 0, None)]:
        assert change.offset is None
        store.apply(change)
    assert store.of_group("g") == {}
    assert store.forget_group("g") == []


def test_deleted_topics_take_their_own_offsets_and_those_of_unknown_id() -> None:
    store = store_of(
        ("t", 0, OffsetAndMetadata(1, topic_id=ID)),
        ("t", 1, OffsetAndMetadata(1, topic_id=OTHER_ID)),
        ("t", 2, OffsetAndMetadata(1)),
        ("u", 0, OffsetAndMetadata(1, topic_id=ID)),
    )
    assert [change.partition for change in store.forget_topics({"t": [ID, ZERO_UUID]})] == [0, 2]


@pytest.mark.parametrize(
    ("stored", "asked", "matches"),
    [(ID, ID, True), (ID, OTHER_ID, False), (ZERO_UUID, ID, True), (ID, ZERO_UUID, True)],
)
def test_offsets_belong_to_one_topic_id(stored: bytes, asked: bytes, matches: bool) -> None:
    assert OffsetAndMetadata(1, topic_id=stored).is_of(asked) is matches


def group_in(state: GroupState, protocol_type: str | None, *, since_ms: int = 0) -> Group:
    group = Group("g", Now(0, since_ms), GroupLimits())
    group.state, group.protocol_type = state, protocol_type
    if protocol_type == "consumer":
        group.topics = frozenset({"read"} if state is GroupState.STABLE else ())
    return group


@pytest.mark.parametrize(
    ("group", "expired"),
    [
        (group_in(GroupState.EMPTY, None), {"old"}),  # simple consumers: by each commit
        (group_in(GroupState.EMPTY, "consumer"), {"old", "new", "read"}),  # by the last member
        (group_in(GroupState.EMPTY, "consumer", since_ms=9 * HOUR_MS), set()),
        (group_in(GroupState.EMPTY, "consumer", since_ms=-1), {"old"}),  # an old record
        (group_in(GroupState.STABLE, "consumer"), {"old"}),  # what it no longer reads
        (group_in(GroupState.PREPARING_REBALANCE, "consumer"), set()),
        (group_in(GroupState.STABLE, "connect"), set()),
    ],
)
def test_retention_counts_from_where_kafka_counts(group: Group, expired: set[str]) -> None:
    store = store_of(
        ("old", 0, OffsetAndMetadata(1, commit_timestamp=0)),
        ("new", 0, OffsetAndMetadata(1, commit_timestamp=9 * HOUR_MS)),
        ("read", 0, OffsetAndMetadata(1, commit_timestamp=HOUR_MS * 9)),
    )
    tombstones, is_all = expired_offsets(group, store, 10 * HOUR_MS, 8 * HOUR_MS)
    assert {change.topic for change in tombstones} == expired
    assert is_all is (len(expired) == 3)


def test_an_explicit_expiry_wins_over_retention() -> None:
    store = store_of(
        ("a", 0, OffsetAndMetadata(1, commit_timestamp=0, expire_timestamp=11 * HOUR_MS)),
        ("b", 0, OffsetAndMetadata(1, commit_timestamp=9 * HOUR_MS, expire_timestamp=HOUR_MS)),
    )
    group = group_in(GroupState.EMPTY, None)
    tombstones, _ = expired_offsets(group, store, 10 * HOUR_MS, HOUR_MS)
    assert [change.topic for change in tombstones] == ["b"]
    assert expired_offsets(group, OffsetStore(), 0, HOUR_MS).is_all


def test_topics_a_stable_group_reads_never_expire() -> None:
    group = group_in(GroupState.STABLE, "consumer")
    group.members["m"] = Member(
        "m",
        None,
        client_id="",
        client_host="",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(),
    )
    store = store_of(("read", 0, OffsetAndMetadata(1, commit_timestamp=0)))
    assert expired_offsets(group, store, 100 * HOUR_MS, HOUR_MS) == ([], False)
