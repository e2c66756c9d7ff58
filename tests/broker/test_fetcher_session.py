"""A follower's side of fetch sessions, against the leader's own session code."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.replication.fetch_sessions import FetchSessionCache
from tidelog.replication.fetcher_session import Asked, FetcherSession

TOPICS = {bytes([n]) * 16: f"t{n}" for n in range(1, 4)}
ONE, TWO, THREE = TOPICS


def asked(offset: int, epoch: int = 0) -> Asked:
    return Asked(offset, 0, epoch, epoch, 1000)


def named(topics: list[Any]) -> dict[tuple[bytes, int], int]:
    return {
        (topic.topic_id, partition.partition): partition.fetch_offset
        for topic in topics
        for partition in topic.partitions
    }


def test_after_the_first_only_what_changed_is_named() -> None:
    session = FetcherSession()
    session.update((ONE, 0), asked(5))
    session.update((ONE, 1), asked(6))
    assert (session.session_id, session.epoch, session.is_incremental) == (0, 0, False)
    topics, forgotten = session.next_request()
    assert (named(topics), forgotten) == ({(ONE, 0): 5, (ONE, 1): 6}, [])
    session.answered(77)
    assert (session.session_id, session.epoch, session.is_incremental) == (77, 1, True)
    session.update((ONE, 0), asked(5))
    session.update((ONE, 1), asked(8))
    session.update((TWO, 0), asked(0))
    topics, forgotten = session.next_request()
    assert (named(topics), forgotten) == ({(ONE, 1): 8, (TWO, 0): 0}, [])
    session.answered(77)
    session.update((ONE, 0), None)
    session.update((ONE, 7), None)
    topics, forgotten = session.next_request()
    assert topics == []
    assert [(topic.topic_id, topic.partitions) for topic in forgotten] == [(ONE, [0])]
    assert session.epoch == 2


def test_a_leader_without_room_is_asked_for_all_each_time() -> None:
    session = FetcherSession()
    session.update((ONE, 0), asked(5))
    for _ in range(2):
        topics, _ = session.next_request()
        assert named(topics) == {(ONE, 0): 5}
        session.answered(0)
        assert session.epoch == 0


def test_a_new_session_closes_the_old_one() -> None:
    session = FetcherSession()
    session.update((ONE, 0), asked(5))
    session.next_request()
    session.answered(77)
    session.update((TWO, 0), asked(1))
    session.restart()
    assert (session.session_id, session.epoch) == (77, 0)
    topics, forgotten = session.next_request()
    assert (named(topics), forgotten) == ({(ONE, 0): 5, (TWO, 0): 1}, [])


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(list(TOPICS)),
            st.integers(0, 2),
            st.none() | st.integers(0, 3),
        ),
        st.sampled_from(["fetch", "restart"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_leader_goes_by_what_is_asked(steps: list[Any]) -> None:
    """Whatever changes between requests, the leader's session has the same partitions."""
    session = FetcherSession()
    ids = iter(range(1, 1000))
    cache = FetchSessionCache(10, lambda: next(ids))
    for step in steps:
        if step == "restart":
            session.restart()
        elif step == "fetch":
            if session.asked:
                exchange(session, cache)
        else:
            topic_id, index, offset = step
            session.update((topic_id, index), None if offset is None else asked(offset))
    assert len(cache) <= 1


def exchange(session: FetcherSession, cache: FetchSessionCache) -> None:
    topics, forgotten = session.next_request()
    if session.is_incremental:
        found = cache.resolve(session.session_id, session.epoch, uses_topic_ids=True)
        assert not isinstance(found, int), found
        found.add(topics, TOPICS)
        found.forget(forgotten)
        cache.advance(found, 0)
        session_id = session.session_id
    else:
        cache.remove(session.session_id)
        session_id = cache.create({}, privileged=True, uses_topic_ids=True, now_ms=0)
        found = cache.get(session_id)
        assert found is not None
        found.add(topics, TOPICS)
    session.answered(session_id)
    assert {key: part.fetch_offset for key, part in found.partitions.items()} == {
        key: one.fetch_offset for key, one in session.asked.items()
    }
