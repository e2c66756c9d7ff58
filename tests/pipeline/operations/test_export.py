"""`tidelog spark export`: what a destination has beside what the topic has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyarrow.parquet as pq

from support.history import broker, create_tiered, produce, wait_until_remote
from support.spark import MARKS
from tidelog_pipeline.operations import OperationError, Source, Wanted, export

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


def rows(spark: SparkSession, place: Path) -> list[tuple]:
    columns = ["partition", "offset", "key", "value", "timestamp", "headers"]
    found = spark.read.parquet(str(place)).select(columns).collect()
    return sorted(tuple(row) for row in found)


def consumed(spark: SparkSession, servers: str, topic: str, **options: str) -> list[tuple]:
    """The topic's rows by Spark's own Kafka source."""
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .options(subscribe=topic, includeHeaders="true", **options)
        .load()
    )
    columns = ["partition", "offset", "key", "value", "timestamp", "headers"]
    return sorted(tuple(row) for row in frame.select(columns).collect())


def test_runs_add_what_is_new_each_once(spark: SparkSession, servers: str, tmp_path: Path) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(300))
    wait_until_remote(servers, topic)
    source, place = Source(servers, topic), tmp_path / "out"
    wanted = Wanted(end="1970-01-01T00:00:01.200Z", chunk_bytes=50_000)
    first = export(spark, source, str(place), wanted)
    assert first.records == first.new_records == 200
    assert {each.name[:12] for each in place.glob("*.parquet")} == {"chunk-000001", "chunk-000002"}
    done = export(spark, source, str(place))
    assert (done.records, done.new_records) == (300, 100)
    assert export(spark, source, str(place)).new_records == 0
    assert rows(spark, place) == consumed(spark, servers, topic)


def test_days_are_folders_and_headers_are_kept(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    topic = create_tiered(servers)
    producer = Producer({"bootstrap.servers": servers})
    for day in range(3):
        producer.produce(
            topic, b"v", headers=[("h", b"1"), ("n", None)], timestamp=day * 86_400_000 + 1
        )
    assert producer.flush(30) == 0
    place = tmp_path / "out"
    done = export(spark, Source(servers, topic), str(place), Wanted(by_date=True))
    assert done.records == 3
    days = [f"date=1970-01-0{day}" for day in (1, 2, 3)]
    assert sorted(each.name for each in place.iterdir() if each.name != "_tidelog") == days
    assert rows(spark, place) == consumed(spark, servers, topic)
    file = next(place.glob("date=*/*.parquet"))
    found = pq.ParquetFile(file).metadata.row_group(0).column(5)
    assert (found.path_in_schema, found.physical_type) == ("timestamp", "INT64")
    assert found.statistics.max - found.statistics.min == timedelta(0)


def test_bad_input_is_one_line_and_writes_nothing(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic = create_tiered(servers)
    produce(servers, topic, range(20))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.csv").touch()
    for source, place, wanted, text in [
        (Source(servers, "no-such"), "new", Wanted(), "UNKNOWN_TOPIC_OR_PARTITION"),
        (Source("127.0.0.1:1", topic), "new", Wanted(), "no answer from 127.0.0.1:1"),
        (Source(servers, topic), "new", Wanted(start="21"), "offsets 0 to 20, not 21"),
        (Source(servers, topic), "new", Wanted(start="9", end="3"), "begins at 9 and ends at 3"),
        (Source(servers, topic), "new", Wanted(start="noon"), "'noon' is not a time such as"),
        (Source(servers, topic), "new", Wanted(start="latest"), "has no records in that range"),
        (Source(servers, topic), "other", Wanted(), "has other data; nothing was written"),
    ]:
        with pytest.raises(OperationError, match=text) as caught:
            export(spark, source, str(tmp_path / place), wanted)
        assert "\n" not in str(caught.value)
    for place, text in [("s3x://lake/t", "No FileSystem for"), ("a:b c", "Relative path in")]:
        with pytest.raises(OperationError, match=text) as caught:
            export(spark, Source(servers, topic), place)
        assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["other"]
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["data.csv"]


@pytest.mark.nightly
def test_a_driver_that_is_killed_is_followed_by_one_that_ends_its_work(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    topic = create_tiered(servers, 2)
    produce(servers, topic, range(3000))
    wait_until_remote(servers, topic)
    place = tmp_path / "out"
    command = [sys.executable, "-m", "tidelog", "spark", "export", "-b", servers, topic, str(place)]
    command += ["--chunk", "50KB", "--master", "local[1]"]
    records = place / "_tidelog"
    killed = 0
    for wanted in (1, 4, 9):
        with subprocess.Popen(command, start_new_session=True) as child:
            while child.poll() is None and len(list(records.glob("chunk-*"))) < wanted:
                time.sleep(0.01)
            killed += child.poll() is None
            os.kill(child.pid, signal.SIGKILL)
    assert killed >= 2
    assert export(spark, Source(servers, topic), str(place)).records == 3000
    columns = ["partition", "offset", "value"]
    found = sorted(map(tuple, spark.read.parquet(str(place)).select(columns).collect()))
    assert found == [(row[0], row[1], row[3]) for row in consumed(spark, servers, topic)]
