"""A lane of a replay, without Spark: transactions, fencing, partitions of keys."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.history import broker, consumed, create_tiered, produce
from tidelog_pipeline.operations import OperationError, Source
from tidelog_pipeline.operations.lanes import (
    Lane,
    LaneRows,
    Row,
    Target,
    partition_of_key,
    replay_lane,
)
from tidelog_pipeline.operations.writer import Writer, committed_offset
from tidelog_protocol.records import Record


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def rows(count: int):
    """Every third record has headers; there are keys and values that are null."""

    def row(number: int) -> Row:
        key = None if number % 5 == 0 else b"k%d" % (number % 7)
        value = None if number % 11 == 0 else b"%d" % number
        headers = (("h", b"1"), ("n", None)) if number % 3 == 0 else ()
        return Row(0, number, 1000 + number, key, value, headers)

    def read(start: int) -> list[Row]:
        return [row(number) for number in range(start, count)]

    return read


class KilledError(Exception):
    """The task ended here."""


def ending(whole, counter):
    """A method whose task ends once the counter is used up."""

    def call(*arguments):
        if next(counter, None) is None:
            raise KilledError
        return whole(*arguments)

    return call


def test_a_lane_that_is_killed_anywhere_writes_each_record_once(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_tiered(servers, remote_storage_enable="false")
    target = Target(Source(servers, topic), 1, keeps_partitions=True, batch_bytes=400)
    monkeypatch.setattr("tidelog_pipeline.operations.lanes.TRANSACTION_BYTES", 1500)
    lane = Lane(f"{topic}-0", 0, 3, 200)
    steps = ["write", "commit", "_add_partition", "_on_coordinator"]
    killed = 0
    for left in range(3, 99, 2):
        counter = iter(range(left))
        with monkeypatch.context() as patch:
            for name in steps:
                patch.setattr(Writer, name, ending(getattr(Writer, name), counter))
            try:
                replay_lane(lane, target, rows(200))
            except KilledError:
                killed += 1
            else:
                break
    assert killed > 3
    replay_lane(lane, target, rows(200))
    assert replay_lane(lane, target, rows(200)) == 0
    expected = [
        (0, row.timestamp, row.key, row.value, list(row.headers) or None) for row in rows(200)(3)
    ]
    assert consumed(servers, topic) == expected
    with target.source.connected() as client:
        assert committed_offset(client, topic, lane.name) == 200


def test_a_task_that_lives_on_is_fenced(servers: str) -> None:
    topic = create_tiered(servers, remote_storage_enable="false")
    with Source(servers, topic).connected() as old, Source(servers, topic).connected() as new:
        first = Writer(old, topic, topic)
        assert first.start() == -1
        first.write(0, [Record(0, 1000, b"k", b"lost")])
        second = Writer(new, topic, topic)
        second.start()
        with pytest.raises(OperationError, match="another run writes now"):
            first.write(0, [Record(0, 1000, b"k", b"late")])
        with pytest.raises(OperationError, match="another run writes now"):
            first.commit(5)
        second.write(0, [Record(0, 1000, b"k", b"kept")])
        second.commit(1)
    assert [each[3] for each in consumed(servers, topic)] == [b"kept"]


def test_a_topic_is_read_from_where_its_lane_ended(servers: str) -> None:
    source, topic = (create_tiered(servers, remote_storage_enable="false") for _ in range(2))
    produce(servers, source, range(40))
    target = Target(Source(servers, topic), 1, keeps_partitions=True, batch_bytes=10_000)
    for end, written in ((25, 25), (40, 15)):
        lane = Lane(f"{topic}-0", 0, 0, end)
        assert replay_lane(lane, target, LaneRows(Source(servers, source), lane)) == written
    assert consumed(servers, topic) == consumed(servers, source)


def test_keys_go_where_kafkas_producers_put_them() -> None:
    from aiokafka.partitioner import DefaultPartitioner

    choose = DefaultPartitioner()
    for length in range(40):
        key = bytes((7 * length + 13 * n) % 256 for n in range(length))
        assert partition_of_key(key, 50) == choose(key, list(range(50)), list(range(50)))
