"""Behaviours of Apache Kafka's tiered-storage integration tests: replicas come, go and lead
(kafka-tests 2.8, 2.9, 2.11, 2.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.clusters import run
from tier.harness import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, TieredCluster, kv

if TYPE_CHECKING:
    from pathlib import Path

BOTH = (0, 1)
TWO_METADATA_PARTITIONS = {"rlmm.config.remote.log.metadata.topic.num.partitions": "2"}


def test_lost_checkpoints_lose_nothing(store: dict[str, str], tmp_path: Path) -> None:
    async def test():
        async with TieredCluster(store, brokers=2, data_dir=tmp_path / "data") as cluster:
            await cluster.create("topicA", [BOTH], batches_per_segment=1)
            await cluster.expect_leader("topicA", 0, 0)
            await cluster.produce("topicA", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0))
            await cluster.expect_offloaded(0, "topicA", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicA", 0, 2)
            await cluster.consume("topicA", 0, 0, 3, 2)
            await cluster.cluster.stop()
            folder = tmp_path / "data" / "broker-1"
            for name in (
                "replication-offset-checkpoint",
                "recovery-point-offset-checkpoint",
                ".kafka_cleanshutdown",
            ):
                (folder / name).unlink()
            await cluster.cluster.start()
            await cluster.expect_leader("topicA", 0, 0, elect=True)
            await cluster.expect_goes_on(0, "topicA", 0, 3, 4)
            await cluster.expect_offloaded(0, "topicA", 0, 3, kv(3))

    run(test)


def test_list_offsets_across_the_tiers(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2) as cluster:
            await cluster.create("topicA", [BOTH], batches_per_segment=2)
            await cluster.expect_leader("topicA", 0, 0)
            ts = cluster.now_ms()
            await cluster.produce("topicA", 0, kv(0, 1, 2), timestamps=[ts, ts + 1, ts + 2])
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0, 1))
            await cluster.expect_earliest_local("topicA", 0, 2)
            await cluster.reassign("topicA", 0, [1, 0])
            await cluster.expect_leader("topicA", 0, 1, elect=True)
            await cluster.produce("topicA", 0, kv(3, 4, 5), timestamps=[ts + 3, ts + 4, ts + 5])
            await cluster.expect_offloaded(1, "topicA", 0, 2, kv(2, 3))
            await cluster.expect_earliest_local("topicA", 0, 4)
            for timestamp, expected in (
                (EARLIEST, (0, 0)),
                (EARLIEST_LOCAL, (1, 4)),
                (LATEST_TIERED, (1, 3)),
                (LATEST, (1, 6)),
                (ts + 6, (-1, -1)),
                (ts + 5, (1, 5)),
                (ts + 4, (1, 4)),
                (ts - 1, (0, 0)),
                (ts, (0, 0)),
                (ts + 1, (0, 1)),
                (ts + 3, (1, 3)),
            ):
                found = await cluster.list_offsets("topicA", 0, timestamp)
                assert found == expected, timestamp - ts
            await cluster.delete_records("topicA", 0, 3)
            await cluster.expect_deletions(1, "topicA", 0, 1)
            assert await cluster.list_offsets("topicA", 0, EARLIEST) == (1, 3)
            assert await cluster.list_offsets("topicA", 0, EARLIEST_LOCAL) == (1, 4)
            await cluster.delete_records("topicA", 0, 4)
            await cluster.expect_deletions(1, "topicA", 0, 2)
            assert await cluster.list_offsets("topicA", 0, EARLIEST) == (1, 4)
            assert await cluster.list_offsets("topicA", 0, EARLIEST_LOCAL) == (1, 4)
            assert await cluster.list_offsets("topicA", 0, LATEST_TIERED) == (-1, 3)
            assert await cluster.list_offsets("topicA", 0, LATEST) == (1, 6)

    run(test)


@pytest.mark.parametrize("replicas", [[0, 1], [1]], ids=["expand", "move"])
def test_a_new_replica_leads_and_knows_what_is_remote(
    store: dict[str, str], replicas: list[int]
) -> None:
    async def test():
        async with TieredCluster(store, brokers=2, settings=TWO_METADATA_PARTITIONS) as cluster:
            await cluster.create("topicA", [BOTH] * 50)
            await cluster.create("topicB", [(0,)], batches_per_segment=1)
            await cluster.produce("topicB", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(0, "topicB", 0, 0, kv(0))
            await cluster.expect_offloaded(0, "topicB", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicB", 0, 2)
            # The preferred one is to be broker 1, which Kafka's test elects by hand.
            await cluster.reassign("topicB", 0, replicas[::-1])
            await cluster.expect_in_sync("topicB", 0, set(replicas))
            await cluster.expect_leader("topicB", 0, 1, elect=True)
            await cluster.expect_goes_on(1, "topicB", 0, 3)

    run(test)


def test_the_replica_that_is_left_leads_and_knows_what_is_remote(store: dict[str, str]) -> None:
    async def test():
        async with TieredCluster(store, brokers=2, settings=TWO_METADATA_PARTITIONS) as cluster:
            await cluster.create("topicA", [(0, 1), (1, 0)], batches_per_segment=1)
            for index in range(2):
                await cluster.expect_leader("topicA", index, index)
                await cluster.produce("topicA", index, kv(0, 1, 2))
                await cluster.expect_offloaded(index, "topicA", index, 0, kv(0))
                await cluster.expect_offloaded(index, "topicA", index, 1, kv(1))
                await cluster.expect_earliest_local("topicA", index, 2)
            for index, left in ((0, 1), (1, 0)):
                await cluster.reassign("topicA", index, [left])
                await cluster.expect_leader("topicA", index, left)
            for index, left in ((0, 1), (1, 0)):
                await cluster.expect_goes_on(left, "topicA", index, 3)

    run(test)
