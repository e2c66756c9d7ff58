"""Behaviours of Apache Kafka's tiered-storage integration tests: one broker, its segments come and
go (kafka-tests 2.1, 2.2, 2.3, 2.14).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from support.clusters import run
from tier.harness import READ_COMMITTED, TieredCluster, kv

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.parametrize(
    "place",
    [
        pytest.param("versitygw", marks=pytest.mark.xdist_group("s3")),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("directory", "moto")),
    ],
    indirect=True,
)


def test_offload_and_consume_from_leader(store: dict[str, str], tmp_path: Path) -> None:
    async def test():
        async with TieredCluster(store, data_dir=tmp_path / "data") as cluster:
            await cluster.create("topicA", batches_per_segment=1)
            await cluster.produce("topicA", 0, kv(0, 1, 2))
            await cluster.expect_offloaded(0, "topicA", 0, 0, kv(0))
            await cluster.expect_offloaded(0, "topicA", 0, 1, kv(1))
            await cluster.expect_earliest_local("topicA", 0, 2)
            await cluster.create("topicB", batches_per_segment=2)
            await cluster.produce("topicB", 0, kv(0, 1, 2, 3, 4))
            await cluster.expect_offloaded(0, "topicB", 0, 0, kv(0, 1))
            await cluster.expect_offloaded(0, "topicB", 0, 2, kv(2, 3))
            await cluster.expect_earliest_local("topicB", 0, 4)
            await cluster.stop(0)
            await cluster.start(0)
            await cluster.expect_leader("topicA", 0, 0)
            await cluster.expect_leader("topicB", 0, 0)
            await cluster.consume("topicA", 0, 1, 2, 1)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == 1
            await cluster.consume("topicB", 0, 1, 4, 3)
            assert cluster.fetch_counts(0, "topicB", 0)[0] == 2

    run(test)


def test_offload_and_read_committed_with_a_cache_that_holds_nothing(store: dict[str, str]) -> None:
    async def test():
        settings = {"remote.log.index.file.cache.total.size.bytes": "1"}
        async with TieredCluster(store, settings=settings) as cluster:
            await cluster.create("topicA", batches_per_segment=1)
            await cluster.produce("topicA", 0, kv(*range(7)))
            for base in range(6):
                await cluster.expect_offloaded(0, "topicA", 0, base, kv(base))
            await cluster.expect_earliest_local("topicA", 0, 6)
            await cluster.consume("topicA", 0, 0, 7, 6, isolation=READ_COMMITTED)
            fetches, indexes = cluster.fetch_counts(0, "topicA", 0)
            assert fetches <= 12
            assert indexes <= 3 * 12, "one look at each index of a segment, not of all behind it"

    run(test)


@pytest.mark.parametrize("limit", ["retention.bytes", "retention.ms"])
def test_remote_segments_go_by_retention(store: dict[str, str], limit: str) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create("topicA", batches_per_segment=1)
            await cluster.produce("topicA", 0, kv(0, 1, 2))
            ahead = [int(time.time() * 1000) + 3_600_000]
            await cluster.produce("topicA", 0, kv(3), timestamps=ahead)
            for base in range(3):
                await cluster.expect_offloaded(0, "topicA", 0, base, kv(base))
            await cluster.expect_earliest_local("topicA", 0, 3)
            await cluster.alter("topicA", {limit: "1"})
            await cluster.expect_deletions(0, "topicA", 0, 3)
            await cluster.expect_first_epoch(0, "topicA", 0, 0, 3)
            before = cluster.fetch_counts(0, "topicA", 0)[0]
            (record,) = await cluster.consume("topicA", 0, 0, 1, 0)
            assert (record.key, record.offset) == (b"k3", 3)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == before

    run(test)


def test_an_active_segment_that_breaks_local_retention_is_rolled_and_copied(
    store: dict[str, str],
) -> None:
    async def test():
        async with TieredCluster(store) as cluster:
            await cluster.create(
                "topicA", batches_per_segment=1, configs={"local.retention.ms": "1"}
            )
            await cluster.produce("topicA", 0, kv(0, 1, 2, 3))
            for base in range(4):
                await cluster.expect_offloaded(0, "topicA", 0, base, kv(base))
            await cluster.expect_earliest_local("topicA", 0, 4)
            before = cluster.fetch_counts(0, "topicA", 0)[0]
            await cluster.consume("topicA", 0, 0, 4, 4)
            assert cluster.fetch_counts(0, "topicA", 0)[0] == before + 4

    run(test)
