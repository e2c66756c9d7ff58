"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.data_path import DataPath, batch
from support.handler_calls import make_context
from support.turns import counting_turns
from support.vectors import load_yaml
from tidelog.network.wide_requests import PART_MAX
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.data import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTORS = load_yaml(Path(__file__).parent / "vectors" / "list-offsets.yaml")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.create("foo", 2)
    yield path
    path.logs.abandon()


def list_offsets(
    path: DataPath,
    *asked: tuple[str, int, int],
    version: int = 11,
    replica_id: int = -1,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> list[ListOffsetsResponse.ListOffsetsPartitionResponse]:
    topic = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.ListOffsetsPartition(
                        partition_index=index,
                        timestamp=timestamp,
                        current_leader_epoch=current_leader_epoch,
                    )
                ],
            )
            for name, index, timestamp in asked
        ],
    )
    codec = API[ApiKey.LIST_OFFSETS].request_codec(version)
    response = path.call(ApiKey.LIST_OFFSETS, version, codec.decode(codec.encode(request)))
    codec = API[ApiKey.LIST_OFFSETS].response_codec(version)
    decoded: ListOffsetsResponse = codec.decode(codec.encode(response))
    return [answer for topic in decoded.topics for answer in topic.partitions]


def build(path: DataPath, state: dict[str, Any]) -> None:
    """Bring partition foo-0 into the state of a vector."""
    for number, (epoch, start) in enumerate(state["epochs"]):
        if number:
            path.change("foo", leader_epoch=epoch)
        end = [*(e[1] for e in state["epochs"]), state["log_end"]][number + 1]
        for offset, timestamp in state["timestamps"]:
            if start <= offset < end:
                path.produce("foo", 0, batch(1, timestamp=timestamp), acks=1)
    if state["log_start"]:
        path.partition("foo").delete_records(state["log_start"])
    if state.get("fresh"):
        # Elected with a follower in the in-sync replicas that has not fetched yet, and with a high
        # watermark that it learnt late.
        path.partition("foo").log.set_high_watermark(4)
        path.change("foo", leader_epoch=2, replicas=(1, 5), isr=(1, 5))
    assert path.partition("foo").log.log_end_offset == state["log_end"]


@pytest.mark.parametrize("width", [PART_MAX, 3 * PART_MAX])
def test_many_partitions_are_looked_up_in_turns(path: DataPath, width: int) -> None:
    path.produce("foo", 1, batch(3), acks=1)
    topic = ListOffsetsRequest.ListOffsetsTopic
    partitions = [
        topic.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(width)
    ]
    partitions[-1].partition_index = 0  # named twice
    request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="foo", partitions=partitions)])
    context = make_context(ApiKey.LIST_OFFSETS, 7)
    response, turns = counting_turns(path.handlers[ApiKey.LIST_OFFSETS], context, request)
    (answers,) = [each.partitions for each in response.topics]
    assert [each.partition_index for each in answers] == [*range(width - 1)]
    codes = [each.error_code for each in answers]
    assert codes[:2] == [ErrorCode.INVALID_REQUEST, 0]
    assert set(codes[2:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answers[1].offset == 3
    assert turns == 0 if width == PART_MAX else turns >= 3


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_list_offsets_vectors(path: DataPath, case: dict[str, Any]) -> None:
    given = VECTORS["given"] | case["in"]
    build(path, given)
    (answer,) = list_offsets(
        path,
        ("foo", 0, given["timestamp"]),
        version=given.get("version", 11),
        replica_id=given.get("replica_id", -1),
    )
    expected = case["out"]
    assert ErrorCode(answer.error_code).name == expected.get("error", "NONE")
    assert (answer.offset, answer.leader_epoch) == (
        expected.get("offset", -1),
        expected.get("leader_epoch", -1),
    )
    if "timestamp" in expected:
        assert answer.timestamp == expected["timestamp"]
    elif given["timestamp"] < 0 or answer.offset < 0:
        assert answer.timestamp == -1


class TestListOffsets:
    def test_read_committed_gets_the_last_stable_offset(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(2))
        (answer,) = list_offsets(path, ("foo", 0, -1), isolation_level=1)
        assert (answer.error_code, answer.offset) == (0, 2)

    @pytest.mark.parametrize("version", range(1, 12))
    def test_every_version(self, path: DataPath, version: int) -> None:
        path.produce("foo", 0, batch(2))
        (answer,) = list_offsets(path, ("foo", 0, -1), version=version)
        assert (answer.offset, answer.leader_epoch) == (2, 0 if version >= 4 else -1)

    def test_partitions_named_twice_are_refused_once(self, path: DataPath) -> None:
        answers = list_offsets(path, ("foo", 0, -1), ("foo", 1, -1), ("foo", 0, -2), ("foo", 0, -2))
        assert [(a.partition_index, ErrorCode(a.error_code)) for a in answers] == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, ErrorCode.NONE),
        ]

    def test_errors_of_a_partition(self, path: DataPath) -> None:
        path.create("elsewhere", replicas=(2,), isr=(2,))
        answers = list_offsets(path, ("foo", 2, -1), ("nope", 0, -1), ("elsewhere", 0, -1))
        assert [ErrorCode(answer.error_code) for answer in answers] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]

    def test_epochs_and_roles(self, path: DataPath) -> None:
        path.change("foo", leader_epoch=3)
        for epoch, error in (
            (2, ErrorCode.FENCED_LEADER_EPOCH),
            (3, ErrorCode.NONE),
            (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            (answer,) = list_offsets(path, ("foo", 0, -1), current_leader_epoch=epoch)
            assert ErrorCode(answer.error_code) is error
        path.change("foo", leader=2, leader_epoch=4)
        (answer,) = list_offsets(path, ("foo", 0, -2))
        assert ErrorCode(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        (answer,) = list_offsets(path, ("foo", 0, -2), replica_id=-2)  # for debugging
        assert (ErrorCode(answer.error_code), answer.offset) == (ErrorCode.NONE, 0)

    def test_an_empty_log(self, path: DataPath) -> None:
        answers = [list_offsets(path, ("foo", 0, special))[0] for special in (-1, -2, -3, 0)]
        assert [(a.offset, a.leader_epoch) for a in answers] == [(0, 0), (0, 0), (-1, -1), (-1, -1)]

    def test_the_first_of_equal_timestamps_and_the_largest_out_of_order(
        self, path: DataPath
    ) -> None:
        for timestamp in (30, 10, 50, 50, 20):
            path.produce("foo", 0, batch(1, timestamp=timestamp))
        found = [list_offsets(path, ("foo", 0, time))[0] for time in (-3, 0, 11, 31, 50, 51)]
        assert [(a.offset, a.timestamp) for a in found] == [
            (2, 50),
            (0, 30),
            (0, 30),
            (2, 50),
            (2, 50),
            (-1, -1),
        ]


class TestOffsetForLeaderEpoch:
    def ask(
        self, path: DataPath, *asked: tuple[str, int, int, int], version: int = 4
    ) -> list[OffsetForLeaderEpochResponse.EpochEndOffset]:
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        request = OffsetForLeaderEpochRequest(
            topics=[
                topic(
                    topic=name,
                    partitions=[
                        topic.OffsetForLeaderPartition(
                            partition=index, current_leader_epoch=current, leader_epoch=epoch
                        )
                    ],
                )
                for name, index, current, epoch in asked
            ]
        )
        response = path.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
        codec = API[ApiKey.OFFSET_FOR_LEADER_EPOCH].response_codec(version)
        decoded: OffsetForLeaderEpochResponse = codec.decode(codec.encode(response))
        return [answer for topic in decoded.topics for answer in topic.partitions]

    @pytest.mark.parametrize("version", [2, 3, 4])
    def test_ends_of_epochs(self, path: DataPath, version: int) -> None:
        for epoch in (1, 3):
            path.produce("foo", 0, batch(10))
            path.change("foo", leader_epoch=epoch)
        path.produce("foo", 0, batch(5))
        answers = [
            self.ask(path, ("foo", 0, -1, epoch), version=version)[0] for epoch in range(-1, 5)
        ]
        assert [(a.error_code, a.leader_epoch, a.end_offset) for a in answers] == [
            (0, -1, -1),
            (0, 0, 10),
            (0, 1, 20),
            (0, 1, 20),
            (0, 3, 25),
            (0, -1, -1),
        ]

    def test_errors(self, path: DataPath) -> None:
        path.change("foo", leader_epoch=2)
        path.create("elsewhere", replicas=(2,), isr=(2,))
        answers = self.ask(
            path,
            ("foo", 0, 1, 0),
            ("foo", 0, 3, 0),
            ("foo", 9, -1, 0),
            ("nope", 0, -1, 0),
            ("elsewhere", 0, -1, 0),
        )
        assert [ErrorCode(answer.error_code) for answer in answers] == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert {(answer.leader_epoch, answer.end_offset) for answer in answers} == {(-1, -1)}
        assert [answer.partition for answer in answers] == [0, 0, 9, 0, 0]


class TestDeleteRecords:
    def delete(self, path: DataPath, *asked: tuple[str, int, int]) -> Any:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        request = DeleteRecordsRequest(
            timeout_ms=100,
            topics=[
                topic(
                    name=name,
                    partitions=[topic.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
                for name, index, offset in asked
            ],
        )
        response = path.call(ApiKey.DELETE_RECORDS, 2, request)
        return None if response is None else results(response)

    def test_offsets(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(5))
        assert self.delete(path, ("foo", 0, 2)) == [(ErrorCode.NONE, 2)]
        assert self.delete(path, ("foo", 0, 1)) == [(ErrorCode.NONE, 2)]  # never back
        assert self.delete(path, ("foo", 0, 6)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert self.delete(path, ("foo", 0, -2)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
        assert self.delete(path, ("foo", 0, -1)) == [(ErrorCode.NONE, 5)]

    def test_refusals_in_order(self, path: DataPath) -> None:
        path.create("keys", configs={"cleanup.policy": "compact"})
        path.create("__consumer_offsets")
        path.create("elsewhere", replicas=(2,), isr=(2,))
        assert self.delete(
            path,
            ("keys", 0, 0),
            ("__consumer_offsets", 0, 0),
            ("__consumer_offsets", 9, 0),
            ("elsewhere", 0, 0),
            ("nope", 0, 0),
            ("foo", 7, 0),
        ) == [
            (ErrorCode.POLICY_VIOLATION, -1),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_every_version_on_the_wire(self, path: DataPath, version: int) -> None:
        path.produce("foo", 0, batch(5))
        codec = API[ApiKey.DELETE_RECORDS].request_codec(version)
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        request = DeleteRecordsRequest(
            topics=[topic(name="foo", partitions=[topic.DeleteRecordsPartition(offset=3)])]
        )
        response = path.call(ApiKey.DELETE_RECORDS, version, codec.decode(codec.encode(request)))
        codec = API[ApiKey.DELETE_RECORDS].response_codec(version)
        assert results(codec.decode(codec.encode(response))) == [(ErrorCode.NONE, 3)]

    def test_records_below_are_gone_for_readers(self, path: DataPath) -> None:
        path.produce("foo", 0, batch(5))
        self.delete(path, ("foo", 0, 2))
        response = path.fetch(("foo", 0, 1))
        assert response is not None
        error = response.responses[0].partitions[0].error_code
        assert error == ErrorCode.OFFSET_OUT_OF_RANGE


def results(response: DeleteRecordsResponse) -> list[tuple[ErrorCode, int]]:
    return [
        (ErrorCode(answer.error_code), answer.low_watermark)
        for topic in response.topics
        for answer in topic.partitions
    ]
