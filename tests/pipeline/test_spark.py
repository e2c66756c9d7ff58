"""Spark's standard Kafka source and sink against tidelog: what users do with them (spark.md 4)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.sql import functions as F  # noqa: N812

from support.spark import MARKS
from tidelog_pipeline import flights, jobs
from tidelog_pipeline.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = MARKS


@pytest.fixture
def read(spark, tidelog_bootstrap):
    def load(topic: str | None, **options: str):
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", tidelog_bootstrap)
        if topic is not None:
            source = source.option("subscribe", topic)
        return source.options(**options).load()

    return load


@pytest.fixture
def write(spark, tidelog_bootstrap):
    """Writes rows of (key, value) strings through Spark's sink."""

    def store(topic: str, rows, **options: str) -> None:
        frame = (
            rows
            if not isinstance(rows, list)
            else spark.createDataFrame(rows, "key string, value string")
        )
        frame.write.format("kafka").option("kafka.bootstrap.servers", tidelog_bootstrap).option(
            "topic", topic
        ).options(**options).save()

    return store


def values(frame) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def put(servers: str, topic: str, timestamps: list[int], key: bytes = b"k") -> dict[int, int]:
    events = (flights.Event(key, str(at).encode(), at) for at in timestamps)
    return asyncio.run(replay(servers, topic, events))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_sink_and_source_with_each_codec(
    topic: Callable[..., str],
    read: Callable[..., DataFrame],
    write: Callable[..., None],
    codec: str,
) -> None:
    name = topic()
    rows = [(f"k{n}", f"value {n} " + "x" * 200) for n in range(500)]
    write(name, rows, **{"kafka.compression.type": codec})
    got = read(name).selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted((row.key, row.value) for row in got) == sorted(rows)


def test_headers_nulls_and_explicit_partitions(
    spark: SparkSession,
    topic: Callable[..., str],
    read: Callable[..., DataFrame],
    write: Callable[..., None],
) -> None:
    name = topic()
    frame = spark.createDataFrame(
        [(None, None, 3), ("a", "1", 2)], "key string, value string, partition int"
    ).withColumn(
        "headers",
        F.array(F.struct(F.lit("h").alias("key"), F.lit("x").cast("binary").alias("value"))),
    )
    write(name, frame)
    got = read(name, includeHeaders="true").orderBy("partition").collect()
    assert [(row.partition, row.key, row.value) for row in got] == [
        (2, b"a", b"1"),
        (3, None, None),
    ]
    assert all([(h.key, bytes(h.value)) for h in row.headers] == [("h", b"x")] for row in got)


def test_offsets_by_json_earliest_latest_and_assign(
    tidelog_bootstrap: str, topic: Callable[..., str], read: Callable[..., DataFrame]
) -> None:
    name = topic(1)
    put(tidelog_bootstrap, name, list(range(1000, 1100)))
    part = {
        "startingOffsets": json.dumps({name: {"0": 10}}),
        "endingOffsets": json.dumps({name: {"0": 13}}),
    }
    assert values(read(name, **part)) == ["1010", "1011", "1012"]
    special = {
        "startingOffsets": json.dumps({name: {"0": -2}}),
        "endingOffsets": json.dumps({name: {"0": -1}}),
    }
    assert read(name, **special).count() == 100
    assert read(None, assign=json.dumps({name: [0]})).count() == 100
    assert read(None, subscribePattern=f"{name[:-1]}[{name[-1]}]").count() == 100
    assert read(name, minPartitions="7").rdd.getNumPartitions() >= 7


def test_by_timestamps(
    tidelog_bootstrap: str, topic: Callable[..., str], read: Callable[..., DataFrame]
) -> None:
    name = topic(1)
    put(tidelog_bootstrap, name, [1_000, 2_000, 3_000, 4_000])
    by_time = {"startingTimestamp": "1500", "endingTimestamp": "4000"}
    assert values(read(name, **by_time)) == ["2000", "3000"]
    beyond = {"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(name, **beyond).count() == 0
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        read(name, startingTimestamp="5000").count()


def test_deleted_records_fail_or_are_skipped_as_asked(
    tidelog_bootstrap: str, topic: Callable[..., str], read: Callable[..., DataFrame]
) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
    from aiokafka.structs import TopicPartition

    name = topic(1)
    put(tidelog_bootstrap, name, list(range(100, 110)))

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=tidelog_bootstrap)
        await admin.start()
        await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(before_offset=4)})
        await admin.close()

    asyncio.run(delete())
    assert values(read(name)) == [str(n) for n in range(104, 110)]
    stale = json.dumps({name: {"0": 0}})
    assert values(read(name, startingOffsets=stale, failOnDataLoss="false"))[-1] == "109"
    with pytest.raises(Exception, match=r"(?i)data loss|lost|fewer|offset"):
        read(name, startingOffsets=stale, failOnDataLoss="true").count()


def test_a_stream_resumes_from_its_checkpoint(
    spark: SparkSession, tidelog_bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)

    def run() -> int:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", tidelog_bootstrap)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .select(F.col("value").cast("string"))
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    put(tidelog_bootstrap, name, list(range(100, 200)))
    assert run() == 100
    put(tidelog_bootstrap, name, list(range(200, 230)))
    assert run() == 30
    got = sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert got == list(range(100, 230))


@pytest.mark.nightly  # the whole demo (test_demo.py) runs these jobs, and compares them too
def test_the_demos_jobs_agree_with_pandas(
    spark: SparkSession, tidelog_bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The main job on the first weeks of the year, in two runs of the stream."""
    events_topic, results = topic(), topic()
    table = flights.event_table(flights.load_flights()).head(40_000)
    first, rest = table.iloc[:25_000], table.iloc[25_000:]
    servers, checkpoint = tidelog_bootstrap, tmp_path / "windows"
    asyncio.run(replay(servers, events_topic, flights.events(first)))
    assert jobs.stream_daily_delays(spark, servers, events_topic, results, checkpoint) == 25_000
    asyncio.run(replay(servers, events_topic, [*flights.events(rest), flights.sentinel(table)]))
    assert jobs.stream_daily_delays(spark, servers, events_topic, results, checkpoint) == 15_001
    rows = jobs.events(spark, servers, events_topic).where("event != 'end-of-replay'")
    expected = flights.carrier_figures(table)
    got = jobs.carrier_delays(rows).toPandas().sort_values("carrier", ignore_index=True)
    assert got[expected.columns].astype("int64", errors="ignore").equals(expected)
    daily = flights.daily_figures(table)
    target = tmp_path / "daily.parquet"
    assert jobs.stream_to_parquet(spark, servers, results, target, tmp_path / "p") == len(daily)
    stored = spark.read.parquet(str(target)).toPandas()[daily.columns]
    stored = stored.sort_values(["carrier", "day"], ignore_index=True)
    assert (stored == daily).all(axis=None)
