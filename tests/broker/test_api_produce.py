"""Produce: acks, refusals in Kafka's order, what each error tells, waking and waiting."""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import NOW_MS, DataPath, batch, data_of, topic_id
from support.handler_calls import RecordingPeer
from tidelog.api.produce import PART_MAX
from tidelog.cluster.metadata.delta import MetadataDelta
from tidelog.network.dispatch import RequestContext
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import ProduceRequest, ProduceResponse
from tidelog_protocol.records import Codec
from tidelog_storage.inspection import ITEMS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Data = ProduceRequest.TopicProduceData


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 2)
    yield path
    path.logs.abandon()


def request(*partitions: tuple[str, int, Any], acks: int = -1, **options: Any) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            Data(
                name=topic, partition_data=[Data.PartitionProduceData(index=index, records=records)]
            )
            for topic, index, records in partitions
        ],
        **options,
    )


def errors_of(response: ProduceResponse) -> list[ErrorCode]:
    return [
        ErrorCode(answer.error_code)
        for topic in response.responses
        for answer in topic.partition_responses
    ]


def was_closed(path: DataPath) -> bool:
    assert isinstance(path.context.peer, RecordingPeer)
    return path.context.peer.closed


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", range(3, 13))
def test_appends_and_answers_with_the_first_offset(path: DataPath, version: int, acks: int) -> None:
    path.produce("foo", 1, batch(2), acks=acks, version=version)
    answer = path.produce("foo", 1, batch(3), acks=acks, version=version)
    assert answer == ProduceResponse.PartitionProduceResponse(
        index=1, error_code=0, base_offset=2, log_append_time_ms=-1, log_start_offset=0
    )
    assert path.partition("foo", 1).log.log_end_offset == 5


def test_by_topic_id(path: DataPath) -> None:
    answer = path.produce("", 0, batch(), version=13, topic_id=topic_id("foo"))
    assert answer.error_code == 0
    answer = path.produce("foo", 0, batch(), version=13, topic_id=topic_id("bar"))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    # the id counts, also when it is the one of "no topic"
    answer = path.produce("foo", 0, batch(), version=13)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = path.produce("", 9, batch(), version=13, topic_id=topic_id("foo"))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_log_append_time(path: DataPath) -> None:
    path.create("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    assert path.produce("stamped", 0, batch()).log_append_time_ms == NOW_MS


def test_each_partition_is_answered_alone_and_in_order(path: DataPath) -> None:
    response = path.call(
        ApiKey.PRODUCE,
        9,
        request(
            ("foo", 7, batch()),
            ("foo", 0, batch(2)),
            ("nope", 0, batch()),
            ("__consumer_offsets", 0, batch()),
            ("foo", 1, None),
            ("foo", 1, batch(1, base_sequence=4)),
        ),
    )
    assert errors_of(response) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
    ]
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                offsets = (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
                assert offsets[:2] == (-1, -1)
    assert path.partition("foo").log.log_end_offset == 2


class TestAcks:
    def test_0_answers_nothing(self, path: DataPath) -> None:
        assert path.call(ApiKey.PRODUCE, 9, request(("foo", 0, batch()), acks=0)) is None
        assert path.partition("foo").log.log_end_offset == 1
        assert not was_closed(path)

    def test_0_closes_the_connection_on_any_error(self, path: DataPath) -> None:
        asked = request(("foo", 0, batch()), ("nope", 0, batch()), acks=0)
        assert path.call(ApiKey.PRODUCE, 9, asked) is None
        assert was_closed(path)
        assert path.partition("foo").log.log_end_offset == 1  # the others were written

    @pytest.mark.parametrize("acks", [2, -2, 32767])
    def test_other_values_are_refused_where_the_partition_is_known(
        self, path: DataPath, acks: int
    ) -> None:
        asked = request(("foo", 0, batch()), ("nope", 0, batch()), acks=acks)
        assert errors_of(path.call(ApiKey.PRODUCE, 9, asked)) == [
            ErrorCode.INVALID_REQUIRED_ACKS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert path.partition("foo").log.log_end_offset == 0

    def test_all_waits_for_the_high_watermark(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2))
        assert path.produce("two", 0, batch(), acks=-1) is None
        parked = path.context
        assert path.produce("two", 0, batch(), acks=1).base_offset == 1
        path.change("two", isr=(1,))
        response = path.answer_of(parked)
        assert errors_of(response) == [ErrorCode.NONE]
        assert response.responses[0].partition_responses[0].base_offset == 0

    def test_all_times_out_and_keeps_the_offset_it_gave(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2))
        assert path.produce("two", 0, batch(), acks=-1, timeout_ms=50) is None
        path.timers.advance_ms(50)
        (answer,) = path.answer_of(path.context).responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)

    def test_a_connection_that_goes_is_not_answered(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1, 2))
        path.produce("two", 0, batch(), acks=-1)
        assert path.context.deferred is not None
        path.context.deferred.cancel()
        assert len(path.replicas.produce_purgatory) == 0
        path.change("two", isr=(1,))
        assert path.answer_of(path.context) is None

    def test_too_few_replicas(self, path: DataPath) -> None:
        path.create("two", replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
        answer = path.produce("two", 0, batch(), acks=-1)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (answer.log_start_offset, answer.error_message) == (0, None)
        assert path.produce("two", 0, batch(), acks=1).error_code == 0


class TestRefusals:
    # What clients may write, and those that call themselves Kafka's admin client (AdminUtils), as
    # ReplicaManager.appendRecordsToLeader decides by Topic.isInternal. A new row needs a loader
    # that names and passes over what it cannot read, as LedPartitions does.
    @pytest.mark.parametrize(
        ("topic", "client", "admin"),
        [
            ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE),
            ("__transaction_state", ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE),
            ("__share_group_state", ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE),
            ("__remote_log_metadata", ErrorCode.NONE, ErrorCode.NONE),
            ("__cluster_metadata", *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2),
        ],
    )
    def test_what_each_topic_of_the_brokers_takes_from_clients(
        self, path: DataPath, topic: str, client: ErrorCode, admin: ErrorCode
    ) -> None:
        if topic != "__cluster_metadata":  # which is no topic of the image
            path.create(topic)
        answer = path.produce(topic, 0, batch())
        assert answer.error_code == client
        if client is ErrorCode.INVALID_TOPIC_EXCEPTION:
            assert answer.log_start_offset == -1
        answer = path.produce(topic, 0, batch(), client_id="__admin_client")
        assert answer.error_code == admin

    @pytest.mark.parametrize(
        ("spoil", "error", "message"),
        [
            (lambda b: b[:40], ErrorCode.INVALID_RECORD, None),
            (lambda b: flip(b, 70), ErrorCode.CORRUPT_MESSAGE, None),
            (lambda b: b[:0], ErrorCode.INVALID_RECORD, None),
            (lambda b: memoryview(bytearray(bytes(b) * 2)), ErrorCode.INVALID_RECORD, None),
            (lambda b: flip(b, 16, 3), ErrorCode.INVALID_RECORD, None),
            (
                lambda b: flip(b, 16),
                ErrorCode.CORRUPT_MESSAGE,
                "Invalid magic found in record: 3",
            ),
            (
                lambda b: flip(b, 8, 0x80),
                ErrorCode.CORRUPT_MESSAGE,
                "Record size -2147483542 is less than the minimum record overhead (14)",
            ),
        ],
        ids=["cut", "bit", "none", "two", "magic 1", "magic 3", "negative length"],
    )
    def test_bad_batches(
        self, path: DataPath, spoil: Any, error: ErrorCode, message: str | None
    ) -> None:
        answer = path.produce("foo", 0, spoil(batch(3)))
        assert answer.error_code == error
        assert (answer.log_start_offset, answer.error_message) == (-1, message)
        assert path.partition("foo").log.log_end_offset == 0

    def test_only_refused_records_come_with_a_message(self, path: DataPath) -> None:
        answer = path.produce("foo", 0, flip(batch(), 7, 5))  # base offset 5
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert (answer.log_start_offset, answer.error_message) == (0, None)

    def test_too_large(self, path: DataPath) -> None:
        path.create("small", configs={"max.message.bytes": "100"})
        answer = path.produce("small", 0, batch(3))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)

    def test_zstd_needs_version_7(self, path: DataPath) -> None:
        answer = path.produce("foo", 0, batch(3, codec=Codec.ZSTD), version=6)
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert path.produce("foo", 0, batch(3, codec=Codec.ZSTD), version=7).error_code == 0

    def test_records_that_are_refused_are_named(self, path: DataPath) -> None:
        path.create("fresh", configs={"message.timestamp.after.max.ms": "1000"})
        answer = path.produce("fresh", 0, batch(2, timestamp=NOW_MS + 1000), version=8)
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [record.batch_index for record in answer.record_errors] == [1]
        assert answer.error_message == (
            "One or more records have been rejected due to invalid timestamp"
        )
        assert answer.log_start_offset == 0

    def test_a_follower_names_the_leader_from_version_10(self, path: DataPath) -> None:
        path.change("foo", leader=2, leader_epoch=3)
        for version in (9, 10):
            response = path.call(ApiKey.PRODUCE, version, request(("foo", 0, batch())))
            assert errors_of(response) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            leader = response.responses[0].partition_responses[0].current_leader
            if version < 10:
                assert leader is None
            else:
                assert (leader.leader_id, leader.leader_epoch) == (2, 3)
                assert response.node_endpoints == []  # broker 2 is not known
        path.change("foo", leader=-1)
        response = path.call(ApiKey.PRODUCE, 12, request(("foo", 0, batch())))
        assert response.responses[0].partition_responses[0].current_leader.leader_id == -1


class TestIdempotence:
    def send(self, path: DataPath, sequence: int, *, epoch: int = 0, count: int = 2) -> Any:
        return path.produce(
            "foo", 0, batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        )

    def test_a_duplicate_is_answered_with_its_first_offset(self, path: DataPath) -> None:
        assert self.send(path, 0).base_offset == 0
        assert self.send(path, 2).base_offset == 2
        again = self.send(path, 0)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert path.partition("foo").log.log_end_offset == 4

    def test_a_gap_and_an_old_epoch_are_refused_with_the_log_start(self, path: DataPath) -> None:
        self.send(path, 0, epoch=1)
        gap = self.send(path, 9, epoch=1)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (gap.log_start_offset, gap.error_message) == (0, None)
        assert self.send(path, 2, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


class TestTransactions:
    def transactional(self) -> memoryview:
        return batch(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)

    def test_without_an_id_the_whole_request_is_refused(self, path: DataPath) -> None:
        asked = request(("foo", 0, batch()), ("foo", 1, self.transactional()))
        assert (
            errors_of(path.call(ApiKey.PRODUCE, 9, asked))
            == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        )
        assert path.partition("foo").log.log_end_offset == 0
        asked.acks = 0
        assert path.call(ApiKey.PRODUCE, 9, asked) is None
        assert was_closed(path)

    def test_a_transactional_batch_of_no_producer_is_appended(self, path: DataPath) -> None:
        """As Kafka does: it belongs to no transaction, and readers of committed records see it."""
        asked = request(("foo", 0, batch(1, transactional=True)), transactional_id="t")
        assert errors_of(path.call(ApiKey.PRODUCE, 9, asked)) == [ErrorCode.NONE]
        log = path.partition("foo").log
        assert (log.log_end_offset, log.last_stable_offset) == (1, 1)

    def test_an_id_without_a_coordinator_makes_the_client_retry(self, path: DataPath) -> None:
        path.transactions.on_image(MetadataDelta(None, path.image), path.image)
        asked = request(("foo", 0, batch()), ("foo", 1, self.transactional()), transactional_id="t")
        response = asyncio.run(path.call(ApiKey.PRODUCE, 9, asked))
        assert errors_of(response) == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]

    def test_what_waits_for_the_coordinator_is_not_in_the_receive_buffer(
        self, path: DataPath
    ) -> None:
        """Another connection's bytes may come before the task's first step."""
        path.transactions.on_image(MetadataDelta(None, path.image), path.image)
        received = batch()
        asked = request(
            ("foo", 0, received), ("foo", 1, self.transactional()), transactional_id="t"
        )
        waiting = path.call(ApiKey.PRODUCE, 9, asked)
        received[:] = bytes(len(received))
        assert errors_of(asyncio.run(waiting))[0] is ErrorCode.NONE
        assert path.partition("foo").log.log_end_offset == 1

    def test_thousands_of_partitions_are_asked_for_and_appended_in_parts(
        self, path: DataPath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A transaction might end between two turns: a part is appended as its answer comes."""
        asked_for: list[int] = []

        async def agree(_id: str, _producer: Any, partitions: Any, **_: Any) -> Any:
            asked_for.append(len(partitions))
            ends = [path.partition("wide", index).log.log_end_offset for index in range(count)]
            assert sum(ends) == sum(asked_for[:-1])
            return dict.fromkeys(partitions, ErrorCode.NONE)

        monkeypatch.setattr(path.transactions, "add_partitions", agree)
        count = 2 * PART_MAX + 1
        path.create("wide", count)
        path.timers.advance_ms(0)
        parts = [("wide", index, self.transactional()) for index in range(count)]
        response = asyncio.run(path.call(ApiKey.PRODUCE, 8, request(*parts, transactional_id="t")))
        assert errors_of(response) == [ErrorCode.NONE] * count
        assert asked_for == [PART_MAX, PART_MAX, 1]

    def test_of_thousands_none_is_appended_if_there_are_two_producers(self, path: DataPath) -> None:
        count = PART_MAX + 1
        path.create("wide", count)
        path.timers.advance_ms(0)
        other = batch(1, producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
        parts = [("wide", index, self.transactional()) for index in range(count - 1)]
        asked = request(*parts, ("wide", count - 1, other), transactional_id="t")
        response = asyncio.run(path.call(ApiKey.PRODUCE, 12, asked))
        assert errors_of(response) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * count
        ends = {path.partition("wide", index).log.log_end_offset for index in range(count)}
        assert ends == {0}


def test_thousands_of_topics_without_partitions_leave_a_turn_to_others(path: DataPath) -> None:
    topics = [Data(name=f"t{number}") for number in range(PART_MAX + 1)]
    answering = path.call(
        ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    )
    assert isinstance(answering, CoroutineType)
    codec = API[ApiKey.PRODUCE].response_codec(9)
    response = codec.decode(b"".join(asyncio.run(answering)))
    assert [each.name for each in response.responses] == [each.name for each in topics]


class TestWaking:
    def test_a_parked_fetch_gets_all_partitions_of_one_request(self, path: DataPath) -> None:
        assert path.fetch(("foo", 0, 0), ("foo", 1, 0), max_wait_ms=500) is None
        parked = path.context
        path.call(ApiKey.PRODUCE, 9, request(("foo", 0, batch()), ("foo", 1, batch()), acks=1))
        response = path.answer_of(parked)
        assert [data_of(response, index).high_watermark for index in (0, 1)] == [1, 1]
        assert all(data_of(response, index).records for index in (0, 1))

    def test_nothing_is_woken_by_a_refusal(self, path: DataPath) -> None:
        assert path.fetch(("foo", 0, 0), max_wait_ms=500) is None
        parked = path.context
        path.produce("foo", 0, flip(batch(), 70))
        assert path.answer_of(parked) is None


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_the_records_of_a_real_frame_are_taken_from_where_they_lie(
    path: DataPath, version: int
) -> None:
    asked = request(("foo", 0, bytes(batch(3))))
    asked.topic_data[0].topic_id = topic_id("foo")
    api = API[ApiKey.PRODUCE]
    frame = memoryview(bytearray(api.request_codec(version).encode(asked)))
    decoded = api.request_codec(version).decode(frame)
    response = path.call(ApiKey.PRODUCE, version, decoded)
    assert errors_of(response) == [ErrorCode.NONE]
    encoded = api.response_codec(version).encode(response)
    again = api.response_codec(version).decode(encoded)
    assert again.responses[0].partition_responses[0].base_offset == 0


def flip(data: memoryview, position: int, bits: int = 1) -> memoryview:
    """The batch with some bits of one byte wrong."""
    data[position] ^= bits
    return data


def large_batch() -> memoryview:
    return batch(ITEMS_AT_ONCE + 1)


def test_a_batch_that_takes_long_to_look_into_has_its_connection_wait(path: DataPath) -> None:
    path.create("packed", 1, configs={"compression.type": "zstd"})
    large, small = large_batch(), batch(2)
    asked = request(("packed", 0, large), ("foo", 0, small), ("packed", 9, small))

    async def run() -> ProduceResponse:
        context = RequestContext(RecordingPeer(), ApiKey.PRODUCE, 12)
        work = path.produce_api.produce(context, asked)
        assert asyncio.iscoroutine(work)
        large[:] = bytes(len(large))  # the receive buffer, used again
        assert path.partition("foo", 0).log.log_end_offset == 2, "the others do not wait"
        assert path.partition("packed", 0).log.log_end_offset == 0
        path.produce("packed", 0, batch(1))
        answer = await work
        assert isinstance(answer, ProduceResponse)
        return answer

    response = asyncio.run(run())
    assert errors_of(response) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert response.responses[0].partition_responses[0].base_offset == 1
    assert path.partition("packed", 0).log.log_end_offset == ITEMS_AT_ONCE + 2


def test_thousands_of_partitions_leave_turns_to_others(path: DataPath) -> None:
    """10,000 partitions of one request held the loop for as many appends and fsyncs."""
    count = 2 * PART_MAX + 1
    path.create("wide", count)
    path.timers.advance_ms(0)  # all are open
    first = batch(2)
    others = [("wide", index, batch(2)) for index in range(1, count)]
    asked = request(("wide", 0, first), *others, ("none", 0, batch()))

    async def run() -> tuple[int, Any]:
        context = RequestContext(RecordingPeer(), ApiKey.PRODUCE, 12)
        work = path.produce_api.produce(context, asked)
        assert asyncio.iscoroutine(work)
        first[:] = bytes(len(first))  # the receive buffer, used again
        task, turns = asyncio.ensure_future(work), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns, task.result()

    turns, response = asyncio.run(run())
    assert turns >= 3
    assert errors_of(response) == [*[ErrorCode.NONE] * count, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    ends = {path.partition("wide", index).log.log_end_offset for index in range(count)}
    assert ends == {2}


def test_a_large_batch_without_a_leader_any_more_is_refused(path: DataPath) -> None:
    path.create("packed", 1, configs={"compression.type": "zstd"})
    partition = path.partition("packed", 0)

    async def run() -> ProduceResponse:
        context = RequestContext(RecordingPeer(), ApiKey.PRODUCE, 12)
        work = path.produce_api.produce(context, request(("packed", 0, large_batch())))
        partition.is_leader = False
        assert asyncio.iscoroutine(work)
        answer = await work
        assert isinstance(answer, ProduceResponse)
        return answer

    assert errors_of(asyncio.run(run())) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert partition.log.log_end_offset == 0
