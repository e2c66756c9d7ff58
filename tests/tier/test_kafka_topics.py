"""Behaviours of Apache Kafka's tiered-storage integration tests: topics as administrators change
them (kafka-tests 2.4 to 2.7, 2.10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.clusters import run
from tier import admin
from tier.harness import TieredCluster, kv

if TYPE_CHECKING:
    from support.remote_places import DirectoryPlace, S3Place

BOTH = (0, 1)


def test_segments_below_the_log_start_go_whoever_wrote_them(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [BOTH], batches_per_segment=2)
            await cluster.expect_leader("topicA", 0, 0)
            await cluster.produce("topicA", 0, kv(0, 1, 2, 3, 4))
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0, 1))
            await cluster.expect_offloaded(0, "topicA", 0, 2, kv(2, 3))
            await cluster.expect_earliest_local("topicA", 0, 4)
            await cluster.delete_records("topicA", 0, 3)
            await cluster.expect_deletions(0, "topicA", 0, 1)
            await cluster.expect_first_epoch(0, "topicA", 0, 0, 3)
            before = cluster.fetch_counts(0, "topicA", 0)[0]
            await cluster.consume("topicA", 0, 3, 2, 1)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == before + 1
            await cluster.reassign("topicA", 0, [1, 0])
            await cluster.expect_leader("topicA", 0, 1, elect=True)
            await cluster.produce("topicA", 0, kv(5, 6, 7, 8, 9))
            await cluster.expect_offloaded(1, "topicA", 0, 4, kv(4, 5))
            await cluster.expect_offloaded(1, "topicA", 0, 6, kv(6, 7))
            await cluster.expect_earliest_local("topicA", 0, 8)
            await cluster.delete_records("topicA", 0, 7)
            await cluster.expect_deletions(1, "topicA", 0, 2)
            before = cluster.fetch_counts(1, "topicA", 0)[0]
            await cluster.consume("topicA", 0, 7, 3, 1)
            assert cluster.fetch_counts(1, "topicA", 0)[0] == before + 1

    run(test)


def test_nothing_is_left_of_a_deleted_topic(
    store: dict[str, str], place: DirectoryPlace | S3Place
) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [(0, 1), (1, 0)], batches_per_segment=1)
            for index in range(2):
                await cluster.expect_leader("topicA", index, index)
                await cluster.produce("topicA", index, kv(0, 1, 2))
                await cluster.expect_offloaded(index, "topicA", index, 0, kv(0))
                await cluster.expect_offloaded(index, "topicA", index, 1, kv(1))
                await cluster.expect_earliest_local("topicA", index, 2)
            await admin.delete_topic(cluster.server(), "topicA")
            for index in range(2):
                await cluster.expect_deletions(index, "topicA", index, 2)
            assert place.names() == []

    run(test)


def test_copying_is_switched_off_and_on_and_the_tier_left(
    store: dict[str, str], place: DirectoryPlace | S3Place
) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [BOTH], batches_per_segment=1)
            await cluster.expect_leader("topicA", 0, 0)
            await cluster.produce("topicA", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0))
            await cluster.expect_offloaded(0, "topicA", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicA", 0, 2)
            no_copies = {
                "remote.log.copy.disable": "true",
                "local.retention.bytes": "-2",
                "local.retention.ms": "-2",
            }
            await cluster.alter("topicA", no_copies)
            before = cluster.fetch_counts(0, "topicA", 0)[0]
            await cluster.consume("topicA", 0, 0, 3, 2)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == before + 2
            await cluster.alter(
                "topicA", {"remote.log.copy.disable": "false", "local.retention.bytes": "1"}
            )
            await cluster.produce("topicA", 0, kv(3))
            await cluster.expect_earliest_local("topicA", 0, 3)
            await cluster.alter("topicA", no_copies)
            await cluster.consume("topicA", 0, 0, 4, 3)
            await cluster.delete_records("topicA", 0, 1)
            await cluster.expect_deletions(0, "topicA", 0, 1)
            await cluster.alter(
                "topicA",
                {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
            )
            await cluster.expect_deletions(0, "topicA", 0, 3)
            assert place.names() == []
            await cluster.consume("topicA", 0, 3, 1, 0)

    run(test)


def test_a_topic_joins_the_tier(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [(0, 1), (1, 0)], batches_per_segment=1, tiered=False)
            for index in range(2):
                await cluster.expect_leader("topicA", index, index)
                await cluster.produce("topicA", index, kv(0, 1, 2))
                await cluster.expect_earliest_local("topicA", index, 0)
            await cluster.alter(
                "topicA", {"remote.storage.enable": "true", "local.retention.bytes": "1"}
            )
            for index in range(2):
                await cluster.produce("topicA", index, kv(3, 4))
                await cluster.expect_offloaded(index, "topicA", index, 3, kv(3))
                await cluster.expect_earliest_local("topicA", index, 4)
                before = cluster.fetch_counts(index, "topicA", index)[0]
                await cluster.consume("topicA", index, 0, 5, 4)
                assert cluster.fetch_counts(index, "topicA", index)[0] == before + 4

    run(test)


def test_new_partitions_are_tiered_as_well(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [BOTH], batches_per_segment=1)
            await cluster.expect_leader("topicA", 0, 0)
            await cluster.produce("topicA", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0))
            await cluster.expect_offloaded(0, "topicA", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicA", 0, 2)
            await admin.add_partitions(cluster.server(), "topicA", 3, [[1, 2], [2, 1]])
            before = cluster.fetch_counts(0, "topicA", 0)[0]
            await cluster.consume("topicA", 0, 0, 3, 2)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == before + 2
            for index, leader in ((1, 0), (2, 1)):
                await cluster.expect_leader("topicA", index, leader)
                await cluster.produce("topicA", index, kv(0, 1, 2))
                await cluster.expect_offloaded(leader, "topicA", index, 0, kv(0))
                await cluster.expect_offloaded(leader, "topicA", index, 1, kv(1))
                await cluster.expect_earliest_local("topicA", index, 2)
            await cluster.produce("topicA", 0, kv(3, 4, 5))
            await cluster.expect_offloaded(0, "topicA", 0, 3, kv(3))
            await cluster.expect_offloaded(0, "topicA", 0, 4, kv(4))
            await cluster.expect_earliest_local("topicA", 0, 5)
            await cluster.consume("topicA", 0, 0, 6, 5)
            await cluster.consume("topicA", 1, 0, 3, 2)
            before = cluster.fetch_counts(1, "topicA", 2)[0]
            await cluster.consume("topicA", 2, 1, 2, 1)
            assert cluster.fetch_counts(1, "topicA", 2)[0] == before + 1

    run(test)
