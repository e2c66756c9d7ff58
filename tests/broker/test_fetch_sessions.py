"""Incremental fetch sessions (KIP-227): epochs, contents, what an answer names, eviction."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.replication import fetch_sessions
from tidelog.replication.fetch_sessions import (
    FINAL_EPOCH,
    INVALID_SESSION_ID,
    FetchedPartition,
    FetchSession,
    FetchSessionCache,
    next_epoch,
)
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest
from tidelog_protocol.primitives import ZERO_UUID

Topic = FetchRequest.FetchTopic
Asked = FetchRequest.FetchTopic.FetchPartition
Forgotten = FetchRequest.ForgottenTopic

FOO_ID, BAR_ID = bytes([1] * 16), bytes([2] * 16)


class Answer(NamedTuple):
    high_watermark: int
    log_start_offset: int = 0


def asked(partition: int, offset: int = 0, max_bytes: int = 1000) -> Asked:
    return Asked(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)


def fetched(topic: str, partition: int) -> FetchedPartition:
    return FetchedPartition(topic, ZERO_UUID, asked(partition))


def cache(slots: int = 2, eviction_ms: int = 100) -> FetchSessionCache:
    counter = itertools.count(0)
    return FetchSessionCache(slots, lambda: next(counter), eviction_ms=eviction_ms)


def partitions(count: int, topic: str = "foo") -> dict[Any, FetchedPartition]:
    return {(topic, index): fetched(topic, index) for index in range(count)}


def create(
    sessions: FetchSessionCache, count: int, now_ms: int, *, privileged: bool = False
) -> int:
    return sessions.create(
        partitions(count), privileged=privileged, uses_topic_ids=False, now_ms=now_ms
    )


def test_epochs_count_from_1_and_wrap_to_1() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2, 2**31 - 1)] == [1, 2, 2**31 - 1, 1]
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_a_new_session_expects_epoch_1_and_never_has_id_0() -> None:
    sessions = cache()
    session_id = create(sessions, 1, 0)
    assert session_id != INVALID_SESSION_ID
    session = sessions.resolve(session_id, 1, uses_topic_ids=False)
    assert isinstance(session, FetchSession)
    sessions.advance(session, 5)
    assert session.epoch == 2


def test_errors_of_incremental_requests_in_kafkas_order() -> None:
    sessions = cache()
    session_id = create(sessions, 1, 0)
    assert sessions.resolve(99, 1, uses_topic_ids=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # the epoch is judged before the kind of the session
    assert (
        sessions.resolve(session_id, 2, uses_topic_ids=True)
        is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    )
    assert (
        sessions.resolve(session_id, 1, uses_topic_ids=True)
        is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )
    assert sessions.remove(session_id)
    assert not sessions.remove(session_id)
    assert (
        sessions.resolve(session_id, 1, uses_topic_ids=False)
        is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_partitions_are_added_updated_and_forgotten() -> None:
    sessions = cache()
    session = sessions.get(create(sessions, 2, 0))
    assert session is not None
    session.add(
        [
            Topic(topic="foo", partitions=[asked(1, 70, 5)]),
            Topic(topic="bar", partitions=[asked(0, 9)]),
        ],
        {},
    )
    session.forget(
        [Forgotten(topic="foo", partitions=[0, 44]), Forgotten(topic="nope", partitions=[0])]
    )
    assert list(session.partitions) == [("foo", 1), ("bar", 0)]
    kept = session.partitions["foo", 1]
    assert (kept.fetch_offset, kept.max_bytes) == (70, 5)


def test_ids_are_resolved_when_their_topic_comes_and_names_once_found_stay() -> None:
    sessions = cache()
    requests = [FetchedPartition("foo", FOO_ID, asked(0)), FetchedPartition(None, BAR_ID, asked(0))]
    session = sessions.get(
        sessions.create(
            {request.key(): request for request in requests},
            privileged=False,
            uses_topic_ids=True,
            now_ms=0,
        )
    )
    assert session is not None
    assert session.unresolved
    session.resolve_names({FOO_ID: "foo"})
    assert [partition.topic for partition in session.partitions.values()] == ["foo", None]
    assert session.unresolved
    session.resolve_names({BAR_ID: "bar"})
    assert [partition.topic for partition in session.partitions.values()] == ["foo", "bar"]
    assert not session.unresolved
    session.forget([Forgotten(topic_id=BAR_ID, partitions=[0])])
    assert list(session.partitions) == [(FOO_ID, 0)]


def test_an_answer_names_only_partitions_with_news() -> None:
    session = FetchSession(
        1, privileged=False, uses_topic_ids=False, partitions=partitions(1), now_ms=0
    )
    partition = session.partitions["foo", 0]

    def names(error: int, answer: Answer, *, news: bool = False) -> bool:
        return session.must_answer(partition, error, answer, has_news=news)

    assert names(0, Answer(10, 0))  # never told before
    assert not names(0, Answer(10, 0))
    assert names(0, Answer(10, 0), news=True)
    assert names(0, Answer(11, 0))
    assert not names(0, Answer(11, 0))
    assert names(0, Answer(11, 3))
    assert not names(0, Answer(11, 3))
    assert names(ErrorCode.NOT_LEADER_OR_FOLLOWER, Answer(-1, -1))
    assert names(ErrorCode.NOT_LEADER_OR_FOLLOWER, Answer(-1, -1))  # errors are always told
    assert names(0, Answer(11, 3))  # and so is their end
    assert not names(0, Answer(11, 3))


def test_a_partition_that_gave_records_goes_to_the_end_of_its_session() -> None:
    session = FetchSession(
        1, privileged=False, uses_topic_ids=False, partitions=partitions(3), now_ms=0
    )
    session.move_to_end(session.partitions["foo", 0])
    assert [partition.partition for partition in session.partitions.values()] == [1, 2, 0]
    session.move_to_end(fetched("gone", 7))
    assert len(session.partitions) == 3


class TestEviction:
    """A may evict B if B is stale, or A a follower's and B not, or A larger and B not young."""

    def test_a_full_cache_of_young_sessions_refuses_new_ones(self) -> None:
        sessions = cache(2)
        first, second = create(sessions, 1, 0), create(sessions, 1, 0)
        assert create(sessions, 50, 50) == INVALID_SESSION_ID
        assert sessions.get(first)
        assert sessions.get(second)
        assert sessions.evictions == 0

    def test_a_stale_session_goes_first(self) -> None:
        sessions = cache(2)
        first, second = create(sessions, 9, 0), create(sessions, 1, 50)
        assert create(sessions, 1, 101) != INVALID_SESSION_ID
        assert sessions.get(first) is None
        assert sessions.get(second) is not None
        assert sessions.evictions == 1

    def test_all_sessions_together_have_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
        sessions = cache(9)
        follower = create(sessions, 6, 0, privileged=True)
        small, large = create(sessions, 1, 0), create(sessions, 3, 0)
        assert sessions.partitions_cached == 10
        again = create(sessions, 2, 0)
        assert sessions.get(large) is None, "the largest of a client"
        assert all(map(sessions.get, (follower, small, again)))
        assert create(sessions, 8, 0) == INVALID_SESSION_ID, "it is the largest itself"
        session = sessions.get(again)
        assert session is not None
        session.add([Topic(topic="more", partitions=[asked(index) for index in range(9)])], {})
        sessions.advance(session, 1)
        assert sessions.get(again) is None, "it has grown"
        assert sessions.partitions_cached == 7
        assert sessions.evictions == 3

    def test_use_keeps_a_session_fresh(self) -> None:
        sessions = cache(2)
        first, second = create(sessions, 1, 0), create(sessions, 1, 0)
        session = sessions.get(first)
        assert session is not None
        sessions.advance(session, 60)
        create(sessions, 1, 101)
        assert sessions.get(first) is not None
        assert sessions.get(second) is None

    def test_a_larger_session_takes_the_place_of_a_smaller_old_one(self) -> None:
        sessions = cache(2)
        small, large = create(sessions, 2, 0), create(sessions, 5, 0)
        for session_id in (small, large):
            session = sessions.get(session_id)
            assert session is not None
            sessions.advance(session, 101)  # older than eviction_ms now, and in use
        assert create(sessions, 1, 150) == INVALID_SESSION_ID
        assert create(sessions, 3, 150) != INVALID_SESSION_ID
        assert sessions.get(small) is None
        assert sessions.get(large) is not None

    def test_a_follower_takes_the_place_of_a_young_client_but_not_of_a_follower(self) -> None:
        sessions = cache(1)
        client = create(sessions, 9, 0)
        follower = create(sessions, 1, 1, privileged=True)
        assert follower != INVALID_SESSION_ID
        assert sessions.get(client) is None
        assert create(sessions, 50, 2, privileged=True) == INVALID_SESSION_ID
        assert create(sessions, 50, 2) == INVALID_SESSION_ID
        session = sessions.get(follower)
        assert session is not None
        sessions.advance(session, 150)
        assert create(sessions, 50, 151) == INVALID_SESSION_ID  # a client never evicts a follower
        assert create(sessions, 50, 151, privileged=True) != INVALID_SESSION_ID

    def test_no_slots_no_sessions(self) -> None:
        assert create(cache(0), 1, 0) == INVALID_SESSION_ID

    def test_partitions_cached_follow_the_sessions(self) -> None:
        sessions = cache(2)
        session = sessions.get(create(sessions, 3, 0))
        assert session is not None
        session.add([Topic(topic="bar", partitions=[asked(0), asked(1)])], {})
        sessions.advance(session, 1)
        assert sessions.partitions_cached == 5
        sessions.remove(session.session_id)
        assert (sessions.partitions_cached, len(sessions)) == (0, 0)


class Model(RuleBasedStateMachine):
    """A client and a broker: whatever the answers leave out, the client still knows everything."""

    TOPICS = ("foo", "bar")

    @initialize()
    def start(self) -> None:
        self.sessions = cache(1)
        self.truth = {(t, p): Answer(0, 0) for t in self.TOPICS for p in range(3)}
        self.errors: set[tuple[str, int]] = set()
        self.wanted: dict[tuple[str, int], int] = {}  # the client's fetch offsets
        self.sent: dict[tuple[str, int], int] = {}  # what the session was told
        self.known: dict[tuple[str, int], Answer | int] = {}
        self.session_id = INVALID_SESSION_ID

    @rule(key=st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), offset=st.integers(0, 5))
    def want(self, key: tuple[str, int], offset: int) -> None:
        self.wanted[key] = offset

    @rule(key=st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)))
    def lose_interest(self, key: tuple[str, int]) -> None:
        self.wanted.pop(key, None)

    @rule(key=st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), by=st.integers(1, 3))
    def append(self, key: tuple[str, int], by: int) -> None:
        self.truth[key] = Answer(
            self.truth[key].high_watermark + by, self.truth[key].log_start_offset
        )

    @rule(key=st.tuples(st.sampled_from(TOPICS), st.integers(0, 2)), fails=st.booleans())
    def fail_or_heal(self, key: tuple[str, int], fails: bool) -> None:
        (self.errors.add if fails else self.errors.discard)(key)

    def _answer(self, partition: FetchedPartition) -> tuple[int, Answer]:
        assert partition.topic is not None
        key = (partition.topic, partition.partition)
        return (6, Answer(-1, -1)) if key in self.errors else (0, self.truth[key])

    @rule()
    def fetch(self) -> None:
        if not self.wanted:
            return
        session = self.sessions.get(self.session_id)
        if session is None:
            self._full()
        else:
            self._incremental(session)

    def _full(self) -> None:
        parts = {
            (topic, index): FetchedPartition(topic, ZERO_UUID, asked(index, offset))
            for (topic, index), offset in self.wanted.items()
        }
        for key, partition in parts.items():
            error, answer = self._answer(partition)
            self.known[key] = error or answer
            partition.high_watermark = answer.high_watermark
            partition.local_log_start_offset = answer.log_start_offset
        self.session_id = self.sessions.create(
            parts, privileged=False, uses_topic_ids=False, now_ms=0
        )
        self.sent = dict(self.wanted)

    def _incremental(self, session: FetchSession) -> None:
        changed = {k: v for k, v in self.wanted.items() if self.sent.get(k) != v}
        gone = [k for k in self.sent if k not in self.wanted]
        session.add(
            [Topic(topic=t, partitions=[asked(p, offset)]) for (t, p), offset in changed.items()],
            {},
        )
        session.forget([Forgotten(topic=t, partitions=[p]) for t, p in gone])
        self.sent = dict(self.wanted)
        assert {key: part.fetch_offset for key, part in session.partitions.items()} == self.wanted
        self.sessions.advance(session, 0)
        for key, partition in list(session.partitions.items()):
            error, answer = self._answer(partition)
            records = not error and partition.fetch_offset < answer.high_watermark
            if session.must_answer(partition, error, answer, has_news=records):
                assert isinstance(key[0], str)
                self.known[key[0], key[1]] = error or answer
                if records:
                    session.move_to_end(partition)
        for key in self.wanted:
            assert self.known[key] == (6 if key in self.errors else self.truth[key])

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "sessions"):
            return
        session = self.sessions.get(self.session_id)
        assert self.sessions.partitions_cached == (session.cached_size if session else 0)


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=25, stateful_step_count=20, derandomize=True, deadline=None
)


@pytest.mark.parametrize("seed", range(20))
def test_the_eviction_order_equals_a_scan(seed: int) -> None:
    """The sorted lists of evictable sessions give what scanning all of them would."""
    import random

    rng = random.Random(seed)
    sessions = cache(4, eviction_ms=100)
    now = 0
    alive: list[int] = []
    for _ in range(200):
        now += rng.randrange(1, 30)
        alive = [session_id for session_id in alive if sessions.get(session_id)]
        if alive and rng.random() < 0.6:
            session = sessions.get(rng.choice(alive))
            assert session is not None
            session.partitions = partitions(rng.randrange(1, 6))
            sessions.advance(session, now)
            continue
        size, privileged = rng.randrange(1, 6), rng.random() < 0.3
        expected = _victim([s for i in alive if (s := sessions.get(i))], size, privileged, now)
        before = set(alive)
        new = create(sessions, size, now, privileged=privileged)
        if len(before) < 4:
            assert new
        elif expected is None:
            assert new == INVALID_SESSION_ID
        else:
            assert new
            assert {i for i in before if sessions.get(i) is None} == {expected}
        if new:
            alive.append(new)


def _victim(sessions: list[FetchSession], size: int, privileged: bool, now: int) -> int | None:
    """By the three rules, straight from the text."""
    stale = [s for s in sessions if now - s.last_used_ms > 100]
    if stale:
        return min(stale, key=lambda s: s.last_used_ms).session_id
    candidates = [
        s
        for s in sessions
        # "not recently created" counts from the last use, when the cache looked last
        if s.last_used_ms - s.created_ms > 100 or (privileged and not s.privileged)
    ]
    least = min(candidates, key=lambda s: (s.privileged, s.cached_size, s.session_id), default=None)
    if least is None or (privileged, size, 0) < (
        least.privileged,
        least.cached_size,
        least.session_id,
    ):
        return None
    return least.session_id
