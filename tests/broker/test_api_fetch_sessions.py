"""Fetch sessions as a client sees them: what an answer names, errors, closing, eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch, data_of, topic_id
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 3)
    path.create("bar", 1)
    yield path
    path.logs.abandon()


def named(response: FetchResponse | None) -> list[tuple[str, int]]:
    """The partitions of an answer."""
    assert response is not None
    return [
        (topic.topic, data.partition_index)
        for topic in response.responses
        for data in topic.partitions
    ]


def fetch(path: DataPath, *partitions: Any, **options: Any) -> FetchResponse:
    response = path.fetch(*partitions, **options)
    assert response is not None, "the request was parked"
    return response


class TestSessions:
    def open(self, path: DataPath, *partitions: Any, **options: Any) -> int:
        response = fetch(path, *partitions, session_epoch=0, **options)
        assert response.session_id != 0
        assert len(named(response)) == len(partitions)
        return response.session_id

    def test_an_answer_names_only_what_is_new(self, path: DataPath) -> None:
        session = self.open(path, ("foo", 0, 0), ("foo", 1, 0), ("bar", 0, 0))
        response = path.fetch(session_id=session, session_epoch=1)
        assert named(response) == []
        path.produce("foo", 1, batch(2))
        response = path.fetch(session_id=session, session_epoch=2)
        assert named(response) == [("foo", 1)]
        assert response is not None
        assert response.session_id == session
        # the same offset again: records are always news
        assert named(path.fetch(session_id=session, session_epoch=3)) == [("foo", 1)]
        assert named(path.fetch(("foo", 1, 2), session_id=session, session_epoch=4)) == []

    def test_a_partition_that_gave_records_is_read_last_next_time(self, path: DataPath) -> None:
        for index in range(3):
            path.produce("foo", index, batch(1, b"x" * 400))
        session = self.open(path, *[("foo", index, 0) for index in range(3)], max_bytes=1)
        answers = [
            named(path.fetch(session_id=session, session_epoch=epoch, max_bytes=1))[-1]
            for epoch in range(1, 5)
        ]
        # the full fetch does not rotate; from then on every partition gets its turn
        assert answers == [("foo", 0), ("foo", 1), ("foo", 2), ("foo", 0)]

    def test_partitions_come_and_go(self, path: DataPath) -> None:
        session = self.open(path, ("foo", 0, 0))
        forgotten = [FetchRequest.ForgottenTopic(topic="foo", partitions=[0])]
        response = path.fetch(
            ("bar", 0, 0), session_id=session, session_epoch=1, forgotten_topics_data=forgotten
        )
        assert named(response) == [("bar", 0)]
        path.produce("foo", 0, batch())
        assert named(path.fetch(session_id=session, session_epoch=2)) == []

    def test_forgetting_the_last_one_closes_it(self, path: DataPath) -> None:
        session = self.open(path, ("foo", 0, 0))
        forgotten = [FetchRequest.ForgottenTopic(topic="foo", partitions=[0])]
        response = path.fetch(
            session_id=session, session_epoch=1, forgotten_topics_data=forgotten, max_wait_ms=500
        )
        assert response == FetchResponse()
        response = path.fetch(session_id=session, session_epoch=2)
        assert response is not None
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize(
        ("session_epoch", "version", "error"),
        [
            (2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ],
    )
    def test_errors(
        self, path: DataPath, session_epoch: int, version: int, error: ErrorCode
    ) -> None:
        session = self.open(path, ("foo", 0, 0))
        response = path.fetch(session_id=session, session_epoch=session_epoch, version=version)
        assert response == FetchResponse(error_code=error)
        assert named(path.fetch(session_id=session, session_epoch=1)) == []  # it lives on

    @pytest.mark.parametrize("session_epoch", [0, -1])
    def test_a_full_fetch_closes_the_session_it_names(
        self, path: DataPath, session_epoch: int
    ) -> None:
        session = self.open(path, ("foo", 0, 0))
        response = fetch(path, ("foo", 0, 0), session_id=session, session_epoch=session_epoch)
        assert (response.session_id != 0) == (session_epoch == 0)
        assert path.fetch_api.sessions.get(session) is None

    def test_a_full_cache_answers_without_a_session(self, tmp_path: Path) -> None:
        path = DataPath(tmp_path / "other", max_incremental_fetch_session_cache_slots="1")
        path.create("foo")
        self.open(path, ("foo", 0, 0))
        response = fetch(path, ("foo", 0, 0), session_epoch=0)
        assert (response.session_id, named(response)) == (0, [("foo", 0)])
        path.logs.abandon()

    def test_a_session_used_by_another_connection_while_parked(self, path: DataPath) -> None:
        session = self.open(path, ("foo", 0, 0))
        assert path.fetch(session_id=session, session_epoch=1, max_wait_ms=500) is None
        parked = path.context
        assert named(path.fetch(session_id=session, session_epoch=2)) == []
        path.produce("foo", 0, batch())
        response = path.answer_of(parked)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert response.session_id == session

    def test_unknown_ids_are_reported_each_time_until_their_topic_exists(
        self, path: DataPath
    ) -> None:
        session = self.open(path, (topic_id("new"), 0, 0), (topic_id("foo"), 0, 0), version=13)
        for epoch in (1, 2):
            response = path.fetch(version=13, session_id=session, session_epoch=epoch)
            assert response is not None
            assert data_of(response).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        path.create("new")
        response = path.fetch(version=13, session_id=session, session_epoch=3)
        assert response is not None
        assert [topic.topic_id for topic in response.responses] == [topic_id("new")]
        assert data_of(response).error_code == 0
        assert path.fetch(version=13, session_id=session, session_epoch=4) == FetchResponse(
            session_id=session
        )

    def test_a_parked_session_answers_with_the_news_alone(self, path: DataPath) -> None:
        session = self.open(path, ("foo", 0, 0), ("foo", 1, 0))
        assert path.fetch(session_id=session, session_epoch=1, max_wait_ms=500) is None
        parked = path.context
        path.produce("foo", 1, batch())
        assert named(path.answer_of(parked)) == [("foo", 1)]
        assert (
            path.fetch(("foo", 1, 1), session_id=session, session_epoch=2, max_wait_ms=500) is None
        )
        parked = path.context
        path.timers.advance_ms(500)
        assert path.answer_of(parked) == FetchResponse(session_id=session)
