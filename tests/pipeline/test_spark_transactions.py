"""Spark's Kafka source with `kafka.isolation.level`: committed, aborted and open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from confluent_kafka import Producer

from support.spark import MARKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = MARKS

COMMITTED = {"kafka.isolation.level": "read_committed"}


class Transactions:
    """A transactional producer to both partitions of a topic."""

    def __init__(self, bootstrap: str, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        )
        self._producer.init_transactions(30)

    def begin(self, numbers: Iterable[int]) -> None:
        self._producer.begin_transaction()
        for number in numbers:
            self._producer.produce(self._topic, b"%d" % number, partition=number % 2)
        assert self._producer.flush(30) == 0

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)


def numbers(frame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_batches_and_streams_see_what_is_committed(
    spark: SparkSession, tidelog_bootstrap: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    one = Transactions(tidelog_bootstrap, name, f"{name}-one")
    for start, commit in ((0, True), (100, False), (20, True), (120, False)):
        one.begin(range(start, start + 20))
        one.end(commit=commit)
    one.begin(range(40, 50))  # open
    two = Transactions(tidelog_bootstrap, name, f"{name}-two")
    two.begin(range(50, 60))
    two.end(commit=True)

    def source(reader, **options: str):
        reader = reader.format("kafka").option("kafka.bootstrap.servers", tidelog_bootstrap)
        return (
            reader.option("subscribe", name)
            .option("startingOffsets", "earliest")
            .options(**options)
            .load()
        )

    def stream() -> int:
        """One run over what is there; how many rows came."""
        query = (
            source(spark.readStream, **COMMITTED, maxOffsetsPerTrigger="30")
            .selectExpr("cast(value as string)")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    everything = sorted([*range(60), *range(100, 140)])
    assert numbers(source(spark.read)) == everything
    assert numbers(source(spark.read, **COMMITTED)) == list(range(40))
    assert stream() == 40
    one.end(commit=True)
    assert numbers(source(spark.read, **COMMITTED)) == list(range(60))
    assert stream() == 20
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == list(range(60))
