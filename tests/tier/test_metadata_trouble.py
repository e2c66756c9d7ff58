"""A metadata topic that others have written into or that has no leader, on real brokers
(kafka-tests 4, point 9): what can't be read or can't be is passed over, in this life and the next;
while the leader is away known segments are read, nothing is copied, and nothing local is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from support.clusters import image_of, run, until
from support.remote_places import DirectoryPlace
from support.wire_client import WireClient
from tidelog_protocol.messages.data import ProduceRequest
from tidelog_protocol.records import Record, build_batch
from tidelog_storage.remote.api import (
    PartitionDelete,
    PartitionDeleteState,
    SegmentState,
    SegmentUpdate,
)
from tidelog_storage.remote.metadata_records import encode, metadata_partition
from tier.harness import TieredCluster, kv
from tier.reading import read

if TYPE_CHECKING:
    from pathlib import Path

METADATA = "__remote_log_metadata"
PARTITIONS = 5  # of the metadata topic, as the harness has it
_, FINISHED, _, DELETED = SegmentState


def cluster_in(folder: Path, **options: Any) -> TieredCluster:
    place = DirectoryPlace(folder / "tier")
    store = {"inner": "directory", **place.config}
    return TieredCluster(store, data_dir=folder / "data", **options)


async def publish(cluster: TieredCluster, index: int, *values: bytes) -> None:
    """As anybody may who is allowed to write into the topic."""
    async with await WireClient.connect(cluster.server(cluster.leader(METADATA, index))) as client:
        for value in values:
            batch = build_batch([Record(0, cluster.now_ms(), None, value)])
            partition = ProduceRequest.TopicProduceData.PartitionProduceData(
                index=index, records=batch
            )
            data = ProduceRequest.TopicProduceData(name=METADATA, partition_data=[partition])
            request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])
            answer = (await client.ask(request, 9)).responses[0].partition_responses[0]
            assert answer.error_code == 0


def test_unreadable_records_and_illegal_transitions_are_passed_over(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster_in(tmp_path) as cluster:
            await cluster.create("a", batches_per_segment=1)
            await cluster.produce("a", 0, kv(0, 1, 2))
            await cluster.expect_earliest_local("a", 0, 2)
            segment = cluster.finished("a", 0)[0]
            at = cluster.now_ms()

            def update(state: SegmentState, segment_id: UUID = segment.segment_id) -> bytes:
                return encode(SegmentUpdate(segment.topic_id_partition, segment_id, 1, at, state))

            finished = PartitionDeleteState.DELETE_PARTITION_FINISHED
            unreadable = [b"", b"\x01\x09\x00what is this", b"\x07", encode(segment) + b"!"]
            illegal = [
                update(DELETED),  # before it was begun
                update(FINISHED, UUID(bytes=b"nobody knows me!")),
                encode(segment),  # it cannot begin again
                encode(PartitionDelete(segment.topic_id_partition, 1, at, finished)),
            ]
            partition = segment.topic_id_partition
            index = metadata_partition(partition.topic_id, partition.partition, PARTITIONS)
            await publish(cluster, index, *unreadable, *illegal)
            await cluster.produce("a", 0, kv(3))
            await cluster.expect_earliest_local("a", 0, 3)  # the topic goes on behind them

            def metadata() -> Any:
                return cluster.node(0).server.tier.metadata

            assert (metadata().unreadable, metadata().illegal) == (4, 4)
            await cluster.node(0).kill()  # no file is written of what was read
            await cluster.start(0)
            await cluster.expect_leader("a", 0, 0)
            await until(lambda: metadata().is_ready(partition), "all is read again")
            assert (metadata().unreadable, metadata().illegal) == (4, 4)
            assert [one.start_offset for one in metadata().segments(partition)] == [0, 1, 2]
            await cluster.produce("a", 0, kv(4))
            await cluster.expect_earliest_local("a", 0, 4)
            found = await read(cluster, "a", 0, 0, 5)
            assert [one.value for one in found] == [b"v%d" % number for number in range(5)]

    run(test)


def _index_led_elsewhere(cluster: TieredCluster, topic: str) -> tuple[int, int]:
    """A partition of the topic, and the broker that leads its metadata and not it."""
    topic_id = UUID(bytes=cluster.topic_id(topic))
    count = len(image_of(cluster.node(0)).topics[topic].partitions)
    for index in range(count):
        keeper = cluster.leader(METADATA, metadata_partition(topic_id, index, PARTITIONS))
        if keeper not in (-1, cluster.leader(topic, index)):
            return index, keeper
    raise AssertionError("all is led by the same broker")


def test_the_leader_of_the_metadata_partition_is_gone(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        }
        async with cluster_in(tmp_path, brokers=3, settings=settings) as cluster:
            await cluster.create("a", [(0,), (1,), (2,)] * 3, batches_per_segment=1)
            await until(lambda: METADATA in image_of(cluster.node(0)).topics, "it is there")
            for index in range(PARTITIONS):
                await until(lambda index=index: cluster.leader(METADATA, index) >= 0)
            index, keeper = _index_led_elsewhere(cluster, "a")
            leader = cluster.leader("a", index)
            await cluster.produce("a", index, kv(0, 1, 2))
            await cluster.expect_earliest_local("a", index, 2)
            await cluster.node(keeper).kill()
            await cluster.produce("a", index, kv(3, 4))
            assert cluster.leader("a", index) == leader
            assert len(await read(cluster, "a", index, 0, 5)) == 5, "what is known is read"
            tier = cluster.node(leader).server.tier
            tiered = tier.partitions["a", index]
            await until(lambda: tiered.copier.copying, "a copy is tried")
            assert len(cluster.finished("a", index)) == 2, "it comes to no copy"
            held = cluster.partition(leader, "a", index).log
            assert held.local_log_start_offset == 2, "nothing local is deleted"
            await cluster.start(keeper)
            await cluster.expect_earliest_local("a", index, 4)
            found = await read(cluster, "a", index, 0, 5)
            assert [one.value for one in found] == [b"v%d" % number for number in range(5)]
            copied = [one.start_offset for one in cluster.finished("a", index)]
            assert sorted(copied) == [0, 1, 2, 3], "each once"

    run(test)
