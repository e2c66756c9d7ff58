"""`format("tidelog")` beside Spark's Kafka source where a history is difficult: an unclean
election, compaction, S3 by a real server."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from support.clusters import in_thread, run, until
from support.history import broker, create_tiered, produce, wait_until_remote
from support.spark import MARKS
from support.tiered_cluster import segmented, tiered_cluster
from support.versitygw import ENVIRONMENT, Versitygw
from tidelog.embedded.tiered import DIRECTORY_STORE
from tidelog_pipeline.operations import Source, audit

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [*MARKS, pytest.mark.nightly]

LEVELS = ["read_uncommitted", "read_committed"]


def read(spark: SparkSession, door: str, servers: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(door).option("kafka.bootstrap.servers", servers)
    return reader.options(subscribe=topic, includeHeaders="true", **options).load()


def rows(frame: DataFrame) -> list[tuple]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[3], row[4]))


def test_a_branch_that_an_unclean_election_left_never_shows(
    spark: SparkSession, tmp_path: Path
) -> None:
    async def test() -> None:
        async with tiered_cluster(tmp_path, 3) as it:

            def in_sync() -> set[int]:
                partition = it.running()[0].server.metadata.image.partition("a", 0)
                return set() if partition is None else set(partition.isr)

            unclean = {"unclean_leader_election_enable": "true", "min_insync_replicas": "1"}
            await it.create("a", 1, 2, **segmented(1, **unclean))
            await it.produce("a", ["v0"])
            first = it.leader("a")
            (second,) = in_sync() - {first}
            await until(lambda: it.log(second, "a").log_end_offset == 1)
            await it.node(second).stop()
            await until(lambda: in_sync() == {first})
            dead = [f"dead{n}" for n in range(1, 5)]
            await it.produce("a", dead)
            await until(lambda: it.log(first, "a").local_log_start_offset == 4)
            await it.node(first).kill()
            await it.node(second).start()
            await until(lambda: it.leader("a") == second)
            live = [f"live{n}" for n in range(1, 4)]
            await it.produce("a", live)
            await until(lambda: it.log(second, "a").local_log_start_offset == 3)
            await it.node(first).start()
            await until(lambda: in_sync() == {first, second})
            there = [value for values in it.remote("a").values() for value in values]
            assert set(there) & set(dead), "the dead branch is in the tier"
            await in_thread(look, it.bootstrap, it.store, ["v0", *live])

    def look(servers: str, folder: str, values: list[str]) -> None:
        store = {"remote.log.storage.manager.class.name": DIRECTORY_STORE}
        store["rsm.config.dir"] = folder
        for level in LEVELS:
            options = {"kafka.isolation.level": level}
            known = rows(read(spark, "kafka", servers, "a", **options))
            assert [row[1].decode() for row in known] == values
            assert rows(read(spark, "tidelog", servers, "a", **options, **store)) == known
        report = audit(spark, Source(servers, "a", store), compares_all=True)
        assert report.faults == []
        assert any("another lineage" in note for note in report.partitions[0].notes)

    run(test)


def test_a_compacted_topic_is_the_same_by_both_doors(spark: SparkSession, tmp_path: Path) -> None:
    with broker(str(tmp_path)) as servers:
        topic = create_tiered(
            servers,
            2,
            remote_storage_enable="false",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
        )
        produce(servers, topic, [n for n in range(900) if n % 5])  # each with a key
        end = time.perf_counter() + 120
        known, again = [], [()]
        while known != again or len(known) == 720:  # the cleaner is at work
            assert time.perf_counter() < end
            known = rows(read(spark, "kafka", servers, topic))
            found = rows(read(spark, "tidelog", servers, topic))
            again = rows(read(spark, "kafka", servers, topic))
        assert found == known


def test_s3_by_a_real_server(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = Versitygw(tmp_path / "s3")
    server.start()
    try:
        server.make_bucket("tier")
        place = {"rsm_config_endpoint_url": server.url, "rsm_config_region": "us-east-1"}
        with broker("s3://tier/some/where", **place) as servers:
            topic = create_tiered(servers, 2)
            for codec in ("none", "gzip", "lz4"):
                produce(servers, topic, range(300), **{"compression.type": codec})
            wait_until_remote(servers, topic)
            out = tmp_path / "out"
            command(servers, "audit", topic, "--whole", "--out", str(tmp_path / "audit"))
            command(servers, "export", topic, str(out))
            columns = ["partition", "offset", "key", "value", "timestamp", "headers"]
            expected = read(spark, "kafka", servers, topic).select(columns)
            stored = spark.read.parquet(str(out)).select(columns)
            assert expected.count() == stored.count() == 900
            assert expected.exceptAll(stored).count() == stored.exceptAll(expected).count() == 0
    finally:
        server.stop()


def command(servers: str, *arguments: str) -> None:
    """A command has a session of its own, whose workers have the credentials of now."""
    name, *rest = arguments
    words = [sys.executable, "-m", "tidelog", "spark", name, "-b", servers, *rest]
    words += ["--master", "local[2]"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
