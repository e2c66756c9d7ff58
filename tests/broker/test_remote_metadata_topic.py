"""RemoteLogMetadata in a topic: who is ready when, what counts, what a restart reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.clusters import until
from support.remote_metadata import (
    COUNT,
    DELETED,
    FINISHED,
    OTHER,
    P0,
    SAME,
    SETTINGS,
    STARTED,
    Broker,
    index_of,
    run,
    segment,
    update,
)
from support.remote_topic import MemoryClient, MemoryTopic
from tidelog.tiered.metadata import topic as metadata_topic
from tidelog.tiered.metadata.consumer import MetadataConsumer
from tidelog.tiered.metadata.settings import MetadataSettings, pause_s
from tidelog_protocol.errors import ErrorCode, ProtocolError
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteResourceNotFound,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    TopicIdPartition,
)
from tidelog_storage.remote.metadata_records import encode

if TYPE_CHECKING:
    from tidelog.tiered.metadata.client import Chunk


@pytest.mark.parametrize("far", [False, True])
def test_the_topic_is_created_by_the_first_broker_and_shared(*, far: bool) -> None:
    async def test() -> None:
        topic = MemoryTopic()
        leader = Broker(topic, far=far)
        await until(lambda: topic.created, "nobody is tracked")
        with pytest.raises(RemoteStorageNotReady):
            leader.metadata.segments(P0)
        await leader.lead(P0)
        (created,) = topic.created
        follower = Broker(topic, far=far)
        settings = {entry.name: entry.value for entry in created.configs}
        assert (created.num_partitions, created.replication_factor) == (COUNT, 1)
        assert settings["retention.ms"] == "-1"
        assert settings["min.insync.replicas"] == "2"
        assert settings["cleanup.policy"] == "delete"
        await leader.metadata.add(segment(P0, 1))
        assert leader.metadata.segment_for(P0, 0, 5) is None
        await leader.metadata.update(update(P0, 1, FINISHED))
        found = leader.metadata.segment_for(P0, 0, 5)
        assert found is not None
        assert found.state is FINISHED
        follower.metadata.on_leadership_changes(set(), {P0})
        await follower.ready(P0)
        assert len(topic.created) == 1
        assert follower.metadata.segment_for(P0, 0, 5) == found
        assert follower.metadata.highest_offset(P0, 0) == 9
        assert follower.metadata.size(P0, 0) == 100
        await leader.copy(P0, 2, 10, 19)
        await until(lambda: follower.metadata.highest_offset(P0, 0) == 19)
        for broker in (leader, follower):
            await broker.stop()

    run(test)


def test_the_topic_waits_for_as_many_brokers_as_it_has_replicas(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_topic, "SILENT_S", 0.01)

    async def test() -> None:
        topic = MemoryTopic()
        topic.broker_count = 0
        early = Broker(topic)
        await until(lambda: early.failures, "nobody came")
        key = "remote.log.metadata.topic.replication.factor"
        text = f"{key} is 1, brokers that are registered: 0"
        assert early.failures == [f"__remote_log_metadata was not created: {text}"]
        assert not topic.created
        told = [line for line in caplog.messages if text in line]
        assert told == [f"__remote_log_metadata is not created yet: {text}"]
        assert "without it the broker stops 0.2 s after its start" in caplog.messages
        late = Broker(topic)
        await asyncio.sleep(0)
        assert not topic.created
        topic.broker_count = 1
        await late.lead(P0)
        for broker in (early, late):
            await broker.stop()

    run(test)


def test_what_may_not_be_written_is_refused() -> None:
    async def test() -> None:
        broker = Broker(MemoryTopic(COUNT))
        metadata = broker.metadata
        await broker.lead(P0)
        await broker.copy(P0, 1)
        written = [len(each) for each in broker.client.topic.partitions]
        with pytest.raises(ValueError, match="COPY_SEGMENT_STARTED, not COPY_SEGMENT_FINISHED"):
            await metadata.add(replace(segment(P0, 3), state=FINISHED))
        with pytest.raises(ValueError, match="never COPY_SEGMENT_STARTED"):
            await metadata.update(update(P0, 1, STARTED))
        with pytest.raises(ValueError, match="FINISHED can't become DELETE_SEGMENT_FINISHED"):
            await metadata.update(update(P0, 1, DELETED))
        with pytest.raises(RemoteResourceNotFound):
            await metadata.update(update(P0, 2, FINISHED))
        with pytest.raises(RemoteStorageNotReady):
            await metadata.add(segment(OTHER, 1))
        assert [len(each) for each in broker.client.topic.partitions] == written
        marked, begun, gone = PartitionDeleteState
        with pytest.raises(ValueError, match="None can't become DELETE_PARTITION_STARTED"):
            await metadata.put_partition_delete(PartitionDelete(P0, 1, 8, begun))
        for state in (marked, marked, begun, gone):
            await metadata.put_partition_delete(PartitionDelete(P0, 1, 8, state))
        with pytest.raises(ValueError, match="can't become DELETE_PARTITION_MARKED"):
            await metadata.put_partition_delete(PartitionDelete(P0, 1, 8, marked))
        await broker.stop()

    run(test)


def test_unreadable_and_illegal_records_are_passed_over() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        index = index_of(P0)
        for value in (
            b"",
            None,
            b"\x01\x09\x00what is this",
            encode(update(P0, 1, FINISHED)),  # of nothing
            encode(segment(P0, 1)),
            encode(segment(P0, 1)) + b"!",
            encode(update(P0, 1, FINISHED)),
            encode(update(P0, 1, DELETED)),
        ):
            topic.append(index, value)
        broker = Broker(topic)
        await broker.lead(P0)
        assert broker.ids(P0) == [1]
        assert broker.metadata.segment_for(P0, 0, 0) is not None
        assert (broker.metadata.unreadable, broker.metadata.illegal) == (4, 2)
        await broker.stop()

    run(test)


def test_a_deletion_marked_by_two_brokers_is_no_illegal_record() -> None:
    """A replica marks what its leader has not marked in time, and the leader may be just ahead."""

    async def test() -> None:
        topic = MemoryTopic(COUNT)
        marked, begun, gone = PartitionDeleteState
        for state in (marked, begun, marked, gone, begun):
            topic.append(index_of(P0), encode(PartitionDelete(P0, 1, 8, state)))
        broker = Broker(topic)
        await broker.lead(P0)
        assert broker.metadata.delete_state(P0) is gone
        assert broker.metadata.illegal == 0
        await broker.stop()

    run(test)


def test_a_new_partition_is_read_from_the_start_and_disturbs_no_other() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        for number in range(8):
            topic.append(index_of(P0), encode(segment(P0 if number % 2 else SAME, number)))
        broker = Broker(topic)
        await broker.lead(P0)
        assert broker.ids(P0) == [1, 3, 5, 7]
        assert {index for index, _ in broker.client.reads} == {index_of(P0)}
        await broker.copy(P0, 9, 10, 19)
        with pytest.raises(RemoteStorageNotReady):
            broker.metadata.segments(SAME)
        await broker.lead(SAME)
        assert broker.ids(SAME) == [0, 2, 4, 6]
        assert broker.ids(P0) == [1, 3, 5, 7, 9]
        assert broker.metadata.illegal == 0, "nobody is told anything twice"
        broker.metadata.on_stop_partitions({P0})
        with pytest.raises(RemoteStorageNotReady):
            broker.metadata.segments(P0)
        await broker.copy(SAME, 10, 10, 19)
        broker.metadata.on_stop_partitions({SAME})
        reads = len(broker.client.reads)
        topic.append(index_of(P0), encode(segment(P0, 20)))
        await asyncio.sleep(0.05)
        assert len(broker.client.reads) == reads, "what nobody needs is not read"
        await broker.stop()

    run(test)


def test_a_leader_is_ready_when_it_knows_what_the_one_before_it_wrote() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        old, new = Broker(topic), Broker(topic)
        await old.lead(P0)
        new.metadata.on_leadership_changes(set(), {P0})
        await new.ready(P0)
        new.client.is_stuck = True
        await old.copy(P0, 1)
        ready: list[TopicIdPartition] = []
        new.metadata.on_ready = ready.append
        new.metadata.on_leadership_changes({P0}, set())
        await asyncio.sleep(0.05)
        assert not new.metadata.is_ready(P0)
        assert new.ids(P0) == [], "look-ups go on with what is known"
        assert not ready
        new.client.is_stuck = False
        new.client.moved(index_of(P0))
        await new.ready(P0)
        assert ready == [P0]
        assert new.ids(P0) == [1]
        for broker in (old, new):
            await broker.stop()

    run(test)


def test_failures_of_the_topic_are_retriable() -> None:
    async def test() -> None:
        broker = Broker(MemoryTopic(COUNT))
        await broker.lead(P0)
        broker.client.error = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(RetriableRemoteStorageError, match="NOT_ENOUGH_REPLICAS"):
            await broker.metadata.add(segment(P0, 1))
        broker.client.error = None
        broker.client.is_stuck = True
        broker.metadata.configure({**SETTINGS, "remote.log.metadata.consume.wait.ms": "30"})
        with pytest.raises(RetriableRemoteStorageError, match="was not read in time"):
            await broker.metadata.add(segment(P0, 1))
        broker.metadata.configure(SETTINGS)
        adding = asyncio.ensure_future(broker.metadata.add(segment(P0, 2)))
        await asyncio.sleep(0.01)
        broker.metadata.on_stop_partitions({P0})
        with pytest.raises(RemoteStorageNotReady):
            await adding
        await broker.stop()

    run(test)


def test_end_offsets_are_asked_until_they_are_known() -> None:
    async def test() -> None:
        broker = Broker(MemoryTopic(COUNT))
        broker.client.error = ErrorCode.OFFSET_NOT_AVAILABLE
        broker.metadata.on_leadership_changes({P0, OTHER}, set())
        await asyncio.sleep(0.05)
        assert not broker.metadata.is_ready(P0)
        broker.client.error = None
        await broker.ready(P0)
        await broker.ready(OTHER)
        await broker.stop()

    run(test)


def test_a_topic_that_cannot_be_had_stops_the_broker() -> None:
    async def test() -> None:
        broker = Broker(MemoryTopic(COUNT + 1))
        broker.metadata.on_image()
        (failure,) = broker.failures
        assert f"has {COUNT + 1} partitions" in failure
        assert "remote.log.metadata.topic.num.partitions is 4" in failure
        topic = MemoryTopic()
        topic.create_error = ErrorCode.INVALID_REPLICATION_FACTOR
        other = Broker(topic)
        other.metadata.on_image()
        other.metadata.on_leadership_changes({P0}, set())
        await until(lambda: other.failures)
        assert "INVALID_REPLICATION_FACTOR" in other.failures[0]
        assert len(topic.created) > 1
        for each in (broker, other):
            await each.stop()

    run(test)


class Taken:
    """A sink that notes what it was given."""

    def __init__(self) -> None:
        self.values: list[tuple[int, bytes | None]] = []

    def took(self, index: int, chunk: Chunk) -> None:
        self.values += [(index, value) for _, value in chunk.records]

    def lost(self, index: int) -> None:
        raise AssertionError(f"{index} has lost nothing")


@pytest.mark.parametrize("turns", range(4))
def test_a_partition_that_leaves_as_its_fetch_begins_holds_up_no_other(turns: int) -> None:
    """Its task died of a KeyError, and nothing was read from that leader any more: a topic that was
    disabled, purged and enabled again (KIP-950) was not copied before the broker was restarted."""

    async def test() -> None:
        topic, taken = MemoryTopic(4), Taken()
        client = MemoryClient(topic, far=True)
        consumer = MetadataConsumer(client, taken.took, taken.lost)
        for index in (0, 2):  # of one leader
            consumer.assign(index, 0)
        consumer.start()
        for _ in range(turns):  # up to the reader's first look, and a little further
            await asyncio.sleep(0)
        consumer.unassign(0)
        topic.append(2, b"read")
        await until(lambda: taken.values == [(2, b"read")])
        topic.append(0, b"again")
        consumer.assign(0, 0)
        await until(lambda: taken.values[1:] == [(0, b"again")])
        await consumer.stop()

    run(test)


def test_a_damaged_partition_holds_up_no_other() -> None:
    class Damaged(MemoryClient):
        def read_here(self, index: int, offset: int) -> Chunk | None:
            if index == 0:
                raise ProtocolError("record batch magic 0 at 0")
            return super().read_here(index, offset)

    async def test() -> None:
        topic, taken = MemoryTopic(2), Taken()
        consumer = MetadataConsumer(Damaged(topic), taken.took, taken.lost)
        consumer.start()
        for index in (0, 1):
            consumer.assign(index, 0)
            topic.append(index, b"read")
        await until(lambda: taken.values == [(1, b"read")])
        await consumer.stop()

    run(test)


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "0", "would keep nothing"),
        ("retention.ms", "-2", "is below -1"),
        ("num.partitions", "2147483648", "is above 2147483647"),
        ("replication.factor", "32768", "is above 32767"),
    ],
)
def test_settings_that_cannot_be_name_their_key(key: str, text: str, reason: str) -> None:
    key = f"remote.log.metadata.topic.{key}"
    with pytest.raises(ValueError, match=f"^{key}: {text} {reason}"):
        MetadataSettings.of({key: text})
    assert MetadataSettings.of({"remote.log.metadata.topic.retention.ms": "-1"}).retention_ms == -1


def test_nothing_is_asked_for_without_a_pause() -> None:
    name = "remote.log.metadata.initialization.retry.interval.ms"
    assert pause_s(MetadataSettings.of({name: "0"}).retry_ms) > 0
    assert pause_s(MetadataSettings.of({name: "250"}).retry_ms) == 0.25


def test_the_topic_is_asked_for_once_whatever_the_time() -> None:
    async def test() -> None:
        broker = Broker(MemoryTopic())
        name = "remote.log.metadata.initialization.retry.max.timeout.ms"
        broker.metadata.configure({**SETTINGS, name: "0"})
        await broker.lead(P0)
        assert not broker.failures
        await broker.stop()

    run(test)
