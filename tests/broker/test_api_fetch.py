"""Fetch: limits, errors, sessions over the wire, and the long poll."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch, bytes_of, data_of, fetch_request, topic_id
from support.handler_calls import make_context
from support.turns import counting_turns
from tidelog.cluster.metadata.image import BrokerImage
from tidelog.config.broker import BrokerConfig
from tidelog.network.wide_requests import PART_MAX
from tidelog.security.acls import Acl
from tidelog.security.authorizer import Authorizer
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import FetchRequest, FetchResponse
from tidelog_protocol.records import Codec, iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tidelog.network.dispatch import RequestContext


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 3)
    path.create("bar", 1)
    yield path
    path.logs.abandon()


def offsets(data: Any) -> list[int]:
    """First offsets of the batches in an answer."""
    return [header.base_offset for _, header in iter_batches(bytes_of(data))]


def fetch(path: DataPath, *partitions: Any, **options: Any) -> FetchResponse:
    response = path.fetch(*partitions, **options)
    assert response is not None, "the request was parked"
    return response


def begin_wide(path: DataPath, **options: Any) -> tuple[RequestContext, asyncio.Future[Any]]:
    """Begin a Fetch of three parts: of the partitions of foo, and unknown ones."""
    wide = [("foo", index, 0) for index in range(3 * PART_MAX)]
    request = fetch_request(*wide, **options)
    context = make_context(ApiKey.FETCH, 12)
    return context, asyncio.ensure_future(path.handlers[ApiKey.FETCH](context, request))


class TestWide:
    """Thousands of partitions are read in parts."""

    def test_others_are_served_between_the_parts(self, path: DataPath) -> None:
        path.produce("foo", 1, batch(3), acks=1)
        wide = [("foo", index, 0) for index in range(3 * PART_MAX)]
        context = make_context(ApiKey.FETCH, 12)
        request = fetch_request(*wide, max_wait_ms=500)
        response, turns = counting_turns(path.handlers[ApiKey.FETCH], context, request)
        assert turns >= 3
        answers = [data for topic in response.responses for data in topic.partitions]
        assert [data.partition_index for data in answers] == [*range(3 * PART_MAX)]
        assert offsets(answers[1]) == [0]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [data.error_code for data in answers] == [0] * 3 + [unknown] * (3 * PART_MAX - 3)

    def test_a_narrow_one_is_answered_at_once(self, path: DataPath) -> None:
        wide = [("foo", index, 0) for index in range(PART_MAX)]
        _, turns = counting_turns(
            path.handlers[ApiKey.FETCH], make_context(ApiKey.FETCH, 12), fetch_request(*wide)
        )
        assert turns == 0

    def test_the_limit_of_bytes_holds_over_all_parts(self, path: DataPath) -> None:
        for index in range(3):
            path.produce("foo", index, batch(3), acks=1)
        unknown = [("foo", index, 0) for index in range(3, 3 + PART_MAX)]
        wide = [("foo", 0, 0), *unknown, ("foo", 1, 0), ("foo", 2, 0)]
        size = len(batch(3))
        for max_bytes, read in ((1, 1), (size, 1), (2 * size, 2), (3 * size, 3)):
            request = fetch_request(*wide, max_bytes=max_bytes)
            context = make_context(ApiKey.FETCH, 11)
            response, _ = counting_turns(path.handlers[ApiKey.FETCH], context, request)
            answers = [data for topic in response.responses for data in topic.partitions]
            assert sum(bool(bytes_of(data)) for data in answers) == read

    @pytest.mark.parametrize("min_bytes", [1, 2])
    def test_what_comes_between_the_parts_is_seen(self, path: DataPath, min_bytes: int) -> None:
        async def story() -> Any:
            _, work = begin_wide(path, max_wait_ms=60_000, min_bytes=min_bytes)
            await asyncio.sleep(0)  # the first part, with foo-0, is read
            path.produce("foo", 0, batch(3), acks=1)
            return await work

        response = asyncio.run(story())
        assert offsets(data_of(response, 0)) == [0]

    @pytest.mark.parametrize("turns", [0, 1, 50])
    @pytest.mark.parametrize("is_closed", [True, False])
    def test_it_ends_with_the_connection_and_hurries_for_the_next_request(
        self, path: DataPath, turns: int, *, is_closed: bool
    ) -> None:
        """Whether its parts are read still, or it is parked."""

        async def story() -> None:
            context, work = begin_wide(path, max_wait_ms=60_000)
            for _ in range(turns):
                await asyncio.sleep(0)
            assert context.deferred is not None
            if is_closed:
                context.deferred.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await work
                assert not path.replicas.fetch_purgatory
            else:
                context.deferred.hurry()
                answered = (await work).responses
                assert sum(len(each.partitions) for each in answered) == 3 * PART_MAX

        asyncio.run(story())

    def test_one_that_is_parked_is_woken(self, path: DataPath) -> None:
        async def story() -> Any:
            _, work = begin_wide(path, max_wait_ms=60_000)
            for _ in range(50):
                await asyncio.sleep(0)
            assert not work.done()
            path.produce("foo", 2, batch(3), acks=1)
            return await work

        response = asyncio.run(story())
        assert offsets(data_of(response, 2)) == [0]


class TestRead:
    @pytest.mark.parametrize("version", range(4, 13))
    def test_records_as_they_lie_and_the_offsets_beside_them(
        self, path: DataPath, version: int
    ) -> None:
        sent = batch(2)
        path.produce("foo", 0, sent)
        data = data_of(fetch(path, ("foo", 0, 0), version=version))
        assert bytes_of(data) == bytes(sent)  # the broker wrote the offsets into it
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
        assert (data.log_start_offset, data.preferred_read_replica) == (0, -1)
        assert data.aborted_transactions is None

    @pytest.mark.parametrize("version", [13, 17, 18])
    def test_by_topic_id(self, path: DataPath, version: int) -> None:
        path.produce("foo", 0, batch(2))
        response = fetch(path, (topic_id("foo"), 0, 0), (topic_id("nope"), 4, 0), version=version)
        assert offsets(data_of(response, 0)) == [0]
        assert data_of(response, 1).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert [topic.topic_id for topic in response.responses] == [
            topic_id("foo"),
            topic_id("nope"),
        ]

    def test_partitions_of_a_topic_share_its_entry(self, path: DataPath) -> None:
        response = fetch(path, ("foo", 0, 0), ("foo", 2, 0), ("bar", 0, 0), ("foo", 1, 0))
        assert [
            (t.topic, [d.partition_index for d in t.partitions]) for t in response.responses
        ] == [
            ("foo", [0, 2]),
            ("bar", [0]),
            ("foo", [1]),
        ]

    def test_read_committed(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(2))
        data = data_of(fetch(path, ("foo", 0, 0), isolation_level=1))
        assert (offsets(data), data.aborted_transactions) == ([0], [])


class TestLimits:
    @pytest.fixture(autouse=True)
    def _records(self, path: DataPath) -> None:
        for index in range(3):
            for _ in range(4):
                path.produce("foo", index, batch(1, b"x" * 1000))
        self.size = len(bytes_of(data_of(fetch(path, ("foo", 0, 3)))))

    def test_whole_batches_below_the_partitions_limit(self, path: DataPath) -> None:
        limit = {"partition_max_bytes": 2 * self.size + 5}
        assert offsets(data_of(fetch(path, ("foo", 0, 1, limit)))) == [1, 2]

    def test_the_first_batch_of_the_first_partition_with_data_is_sent_whatever_its_size(
        self, path: DataPath
    ) -> None:
        limit = {"partition_max_bytes": 1}
        response = fetch(path, ("bar", 0, 0, limit), ("foo", 0, 0, limit), ("foo", 1, 0, limit))
        assert [offsets(data_of(response, index)) for index in range(3)] == [[], [0], []]

    def test_the_whole_answers_limit(self, path: DataPath) -> None:
        asked = [("foo", index, 0) for index in range(3)]
        response = fetch(path, *asked, max_bytes=6 * self.size)
        assert [len(offsets(data_of(response, index))) for index in range(3)] == [4, 2, 0]
        response = fetch(path, *asked, max_bytes=1)
        assert [len(offsets(data_of(response, index))) for index in range(3)] == [1, 0, 0]
        response = fetch(path, *asked, max_bytes=0)
        assert [len(offsets(data_of(response, index))) for index in range(3)] == [1, 0, 0]

    def test_the_brokers_own_limit(self, tmp_path: Path) -> None:
        path = DataPath(tmp_path / "other", fetch_max_bytes="1024")
        path.create("foo")
        for _ in range(3):
            path.produce("foo", 0, batch(1, b"x" * 1000))
        assert len(offsets(data_of(fetch(path, ("foo", 0, 0))))) == 1
        path.logs.abandon()


class TestErrors:
    def error(self, path: DataPath, *partitions: Any, **options: Any) -> ErrorCode:
        response = fetch(path, *partitions, max_wait_ms=500, **options)  # errors never wait
        data = data_of(response)
        assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
        assert bytes_of(data) == b""
        return ErrorCode(data.error_code)

    def test_of_a_partition(self, path: DataPath) -> None:
        path.create("elsewhere", replicas=(2,), isr=(2,))
        assert self.error(path, ("nope", 0, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert self.error(path, ("foo", 3, 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert self.error(path, ("foo", 0, 1)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.error(path, ("foo", 0, -1)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.error(path, ("elsewhere", 0, 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_epochs(self, path: DataPath) -> None:
        path.change("foo", leader_epoch=5)
        old, new = {"current_leader_epoch": 4}, {"current_leader_epoch": 6}
        assert self.error(path, ("foo", 0, 0, old)) is ErrorCode.FENCED_LEADER_EPOCH
        assert self.error(path, ("foo", 0, 0, new)) is ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_old_clients_get_another_code_for_storage_errors(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(path.logs, "create", fail)
        path.create("bad")
        assert self.error(path, ("bad", 0, 0), version=5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert self.error(path, ("bad", 0, 0), version=6) is ErrorCode.KAFKA_STORAGE_ERROR

    @pytest.mark.parametrize("version", [9, 10])
    def test_zstd_is_sent_to_old_clients_too(self, path: DataPath, version: int) -> None:
        path.create("packed", configs={"compression.type": "zstd"})
        path.produce("packed", 0, batch(3, codec=Codec.ZSTD))
        assert offsets(data_of(fetch(path, ("packed", 0, 0), version=version))) == [0]

    def test_a_reader_that_is_no_assigned_replica(self, path: DataPath) -> None:
        plain, with_epoch = ("foo", 0, 0), ("foo", 0, 0, {"current_leader_epoch": 0})
        assert self.error(path, plain, replica_id=9) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert self.error(path, with_epoch, replica_id=9) is ErrorCode.UNKNOWN_LEADER_EPOCH
        state = FetchRequest.ReplicaState(replica_id=9, replica_epoch=3)
        asked = (topic_id("foo"), *with_epoch[1:])
        assert (
            self.error(path, asked, version=15, replica_state=state)
            is ErrorCode.UNKNOWN_LEADER_EPOCH
        )

    @pytest.mark.parametrize(("version", "told"), [(12, False), (15, False), (16, True)])
    def test_an_epoch_error_names_the_current_leader(
        self, path: DataPath, version: int, told: bool
    ) -> None:
        path.apply(brokers={**path.image.brokers, 2: BrokerImage(2, "other", 9093, "r1")})
        path.change("foo", leader=2, leader_epoch=3)
        name = "foo" if version < 13 else topic_id("foo")
        response = fetch(path, (name, 0, 0, {"current_leader_epoch": 3}), version=version)
        data = data_of(response)
        if version < 16:
            # from v11 a consumer may read from a follower (KIP-392)
            assert (data.error_code, data.current_leader) == (0, None)
        response = fetch(path, (name, 0, 0, {"current_leader_epoch": 1}), version=version)
        data = data_of(response)
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
        if told:
            assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 3)
            (node,) = response.node_endpoints
            assert (node.node_id, node.host, node.port, node.rack) == (2, "other", 9093, "r1")
        else:
            assert (data.current_leader, response.node_endpoints) == (None, [])

    def test_a_log_of_another_topic_of_that_name(self, path: DataPath) -> None:
        response = fetch(path, (topic_id("foo"), 0, 0), version=13, session_epoch=0)
        path.create("foo", 3, incarnation=1)
        again = path.fetch(version=13, session_id=response.session_id, session_epoch=1)
        assert again is not None
        assert data_of(again).error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        fresh = fetch(path, (topic_id("foo"), 0, 0), version=13)
        assert data_of(fresh).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_partitions_of_unknown_topics_come_last(self, path: DataPath) -> None:
        response = fetch(path, ("foo", 9, 0), ("nope", 0, 0), ("bar", 0, 0))
        assert [topic.topic for topic in response.responses] == ["bar", "foo", "nope"]
        # where the log is not asked the list is empty, not null
        assert [data_of(response, index).aborted_transactions for index in range(3)] == [
            None,
            [],
            [],
        ]

    @pytest.mark.parametrize(("version", "topics"), [(4, 1), (12, 1), (13, 0), (17, 0)])
    def test_an_unknown_isolation_level(self, path: DataPath, version: int, topics: int) -> None:
        name = "foo" if version < 13 else topic_id("foo")
        response = fetch(path, (name, 0, 0), version=version, isolation_level=2, session_id=7)
        assert (response.error_code, response.session_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, 7)
        assert len(response.responses) == topics
        for topic in response.responses:
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_divergence(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3))
        path.change("foo", leader_epoch=2)
        path.produce("foo", 0, batch(3))
        asked = {"last_fetched_epoch": 1}
        response = fetch(path, ("foo", 0, 5, asked), max_wait_ms=500)
        data = data_of(response)
        assert (data.error_code, bytes_of(data)) == (0, b"")
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)


class TestAuthorizer:
    """Consumers read topics for which they have READ; sessions are asked at each request."""

    @pytest.fixture
    def acls(self, path: DataPath) -> dict[bytes, Acl]:
        config = BrokerConfig.from_properties({"node.id": "1"})
        now = {b"1": Acl(2, "foo", 3, "User:*", "*", 3, 3)}
        path.fetch_api._authorizer = Authorizer(config, lambda: dict(now))
        return now

    def test_other_topics_are_refused(self, path: DataPath, acls: dict[bytes, Acl]) -> None:
        path.produce("foo", 0, batch())
        path.produce("bar", 0, batch())
        response = fetch(path, ("bar", 0, 0), ("foo", 0, 0))
        data = {topic.topic: topic.partitions[0] for topic in response.responses}
        assert (data["foo"].error_code, offsets(data["foo"])) == (0, [0])
        refused = data["bar"]
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert bytes_of(refused) == b""
        acls.clear()
        response = fetch(path, ("foo", 0, 0))
        assert data_of(response).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    @pytest.mark.usefixtures("acls")
    def test_other_topics_are_refused_in_a_wide_request(self, path: DataPath) -> None:
        path.produce("foo", 0, batch())
        wide = [("bar", index, 0) for index in range(PART_MAX)] + [("foo", 0, 0)]
        context = make_context(ApiKey.FETCH, 12)
        response, turns = counting_turns(path.handlers[ApiKey.FETCH], context, fetch_request(*wide))
        assert turns >= 2
        assert offsets(data_of(response, 0)) == [0], "what is refused comes last"
        codes = {data_of(response, index).error_code for index in range(1, PART_MAX + 1)}
        assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    @pytest.mark.usefixtures("acls")
    def test_an_append_to_a_refused_topic_shows_nothing(self, path: DataPath) -> None:
        assert path.fetch(("bar", 0, 0), ("foo", 0, 0), max_wait_ms=500) is None
        parked = path.context
        path.produce("bar", 0, batch())
        assert path.answer_of(parked) is None
        path.produce("foo", 0, batch())
        answers = {topic.topic: topic.partitions[0] for topic in path.answer_of(parked).responses}
        assert offsets(answers["foo"]) == [0]
        assert answers["bar"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert bytes_of(answers["bar"]) == b""

    @pytest.mark.usefixtures("acls")
    def test_followers_need_cluster_action(self, path: DataPath) -> None:
        path.produce("foo", 0, batch())
        response = fetch(path, ("foo", 0, 0), replica_id=2)
        assert data_of(response).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    @pytest.mark.usefixtures("acls")
    @pytest.mark.parametrize(
        ("replica_id", "code"),
        [(-1, ErrorCode.UNKNOWN_TOPIC_ID), (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
    )
    def test_followers_without_rights_hear_of_no_topic(
        self, path: DataPath, replica_id: int, code: ErrorCode
    ) -> None:
        response = fetch(path, (b"\7" * 16, 0, 0), version=13, replica_id=replica_id)
        assert data_of(response).error_code == code


class TestLongPoll:
    def park(self, path: DataPath, *partitions: Any, **options: Any) -> RequestContext:
        options.setdefault("max_wait_ms", 500)
        assert path.fetch(*partitions, **options) is None
        return path.context

    def test_an_append_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), ("foo", 1, 0))
        path.produce("foo", 2, batch())
        path.produce("bar", 0, batch())
        assert path.answer_of(parked) is None
        path.produce("foo", 1, batch())
        response = path.answer_of(parked)
        assert [offsets(data_of(response, index)) for index in (0, 1)] == [[], [0]]
        assert len(path.replicas.fetch_purgatory) == 0

    def test_the_deadline_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0))
        path.timers.advance_ms(499)
        assert path.answer_of(parked) is None
        path.timers.advance_ms(1)
        data = data_of(path.answer_of(parked))
        assert (data.error_code, bytes_of(data), data.high_watermark) == (0, b"", 0)

    def test_another_request_on_the_connection_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), min_bytes=1000)
        path.produce("foo", 0, batch())
        assert path.answer_of(parked) is None
        assert parked.deferred is not None
        parked.deferred.hurry()
        assert offsets(data_of(path.answer_of(parked))) == [0]  # what there is
        path.timers.advance_ms(1000)

    def test_a_connection_that_goes_leaves_nothing_behind(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0))
        assert parked.deferred is not None
        parked.deferred.cancel()
        assert len(path.replicas.fetch_purgatory) == 0
        path.produce("foo", 0, batch())
        assert path.answer_of(parked) is None

    @pytest.mark.parametrize("where", ["read", "end_offset", "leader_error"])
    def test_one_that_fails_costs_neither_the_producer_nor_other_readers_their_answer(
        self, path: DataPath, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = self.park(path, ("foo", 0, 0), ("foo", 1, 0), max_wait_ms=700)
        whole = self.park(path, ("foo", 1, 0), max_wait_ms=800)

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("a bug")

        partition = path.partition("foo", 0)
        with monkeypatch.context() as patched:
            patched.setattr(type(partition), where, fail)
            assert path.produce("foo", 0, batch(), acks=1).error_code == 0
        errors = [data_of(path.answer_of(broken), index).error_code for index in (0, 1)]
        assert errors[0] == ErrorCode.UNKNOWN_SERVER_ERROR
        path.produce("foo", 1, batch())
        assert offsets(data_of(path.answer_of(whole))) == [0]
        assert len(path.replicas.fetch_purgatory) == 0

    def test_a_read_that_fails_is_its_partitions_error(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path.produce("foo", 0, batch())
        path.produce("foo", 1, batch())

        monkeypatch.setattr(path.partition("foo", 0).log, "_reader", None)
        response = fetch(path, ("foo", 0, 0), ("foo", 1, 0))
        assert data_of(response, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert offsets(data_of(response, 1)) == [0]

    def test_no_wait_asked_no_partition_asked_enough_there(self, path: DataPath) -> None:
        path.produce("foo", 0, batch())
        fetch(path, ("foo", 1, 0), max_wait_ms=0)
        fetch(path, max_wait_ms=500)
        fetch(path, ("foo", 1, 0), max_wait_ms=500, min_bytes=0)
        fetch(path, ("foo", 0, 0), max_wait_ms=500)

    def test_min_bytes_are_summed_over_partitions_and_appends(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(1, b"x" * 400))
        parked = self.park(path, ("foo", 0, 0), ("foo", 1, 0), min_bytes=1500)
        path.produce("foo", 1, batch(1, b"x" * 400))
        assert path.answer_of(parked) is None
        path.produce("foo", 0, batch(1, b"x" * 400))
        assert path.answer_of(parked) is None
        path.produce("foo", 1, batch(1, b"x" * 400))
        response = path.answer_of(parked)
        assert [offsets(data_of(response, index)) for index in (0, 1)] == [[0, 1], [0, 1]]

    def test_a_partition_counts_at_most_its_own_limit(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0, {"partition_max_bytes": 500}), min_bytes=1000)
        for _ in range(4):
            path.produce("foo", 0, batch(1, b"x" * 400))
        assert path.answer_of(parked) is None
        path.timers.advance_ms(500)
        assert len(offsets(data_of(path.answer_of(parked)))) == 1

    def test_min_bytes_are_at_most_what_may_be_sent(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), min_bytes=1 << 30, max_bytes=600)
        path.produce("foo", 0, batch(1, b"x" * 700))
        assert path.answer_of(parked) is not None

    def test_what_was_read_before_parking_is_sent_too(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(1, b"x" * 400))
        parked = self.park(path, ("foo", 0, 0), ("foo", 1, 0), min_bytes=900)
        path.produce("foo", 1, batch(1, b"x" * 500))
        response = path.answer_of(parked)
        assert [offsets(data_of(response, index)) for index in (0, 1)] == [[0], [0]]

    def test_a_sealed_segment_gives_all_it_has_at_once(self, path: DataPath) -> None:
        for _ in range(2):
            path.produce("foo", 0, batch())
            path.partition("foo").log.roll(path.clock.now_ms)
        path.produce("foo", 0, batch())
        response = fetch(path, ("foo", 0, 0), max_wait_ms=500, min_bytes=100_000)
        assert offsets(data_of(response)) == [0]

    def test_a_roll_ends_it(self, path: DataPath) -> None:
        path.produce("foo", 0, batch())
        parked = self.park(path, ("foo", 0, 0), min_bytes=100_000)
        path.partition("foo").log.roll(path.clock.now_ms)
        assert path.answer_of(parked) is None
        path.produce("foo", 0, batch())
        assert offsets(data_of(path.answer_of(parked))) == [0]

    def test_losing_the_lead_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), version=10)
        path.change("foo", leader=2, leader_epoch=1)
        assert data_of(path.answer_of(parked)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_new_epoch_fences_requests_with_the_old_one(self, path: DataPath) -> None:
        fenced = self.park(path, ("foo", 0, 0, {"current_leader_epoch": 0}))
        free = self.park(path, ("foo", 0, 0))
        path.change("foo", leader_epoch=1)
        assert data_of(path.answer_of(fenced)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert path.answer_of(free) is None

    def test_deletion_of_the_topic_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0))
        path.delete("foo")
        error = data_of(path.answer_of(parked)).error_code
        assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_truncation_below_the_fetch_offset_ends_it(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3))
        path.produce("foo", 0, batch(3))
        parked = self.park(path, ("foo", 0, 6))
        path.partition("foo").log.truncate_to(3)
        path.change("foo", isr=(1,))  # anything that looks at the partition
        assert data_of(path.answer_of(parked)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_divergence_found_later_ends_it(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(3))
        parked = self.park(path, ("foo", 0, 3, {"last_fetched_epoch": 0}))
        log = path.partition("foo").log
        log.truncate_to(0)
        path.change("foo", leader_epoch=1)
        path.produce("foo", 0, batch(4))
        data = data_of(path.answer_of(parked))
        assert data.error_code == 0
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0)

    def test_a_topic_that_is_unknown_does_not_hurry_the_others(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), ("nope", 0, 0))
        path.produce("foo", 0, batch())
        response = path.answer_of(parked)
        assert offsets(data_of(response, 0)) == [0]
        assert data_of(response, 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_that_comes_ends_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0), ("new", 0, 0))
        path.create("new")
        assert data_of(path.answer_of(parked), 1).error_code == 0

    def test_offsets_between_the_bound_and_the_log_end_wait(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2))
        path.produce("two", 0, batch(3), acks=1)
        parked = self.park(path, ("two", 0, 2))
        path.produce("two", 0, batch(1), acks=1)
        assert path.answer_of(parked) is None
        path.change("two", isr=(1,))
        assert offsets(data_of(path.answer_of(parked))) == [0, 3]

    def test_it_leaves_no_garbage(self, path: DataPath) -> None:
        """Records of an answer must not stay until the garbage collector comes."""
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                parked = self.park(path, ("foo", 0, number))
                path.produce("foo", 0, batch())
                assert path.answer_of(parked) is not None
            del parked
            garbage = gc.collect()
        finally:
            gc.enable()
        assert garbage < 20

    def test_stop_answers_it(self, path: DataPath) -> None:
        parked = self.park(path, ("foo", 0, 0))
        path.replicas.close()
        assert data_of(path.answer_of(parked)).error_code == 0


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
def test_answers_are_fit_for_the_wire(path: DataPath, version: int) -> None:
    sent = batch(2)
    path.produce("foo", 0, sent)
    name = topic_id("foo") if version >= 13 else "foo"
    codec = API[ApiKey.FETCH].request_codec(version)
    asked = codec.decode(
        codec.encode(fetch_request((name, 0, 0), (name, 1, 0), (name, 1, 9), by_id=version >= 13))
    )
    response = path.call(ApiKey.FETCH, version, asked)
    codec = API[ApiKey.FETCH].response_codec(version)
    decoded = codec.decode(b"".join(codec.encode_parts(response)))
    assert bytes_of(data_of(decoded, 0)) == bytes(sent)
    assert bytes_of(data_of(decoded, 1)) == b""
    assert data_of(decoded, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
