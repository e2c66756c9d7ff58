"""Plans and reads of a real broker's topics: the same records as a consumer gets, from the tier."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import shutil
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow", reason="the spark extra is not installed")

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from support.history import broker, create_tiered, produce, wait_until_remote
from tidelog_pipeline.history import DataLossError, HistoryOptions, columns_of, plan, read_split
from tidelog_pipeline.history.client import UnknownTopicError

if TYPE_CHECKING:
    from pathlib import Path

COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def servers(store):
    with broker(str(store)) as servers:
        yield servers


@pytest.fixture
def topic(servers):
    """Creates a tiered topic of tiny segments; call it for a fresh name."""
    return functools.partial(create_tiered, servers)


def planned(servers: str, topic: str, **given: str):
    options = HistoryOptions.parse(
        {"kafka.bootstrap.servers": servers, "subscribe": topic, **given}
    )
    return (*plan(options), columns_of(options))


def rows(servers: str, topic: str, **given: str) -> list[dict]:
    splits, settings, columns = planned(servers, topic, **given)
    batches = [each for split in splits for each in read_split(split, settings, columns)]
    return [row for batch in batches for row in batch.to_pylist()]


def consumed(servers: str, topic: str, partitions: int, isolation: str) -> list[tuple]:
    """(partition, offset, key, value) as a consumer reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    found, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            where = message.partition(), message.offset()
            found.append((*where, message.key(), message.value()))
    consumer.close()
    return sorted(found)


def shown(found: list[dict]) -> list[tuple]:
    return sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in found)


def test_rows_are_a_consumers_with_and_without_aborted_transactions(servers: str, topic) -> None:
    name = topic(2)
    numbers = itertools.count()
    producers = [
        Producer({"bootstrap.servers": servers, "transactional.id": f"{name}-{n}", "linger.ms": 0})
        for n in range(2)
    ]
    for one in producers:
        one.init_transactions(30)
    for turn in range(24):
        one = producers[turn % 2]
        # The second producer's transactions stay open over several of the first one's.
        if turn % 2 == 0 or turn % 8 == 1:
            one.begin_transaction()
        for number in itertools.islice(numbers, 30):
            one.produce(name, b"%d " % number + bytes(300), partition=number % 2)
        one.flush()
        if turn % 2 == 0 or turn % 8 == 7:
            if turn % 3:
                one.abort_transaction(30)
            else:
                one.commit_transaction(30)
    wait_until_remote(servers, name)
    splits, _, _ = planned(servers, name)
    assert sum(piece.part is not None for split in splits for piece in split.pieces) > 6
    for isolation in ("read_uncommitted", "read_committed"):
        expected = consumed(servers, name, 2, isolation)
        for partitions in ("1", "9"):
            given = {"kafka.isolation.level": isolation, "minPartitions": partitions}
            assert shown(rows(servers, name, **given)) == expected
    producers[0].begin_transaction()
    producers[0].produce(name, b"open", partition=0)
    producers[0].flush()
    assert shown(rows(servers, name, **COMMITTED)) == expected
    producers[0].abort_transaction(30)


def test_offsets_and_times_choose_what_is_read(servers: str, topic) -> None:
    name = topic()
    produce(servers, name, range(300))
    wait_until_remote(servers, name)

    def offsets(**given: str) -> list[int]:
        return [row["offset"] for row in rows(servers, name, **given)]

    assert offsets() == list(range(300))
    given = {
        "startingOffsets": json.dumps({name: {"0": 17}}),
        "endingOffsets": json.dumps({name: {"0": 203}}),
    }
    assert offsets(**given) == list(range(17, 203))
    assert offsets(startingTimestamp="1100", endingTimestamp="1200") == list(range(100, 200))
    assert offsets(endingTimestamp="9999") == list(range(300))
    late = {"startingTimestamp": "9999"}
    assert offsets(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(ValueError, match="No offset matched from request of topic-partition"):
        offsets(**late)
    with pytest.raises(ValueError, match="you must specify all TopicPartitions"):
        offsets(startingOffsets='{"other":{"0":1}}')


def test_topics_by_pattern_and_partitions_by_hand(servers: str, topic) -> None:
    name = topic(2)
    produce(servers, name, range(40))
    base = {"kafka.bootstrap.servers": servers}
    by_pattern = HistoryOptions.parse({**base, "subscribePattern": f"{name}|__[ct].*"})
    assert {split.topic for split in plan(by_pattern)[0]} == {name}
    by_hand = HistoryOptions.parse({**base, "assign": json.dumps({name: [1]})})
    assert [split.partition for split in plan(by_hand)[0]] == [1]
    for wrong in ({"subscribe": "none"}, {"assign": json.dumps({name: [7]})}):
        with pytest.raises(UnknownTopicError):
            plan(HistoryOptions.parse({**base, **wrong}))


def test_compacted_topics_come_from_the_brokers_with_their_gaps(servers: str, topic) -> None:
    name = topic(
        remote_storage_enable="false", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01"
    )
    produce(servers, name, [n for n in range(500) if n % 5])  # each with a key
    end = time.perf_counter() + 60
    while len(consumed(servers, name, 1, "read_uncommitted")) == 400:
        assert time.perf_counter() < end
        time.sleep(0.2)
    assert shown(rows(servers, name)) == consumed(servers, name, 1, "read_uncommitted")


def test_deleted_records_fail_or_are_skipped_as_asked(servers: str, topic) -> None:
    name = topic()
    produce(servers, name, range(300))
    wait_until_remote(servers, name)
    splits, settings, columns = planned(servers, name)
    lenient = planned(servers, name, failOnDataLoss="false")[1]
    delete_records(servers, name, 120)
    deadline = time.perf_counter() + 60
    while True:  # the expiration deletes segments one after the other
        batches = list(read_split(splits[0], lenient, columns))
        got = pa.Table.from_batches(batches)["offset"].to_pylist()
        assert got == list(range(got[0], 300))
        if got[0]:
            break
        assert time.perf_counter() < deadline
        time.sleep(0.1)
    with pytest.raises(DataLossError, match="Some data may have been lost"):
        list(read_split(splits[0], settings, columns))
    stale = {"startingOffsets": json.dumps({name: {"0": 5}})}
    with pytest.raises(DataLossError, match=r"Cannot fetch offsets \[5, 300\)"):
        planned(servers, name, **stale)
    assert rows(servers, name, **stale, failOnDataLoss="false")[0]["offset"] == 120


def delete_records(servers: str, topic: str, before: int) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
    from aiokafka.structs import TopicPartition as Partition

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.delete_records({Partition(topic, 0): RecordsToDelete(before_offset=before)})
        await admin.close()

    asyncio.run(delete())


def test_a_segment_that_the_store_lost_is_an_error(servers: str, topic, store: Path) -> None:
    name = topic()
    produce(servers, name, range(200))
    wait_until_remote(servers, name)
    splits, settings, columns = planned(servers, name, failOnDataLoss="false")
    (folder,) = store.glob(f"**/{name}-0-*")
    shutil.rmtree(folder)
    with pytest.raises(Exception, match=r"No such|there is no|not found"):
        list(read_split(splits[0], settings, columns))
