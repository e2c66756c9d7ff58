"""The share coordinator over real logs: requests, commits, restarts, moves, snapshots, pruning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.share_broker import ShareBroker
from tidelog.cluster.metadata.image import SHARE_GROUP_STATE_TOPIC
from tidelog.coordinators.share.records import ShareRecord, Snapshot, Update, decode, encode
from tidelog.coordinators.share.values import (
    Deletion,
    Initialization,
    Outcome,
    Reading,
    SharePartition,
    StateBatch,
    StateOutcome,
    SummaryOutcome,
    Writing,
)
from tidelog.coordinators.share.wire import OPERATIONS, items_of, outcomes_of, request_of
from tidelog.replication.partition import Partition
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.groups import FindCoordinatorRequest

TOPIC_ID = b"a" * 16
BATCH = StateBatch(10, 19, 2, 1)
INITIALIZE, READ, WRITE, DELETE, SUMMARY = OPERATIONS
INTERVAL_MS = 300_000


def send(broker: ShareBroker, key: ApiKey, *items: Any, version: int | None = None) -> Any:
    message = request_of(OPERATIONS[key], "g", items)
    return broker.send(message, API[key].max_version if version is None else version)


def ask(broker: ShareBroker, key: ApiKey, *items: Any, version: int | None = None) -> list[Any]:
    answer = send(broker, key, *items, version=version).answer
    return outcomes_of(OPERATIONS[key], items, answer)


def begin(broker: ShareBroker, *partitions: int) -> None:
    items = [Initialization(TOPIC_ID, each, 1, 0) for each in partitions or (0,)]
    assert ask(broker, INITIALIZE, *items) == [Outcome()] * len(items)


def error_of(broker: ShareBroker, key: ApiKey, item: Any) -> tuple[ErrorCode, str | None]:
    [outcome] = ask(broker, key, item)
    return outcome[:2]


def index_of(broker: ShareBroker, partition: int = 0) -> int:
    key = SharePartition("g", TOPIC_ID, partition)
    return broker.share_states.coordinator.partition_for(key)


def log_of(broker: ShareBroker, index: int) -> Any:
    partition = broker.replica_manager.partition(SHARE_GROUP_STATE_TOPIC, index)
    assert isinstance(partition, Partition)
    return partition.log


def test_a_state_is_written_read_and_deleted() -> None:
    broker = ShareBroker()
    begin(broker, 0, 1, 2)
    items = [Writing(TOPIC_ID, each, 1, 1, 5 + each, 10, (BATCH,)) for each in range(3)]
    assert ask(broker, WRITE, *items) == [Outcome()] * 3
    assert ask(broker, READ, *[Reading(TOPIC_ID, each, 2) for each in range(3)]) == [
        StateOutcome(state_epoch=1, start_offset=5 + each, batches=(BATCH,)) for each in range(3)
    ]
    summary = SummaryOutcome(
        state_epoch=1, leader_epoch=2, start_offset=6, delivery_complete_count=10
    )
    assert ask(broker, SUMMARY, Reading(TOPIC_ID, 1)) == [summary]
    assert ask(broker, DELETE, Deletion(TOPIC_ID, 1)) == [Outcome()]
    assert ask(broker, SUMMARY, Reading(TOPIC_ID, 1))[0].start_offset == -1
    assert {index_of(broker, each) for each in range(3)} == {0, 1}, "both partitions are used"


def test_the_oldest_versions_have_no_complete_count() -> None:
    broker = ShareBroker()
    begin(broker)
    ask(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, 5, 10), version=0)
    [summary] = ask(broker, SUMMARY, Reading(TOPIC_ID, 0))
    assert (summary.start_offset, summary.delivery_complete_count) == (5, -1)
    ask(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, 5, 10), version=1)
    [summary] = ask(broker, SUMMARY, Reading(TOPIC_ID, 0), version=0)
    assert (summary.start_offset, summary.delivery_complete_count) == (5, -1)


def test_each_partition_has_its_own_error() -> None:
    broker = ShareBroker()
    begin(broker)
    outcomes = ask(
        broker,
        WRITE,
        Writing(TOPIC_ID, 0, 1, 1),
        Writing(TOPIC_ID, 1, 1, 1),
        Writing(b"?" * 16, 0, 1, 1),
        Writing(TOPIC_ID, -1, 1, 1),
    )
    assert outcomes == [
        Outcome(),
        Outcome(
            ErrorCode.INVALID_REQUEST,
            "Write operation on uninitialized share partition not allowed.",
        ),
        Outcome(
            ErrorCode.INVALID_REQUEST,
            "Write operation on uninitialized share partition not allowed.",
        ),
        Outcome(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."),
    ]
    for partition, topic_id in ((3, TOPIC_ID), (0, b"?" * 16)):
        code, message = error_of(broker, INITIALIZE, Initialization(topic_id, partition, 1))
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert message == "This server does not host this topic-partition."


@pytest.mark.parametrize("key", OPERATIONS)
def test_a_request_for_nothing_gets_an_empty_answer(key: ApiKey) -> None:
    broker = ShareBroker()
    operation = OPERATIONS[key]
    item = operation.item(TOPIC_ID, 0, *[0] * (len(operation.item._fields) - 2))
    if key is WRITE:
        item = item._replace(batches=())
    request = request_of(operation, "g", [item])
    assert items_of(operation, request) == [item]
    for change in ("group", "topics", "partitions"):
        request = request_of(operation, "" if change == "group" else "g", [item])
        if change == "topics":
            request.topics = []
        if change == "partitions":
            request.topics.append(type(request.topics[0])(topic_id=TOPIC_ID, partitions=[]))
        results = broker.ask(request, API[key].max_version).results
        assert bool(results) == (change == "partitions" and key is INITIALIZE), "as in Kafka"


def test_states_survive_a_restart() -> None:
    broker = ShareBroker()
    begin(broker, 0, 1)
    ask(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, 5, 10, (BATCH,)))
    ask(broker, READ, Reading(TOPIC_ID, 0, 7))
    ask(broker, DELETE, Deletion(TOPIC_ID, 1))
    broker.kill()
    [state] = ask(broker, READ, Reading(TOPIC_ID, 0))
    assert state == StateOutcome(state_epoch=1, start_offset=5, batches=(BATCH,))
    assert ask(broker, SUMMARY, Reading(TOPIC_ID, 1))[0].start_offset == -1
    code, _ = error_of(broker, WRITE, Writing(TOPIC_ID, 0, 1, 6))
    assert code is ErrorCode.FENCED_LEADER_EPOCH


def test_a_batch_that_ends_before_it_begins_is_not_loaded() -> None:
    """Kafka takes such a batch from a client. Merging it with another one never ended."""
    broker = ShareBroker()
    begin(broker)
    update = Update(0, 1, 5, 10, (StateBatch(30, 20, 0, 1), BATCH, StateBatch(15, 12, 0, 2)))
    record = encode(ShareRecord(SharePartition("g", TOPIC_ID, 0), update))
    topic = broker.share_states.coordinator.topic
    topic.append(index_of(broker), [record], leader_epoch=0, now_ms=0)
    broker.kill()
    [state] = ask(broker, READ, Reading(TOPIC_ID, 0))
    assert state == StateOutcome(state_epoch=1, start_offset=5, batches=(BATCH,))


def test_a_coordinator_that_moves_or_loads() -> None:
    broker = ShareBroker()
    begin(broker)
    broker.lead(leader=2, epoch=1)
    assert error_of(broker, READ, Reading(TOPIC_ID, 0)) == (
        ErrorCode.NOT_COORDINATOR,
        "Unable to read share group state: This is not the correct coordinator.",
    )
    broker.topics[SHARE_GROUP_STATE_TOPIC] = broker.topics[SHARE_GROUP_STATE_TOPIC]._replace(
        partitions=tuple(
            each._replace(leader=1, leader_epoch=2, partition_epoch=2, replicas=(1,), isr=(1,))
            for each in broker.topics[SHARE_GROUP_STATE_TOPIC].partitions
        )
    )
    broker.apply()
    assert error_of(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1)) == (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "Unable to write share group state: "
        "The coordinator is loading and hence can't process requests.",
    )
    broker.time.pass_()
    assert ask(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1)) == [Outcome()]
    broker.share_states.close()
    code, _ = error_of(broker, SUMMARY, Reading(TOPIC_ID, 0))
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_answer_waits_for_the_commit_and_so_do_later_reads() -> None:
    broker = ShareBroker()
    begin(broker)
    old = broker.topics[SHARE_GROUP_STATE_TOPIC]
    broker.topics[SHARE_GROUP_STATE_TOPIC] = old._replace(
        partitions=tuple(
            each._replace(partition_epoch=1, replicas=(1, 2), isr=(1, 2)) for each in old.partitions
        )
    )
    broker.apply()
    written = send(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, 5))
    read = send(broker, READ, Reading(TOPIC_ID, 0))
    summary = send(broker, SUMMARY, Reading(TOPIC_ID, 0))
    assert all(each.parked for each in (written, read, summary))
    broker.time.pass_(5.1)
    [outcome] = outcomes_of(OPERATIONS[WRITE], [Writing(TOPIC_ID, 0, 1, 1)], written.answer)
    assert outcome.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not read.parked
    assert not summary.parked


def test_states_of_a_deleted_topic_are_deleted() -> None:
    broker = ShareBroker(state_partitions=1)
    begin(broker)
    ask(broker, INITIALIZE, Initialization(b"b" * 16, 0, 1))
    del broker.topics["a"]
    broker.apply()
    shard = broker.share_states.coordinator.led.shards[0]
    assert len(shard) == 1
    broker.kill()
    assert len(broker.share_states.coordinator.led.shards[0]) == 1


def test_a_topic_that_is_deleted_during_a_load() -> None:
    broker = ShareBroker(state_partitions=1)
    begin(broker)
    broker.disk.kill()
    broker.time.heap.clear()
    broker.start()
    del broker.topics["a"]
    broker.apply()
    shard = broker.share_states.coordinator.led.shards[0]
    assert shard.is_loading
    broker.time.pass_()
    assert not shard.is_loading
    assert len(shard) == 0


def test_records_that_no_state_needs_are_pruned() -> None:
    broker = ShareBroker(
        state_partitions=1, share_coordinator_snapshot_update_records_per_snapshot="3"
    )
    begin(broker)
    for first in range(10, 70, 10):
        ask(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, batches=(StateBatch(first, first, 2, 1),)))
    log = log_of(broker, 0)
    assert log.log_start_offset == 0
    broker.time.pass_(INTERVAL_MS / 1000)
    assert log.log_start_offset == 4, "the second snapshot"
    [before] = ask(broker, READ, Reading(TOPIC_ID, 0))
    broker.kill()
    assert ask(broker, READ, Reading(TOPIC_ID, 0)) == [before]


def test_snapshots_that_are_not_committed_prune_nothing() -> None:
    broker = ShareBroker(
        state_partitions=1, share_coordinator_snapshot_update_records_per_snapshot="0"
    )
    begin(broker)
    old = broker.topics[SHARE_GROUP_STATE_TOPIC]
    broker.topics[SHARE_GROUP_STATE_TOPIC] = old._replace(
        partitions=tuple(
            each._replace(partition_epoch=1, replicas=(1, 2), isr=(1, 2)) for each in old.partitions
        )
    )
    broker.apply()
    send(broker, WRITE, Writing(TOPIC_ID, 0, 1, 1, 5))
    log = log_of(broker, 0)
    broker.share_states.coordinator.prune()
    broker.time.pass_(6)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 1, 2)


def test_a_cold_state_gets_a_snapshot_so_that_the_log_may_be_pruned() -> None:
    broker = ShareBroker(state_partitions=1)
    begin(broker, 0, 1)
    for partition in (0, 1):
        ask(broker, WRITE, Writing(TOPIC_ID, partition, 1, 1, 5))
    broker.time.pass_(2 * INTERVAL_MS / 1000)
    log = log_of(broker, 0)
    assert log.log_end_offset == 6, "two snapshots, once"
    assert log.log_start_offset == 4
    states = [
        decode(record.key, record.value)
        for chunk in broker.share_states.coordinator.topic.load(0)
        for _, record in chunk
    ]
    assert [type(each.value) for each in states if each is not None] == [Snapshot, Snapshot]


def test_many_records_are_written_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.coordinators.share.coordinator.BATCH_BYTES", 200)
    broker = ShareBroker(state_partitions=1)
    begin(broker, 0, 1, 2)
    broker.time.pass_(INTERVAL_MS / 1000)
    shard = broker.share_states.coordinator.led.shards[0]
    assert shard.end_offset == 6
    assert shard.redundant_offset == 3
    chunks = broker.share_states.coordinator.topic.load(0)
    headers = {header.base_offset for chunk in chunks for header, _ in chunk}
    assert headers >= {3, 4}
    broker.kill()
    assert len(broker.share_states.coordinator.led.shards[0]) == 3


def test_the_coordinator_of_a_share_partition_is_found() -> None:
    broker = ShareBroker()
    key = SharePartition("g:h", TOPIC_ID, 0).coordinator_key
    found = broker.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "g"]), 6)
    first, second = found.coordinators
    assert (first.error_code, first.key, first.node_id) == (0, key, 1)
    assert second.error_code == ErrorCode.INVALID_REQUEST
    for version in range(1, 6):
        request = FindCoordinatorRequest(key_type=2, key=key, coordinator_keys=[key])
        found = broker.ask(request, version)
        answer = found if version < 4 else found.coordinators[0]
        assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_the_topic_comes_with_the_first_key_of_a_share_partition() -> None:
    broker = ShareBroker(state_partitions=0)
    broker.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=["g", "g:x:0"]), 6)
    assert broker.created == []
    key = SharePartition("g", TOPIC_ID, 0).coordinator_key

    async def find() -> Any:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g", key])
        found = broker.send(request, 6)
        for _ in range(10):
            await asyncio.sleep(0)
        return found.answer

    refused, first = asyncio.run(find()).coordinators
    assert (refused.error_code, first.error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert broker.created == [SHARE_GROUP_STATE_TOPIC]


ID = "YWFhYWFhYWFhYWFhYWFhYQ"  # of TOPIC_ID


@pytest.mark.parametrize(
    "key",
    [
        *("", "g", f"{ID}:0", "g:x:0", f":{ID}:0", f" :{ID}:0"),
        *(f"g:{ID}:{partition}" for partition in ("x", " 1", "1_0", "+-1", 1 << 31)),
    ],
)
def test_other_texts_are_no_keys_of_share_partitions(key: str) -> None:
    assert SharePartition.of_coordinator_key(key) is None


@pytest.mark.parametrize(
    ("key", "group_id", "partition"),
    [(f"g:h:{ID}:3", "g:h", 3), (f"g::{ID}:0::", "g:", 0), (f"g:{ID}:-1", "g", -1)],
)
def test_keys_are_read_as_kafka_reads_them(key: str, group_id: str, partition: int) -> None:
    found = SharePartition.of_coordinator_key(key)
    assert found == SharePartition(group_id, TOPIC_ID, partition)
    assert found.coordinator_key == key.rstrip(":")
