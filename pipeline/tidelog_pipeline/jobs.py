"""The Spark jobs, over Spark's standard Kafka source and sink; the whole year also from the tier.

Batch by offsets, batch by timestamps, and a stream: daily delay windows per carrier from the events
topic to a result topic, and from there to Parquet, each with a checkpoint, run until all that is
there has been read (`availableNow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # PySpark's own idiom

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

EVENT_SCHEMA = (
    "event string, carrier string, flight int, tailnum string, origin string, dest string, "
    "time timestamp, delay int"
)
DAILY_SCHEMA = "carrier string, day timestamp, departures long, delay long, late long"
LATE_MINUTES = 15
WATERMARK = "1 hour"


def events(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A topic's events as rows, read once; `options` are the Kafka source's own."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    loaded = source.option("subscribe", topic).options(**(options or {})).load()
    return _parsed(loaded, EVENT_SCHEMA)


def by_carrier(spark: SparkSession, bootstrap_servers: str, topic: str, door: str) -> DataFrame:
    """`carrier_delays` of a whole topic, read through `door`: `kafka` or `tidelog`. Beside it the
    carrier's events, and a digest of all their columns as the source has them."""
    loaded = (
        spark.read.format(door)
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    row = F.from_json(F.col("value").cast("string"), EVENT_SCHEMA)
    rows = loaded.select(row.alias("row"), F.xxhash64(*columns).alias("digest"))
    counted = {"events": F.count("*"), "digest": F.bit_xor("digest")}
    return _delays(rows.select("row.*", "digest").where("event != 'end-of-replay'"), counted)


def _parsed(loaded: DataFrame, schema: str) -> DataFrame:
    return loaded.select(F.from_json(F.col("value").cast("string"), schema).alias("row")).select(
        "row.*"
    )


def carrier_delays(rows: DataFrame) -> DataFrame:
    """Per carrier: departures, departure_delay, arrivals, arrival_delay (minutes)."""
    return _delays(rows.where(F.col("event").isin("departed", "arrived")), {})


def _delays(rows: DataFrame, more: Mapping[str, Column]) -> DataFrame:
    def count_of(event: str) -> Column:
        return F.count_if(F.col("event") == event)

    def delay_of(event: str) -> Column:
        return F.coalesce(F.sum(F.when(F.col("event") == event, F.col("delay"))), F.lit(0))

    return rows.groupBy("carrier").agg(
        count_of("departed").alias("departures"),
        delay_of("departed").alias("departure_delay"),
        count_of("arrived").alias("arrivals"),
        delay_of("arrived").alias("arrival_delay"),
        *(column.alias(name) for name, column in more.items()),
    )


def stream_daily_delays(
    spark: SparkSession, bootstrap_servers: str, source: str, target: str, checkpoint: Path
) -> int:
    """Read what is new in `source`, write each carrier's finished days to `target`.

    A day is finished once the watermark has passed its end, so the last days of a run come out of
    the next one, from the state in `checkpoint`. Returns the input rows read.
    """
    loaded = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    # The sentinel moves the watermark (over all rows) and counts as no departure.
    windows = (
        _parsed(loaded, EVENT_SCHEMA)
        .withWatermark("time", WATERMARK)
        .groupBy(F.window("time", "1 day"), "carrier")
        .agg(
            F.count_if(F.col("event") == "departed").alias("departures"),
            F.sum(F.when(F.col("event") == "departed", F.col("delay"))).alias("delay"),
            F.count_if((F.col("event") == "departed") & (F.col("delay") > LATE_MINUTES)).alias(
                "late"
            ),
        )
        .where("departures > 0")
    )
    row = F.struct("carrier", F.col("window.start").alias("day"), "departures", "delay", "late")
    query = (
        windows.select(F.col("carrier").alias("key"), F.to_json(row).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def stream_to_parquet(
    spark: SparkSession, bootstrap_servers: str, source: str, target: Path, checkpoint: Path
) -> int:
    """Append what is new in the result topic to Parquet files; returns the rows read."""
    loaded = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        _parsed(loaded, DAILY_SCHEMA)
        .writeStream.format("parquet")
        .option("path", str(target))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)
