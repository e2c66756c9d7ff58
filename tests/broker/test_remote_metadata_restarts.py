"""RemoteLogMetadata in a topic, after a restart: its files, and what is read again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.clusters import until
from support.remote_metadata import (
    COUNT,
    DELETED,
    DELETING,
    OTHER,
    P0,
    SAME,
    Broker,
    index_of,
    run,
    segment,
    update,
)
from support.remote_topic import MemoryTopic
from tidelog.runtime import AwaitedFiles
from tidelog.tiered.metadata.files import MetadataFiles
from tidelog_protocol.primitives import uuid_to_str
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
)
from tidelog_storage.remote.metadata_records import encode

if TYPE_CHECKING:
    from pathlib import Path


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
        assert await files.partitions((P0.topic_id.bytes,)) == []
        await broker.stop(saves=False)  # it dies
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


def test_it_keeps_what_else_is_in_the_log_directory_and_makes_no_folder(tmp_path: Path) -> None:
    """Apache Kafka does not start on a log directory with a folder that is no partition's."""

    async def test() -> None:
        (tmp_path / "orders-0").mkdir()
        (tmp_path / "meta.properties").write_text("version=1\n")
        (tmp_path / "_rlmm_gone.snapshot").write_text("")
        broker = Broker(MemoryTopic(COUNT), tmp_path)
        await broker.lead(P0)
        await broker.copy(P0, 1)
        await broker.stop()

    run(test)
    found = {each.name: each.is_dir() for each in tmp_path.iterdir()}
    assert [name for name, is_folder in found.items() if is_folder] == ["orders-0"]
    assert "meta.properties" in found
    assert {name for name in found if name.startswith("_rlmm_")} == {
        "_rlmm_committed_offsets",
        "_rlmm_topic_id",
        f"_rlmm_{uuid_to_str(P0.topic_id.bytes)}-0.snapshot",
    }


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
