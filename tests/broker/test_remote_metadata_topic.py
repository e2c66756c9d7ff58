"""RemoteLogMetadata in a topic: who is ready when, what counts, what a restart reads."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters import until
from support.remote_topic import MemoryClient, MemoryTopic
from tidelog.remote.metadata_files import MetadataFiles
from tidelog.remote.metadata_topic import TopicBasedMetadata
from tidelog.runtime import AwaitedFiles
from tidelog_protocol.errors import ErrorCode
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteResourceNotFound,
    RemoteSegment,
    RemoteStorageNotReady,
    RetriableRemoteStorageError,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tidelog_storage.remote.metadata_records import encode, metadata_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

STARTED, FINISHED, DELETING, DELETED = SegmentState
COUNT = 4
SETTINGS = {
    "remote.log.metadata.topic.num.partitions": str(COUNT),
    "remote.log.metadata.topic.replication.factor": "1",
    "remote.log.metadata.consume.wait.ms": "60000",
    "remote.log.metadata.initialization.retry.interval.ms": "1",
    "remote.log.metadata.initialization.retry.max.timeout.ms": "200",
}


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(250):
            await test()

    asyncio.run(bounded())


def partition(number: int, topic: str = "t") -> TopicIdPartition:
    return TopicIdPartition(f"topic-id-of-{topic:4}".encode(), topic, number)


def index_of(one: TopicIdPartition) -> int:
    return metadata_partition(one.topic_id, one.partition, COUNT)


P0 = partition(0)
SAME = next(partition(n) for n in range(1, 99) if index_of(partition(n)) == index_of(P0))
OTHER = next(partition(n) for n in range(1, 99) if index_of(partition(n)) != index_of(P0))


def segment(one: TopicIdPartition, number: int, start: int = 0, end: int = 9) -> RemoteSegment:
    return RemoteSegment(
        partition=one,
        segment_id=number.to_bytes(16, "big"),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp=5,
        event_timestamp=6,
        epochs=((0, start),),
        size=100,
        state=STARTED,
    )


def update(one: TopicIdPartition, number: int, state: SegmentState) -> SegmentUpdate:
    return SegmentUpdate(one, number.to_bytes(16, "big"), 1, 7, state)


class Broker:
    """One broker's manager of remote metadata."""

    def __init__(
        self, topic: MemoryTopic, folder: Path | None = None, *, far: bool = False
    ) -> None:
        self.client = MemoryClient(topic, far=far)
        self.failures: list[str] = []
        files = None if folder is None else MetadataFiles(AwaitedFiles(syncs=False), str(folder))
        self.metadata = TopicBasedMetadata(
            self.client,
            topic.create,
            on_failure=lambda error: self.failures.append(str(error)),
            files=files,
        )
        self.metadata.configure(SETTINGS)

    async def lead(self, *partitions: TopicIdPartition) -> None:
        self.metadata.on_leadership_changes(set(partitions), set())
        for one in partitions:
            await self.ready(one)

    async def ready(self, one: TopicIdPartition) -> None:
        await until(lambda: self.metadata.is_ready(one), f"{one} is ready")

    async def copy(self, one: TopicIdPartition, number: int, start: int = 0, end: int = 9) -> None:
        await self.metadata.add(segment(one, number, start, end))
        await self.metadata.update(update(one, number, FINISHED))

    def ids(self, one: TopicIdPartition) -> list[int]:
        return [int.from_bytes(each.segment_id, "big") for each in self.metadata.segments(one)]

    async def stop(self) -> None:
        await self.metadata.stop()
        self.metadata.close()
        assert self.client.is_closed
        assert len(self.client.fetch_purgatory) == 0


@pytest.mark.parametrize("far", [False, True])
def test_the_topic_is_created_by_the_first_partition_and_shared_by_brokers(*, far: bool) -> None:
    async def test() -> None:
        topic = MemoryTopic()
        leader, follower = Broker(topic, far=far), Broker(topic, far=far)
        assert not topic.created
        with pytest.raises(RemoteStorageNotReady):
            leader.metadata.segments(P0)
        await leader.lead(P0)
        (created,) = topic.created
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
        assert follower.metadata.segment_for(P0, 0, 5) == found
        assert follower.metadata.highest_offset(P0, 0) == 9
        assert follower.metadata.size(P0, 0) == 100
        await leader.copy(P0, 2, 10, 19)
        await until(lambda: follower.metadata.highest_offset(P0, 0) == 19)
        for broker in (leader, follower):
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


def test_end_offsets_are_asked_until_they_are_told() -> None:
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


# -- restarts --------------------------------------------------------------------------------------


def test_a_restart_reads_only_what_is_new(tmp_path: Path) -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        await broker.lead(P0, SAME, OTHER)
        for number in range(10):
            await broker.copy(P0, number, 10 * number, 10 * number + 9)
        await broker.copy(SAME, 50)
        await broker.metadata.update(update(P0, 3, DELETING))
        await broker.metadata.update(update(P0, 0, DELETING))
        await broker.metadata.update(update(P0, 0, DELETED))
        marked = PartitionDeleteState.DELETE_PARTITION_MARKED
        await broker.metadata.put_partition_delete(PartitionDelete(OTHER, 1, 8, marked))
        known = broker.metadata.segments(P0)
        await broker.stop()
        topic.append(index_of(P0), encode(segment(P0, 77, 200, 209)))

        again = Broker(topic, tmp_path)
        await again.lead(P0, SAME, OTHER)
        assert again.metadata.segments(P0)[:-1] == known
        assert again.ids(P0)[-1] == 77
        assert again.ids(SAME) == [50]
        assert again.metadata.segment_for(P0, 0, 35) is None
        assert again.metadata.segment_for(P0, 0, 45) == known[3]
        assert again.metadata.highest_offset(P0, 0) == 99
        end = len(topic.partitions[index_of(P0)])
        assert set(again.client.reads) == {(index_of(P0), end - 1)}, "one record, and nothing else"
        begun = PartitionDeleteState.DELETE_PARTITION_STARTED
        await again.metadata.put_partition_delete(PartitionDelete(OTHER, 1, 8, begun))
        await again.stop()

    run(test)


def test_there_is_a_file_before_anything_is_remote(tmp_path: Path) -> None:
    """A broker that dies at once and comes back when the topic is deleted knows what it had."""

    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        files = MetadataFiles(AwaitedFiles(syncs=False), str(tmp_path))
        await broker.lead(P0, SAME)
        assert await files.partitions(()) == []
        await broker.metadata.add(segment(P0, 1))
        assert await files.partitions(()) == [P0]
        assert await files.partitions((P0.topic_id,)) == []
        await broker.metadata.stop(saves=False)  # it dies
        broker.metadata.close()
        again = Broker(topic, tmp_path)
        await again.lead(P0)
        assert again.ids(P0) == [1]
        await again.stop()

    run(test)


def test_committed_offsets_are_as_apache_kafka_wrote_them(tmp_path: Path) -> None:
    """A checkpoint: version, count, then a metadata partition and its offset in each line."""

    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        await broker.lead(P0, OTHER)
        await broker.copy(P0, 1)
        await broker.copy(OTHER, 2)
        await broker.copy(OTHER, 3, 10, 19)
        await broker.stop()
        ends = {index_of(P0): 2, index_of(OTHER): 4}
        lines = "".join(f"{index} {ends[index]}\n" for index in sorted(ends))
        committed = tmp_path / "_rlmm_committed_offsets"
        assert committed.read_text() == f"0\n2\n{lines}"

        files = MetadataFiles(AwaitedFiles(syncs=False), str(tmp_path))
        assert await files.committed(topic.topic_id) == ends
        assert await files.committed(b"metadata-topic-2") == {}
        await files.save(b"metadata-topic-2", [], [P0], {})
        assert await files.committed(topic.topic_id) == {}
        assert await files.committed(b"metadata-topic-2") == {}

    run(test)


def test_files_of_partitions_that_left_are_dropped(tmp_path: Path) -> None:
    """Else they would miss what happens until the partition comes back."""

    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        await broker.lead(P0, SAME)
        await broker.copy(P0, 1)
        await broker.stop()
        assert len(os.listdir(tmp_path)) == 4
        second = Broker(topic, tmp_path)
        await second.lead(SAME)
        other = Broker(topic)
        await other.lead(P0)
        await other.copy(P0, 2, 10, 19)
        await until(lambda: second.metadata.is_ready(SAME))
        await second.copy(SAME, 3)
        await second.stop()
        assert len(os.listdir(tmp_path)) == 3
        third = Broker(topic, tmp_path)
        await third.lead(P0, SAME)
        assert third.ids(P0) == [1, 2]
        assert third.ids(SAME) == [3]
        for each in (other, third):
            await each.stop()

    run(test)


@pytest.mark.parametrize("damage", ["cut", "flipped", "other topic", "ahead", "empty", "committed"])
def test_files_that_cannot_be_right_are_left_out(tmp_path: Path, damage: str) -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic, tmp_path)
        await broker.lead(P0)
        await broker.copy(P0, 1)
        await broker.stop()
        (name,) = [name for name in os.listdir(tmp_path) if name.endswith(".snapshot")]
        snapshot = tmp_path / name
        data = snapshot.read_bytes()
        if damage == "cut":
            snapshot.write_bytes(data[:-5])
        elif damage == "flipped":
            snapshot.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
        elif damage == "empty":
            snapshot.write_bytes(b"")
        elif damage == "committed":
            (tmp_path / "_rlmm_committed_offsets").write_bytes(b"0\n7\nnonsense\n")
        else:  # the topic was deleted, and made anew or not
            topic.partitions = [[] for _ in range(COUNT)]
            if damage == "other topic":
                topic.topic_id = b"metadata-topic-2"
            topic.append(index_of(P0), encode(segment(P0, 2)))
        again = Broker(topic, tmp_path)
        await again.lead(P0)
        expected = [2] if damage in ("other topic", "ahead") else [1]
        assert again.ids(P0) == expected
        await again.stop()

    run(test)


def test_a_topic_cut_below_what_was_read_is_read_again() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        broker = Broker(topic)
        await broker.lead(P0)
        for number in range(5):
            await broker.copy(P0, number, 10 * number, 10 * number + 9)
        del topic.partitions[index_of(P0)][4:]
        broker.client.moved(index_of(P0))
        await until(lambda: broker.metadata.is_ready(P0) and len(broker.ids(P0)) == 2)
        await broker.copy(P0, 9, 90, 99)
        assert broker.ids(P0) == [0, 1, 9]
        await broker.stop()

    run(test)


def test_a_topic_that_begins_late_is_read_from_there() -> None:
    async def test() -> None:
        topic = MemoryTopic(COUNT)
        for number in range(5):
            topic.append(index_of(P0), encode(segment(P0, number)))
        topic.starts[index_of(P0)] = 3
        broker = Broker(topic)
        await broker.lead(P0)
        assert broker.ids(P0) == [3, 4]
        await broker.stop()

    run(test)
