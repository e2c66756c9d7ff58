"""`format("tidelog")` beside Spark's Kafka source: the same rows of the same options."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from confluent_kafka import Producer

from support.history import broker, create_tiered, produce, wait_until_remote
from support.spark import MARKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = MARKS

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with broker(str(tmp_path_factory.mktemp("remote"))) as servers:
        yield servers


@pytest.fixture(scope="module")
def topic(servers: str) -> str:
    """A topic of two partitions, most of it in the tier: codecs, headers, nulls, transactions."""
    name = create_tiered(servers, 2)
    for codec in CODECS:
        produce(servers, name, range(120), **{"compression.type": codec})
    for turn in range(8):
        one = Producer({"bootstrap.servers": servers, "transactional.id": f"{turn % 3}"})
        one.init_transactions(30)
        one.begin_transaction()
        for number in range(40):
            one.produce(name, b"%d" % turn + bytes(300), b"k", headers=[("h", b"%d" % number)])
        one.flush()
        if turn % 2:
            one.abort_transaction(30)
        else:
            one.commit_transaction(30)
    wait_until_remote(servers, name)
    return name


@pytest.fixture
def load(spark: SparkSession, servers: str):
    def read(source: str, topic: str, schema: str | None = None, **options: str):
        reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.option("subscribe", topic).options(**options).load()

    return read


@contextmanager
def event_log(spark: SparkSession, folder: Path) -> Iterator[Path]:
    """What `spark.eventLog.enabled` writes, of a part of a session."""
    context, jvm = cast("Any", spark.sparkContext)._jsc.sc(), cast("Any", spark)._jvm
    conf = context.getConf().set("spark.eventLog.compress", "false")
    conf.set("spark.eventLog.rolling.enabled", "false")
    place, hadoop = jvm.java.net.URI(folder.as_uri()), context.hadoopConfiguration()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "events", jvm.scala.Option.empty(), place, conf, hadoop
    )
    listener.start()
    context.addSparkListener(listener)
    try:
        yield folder / "events"
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()


def rows(frame: DataFrame) -> list[tuple]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: (row[3], row[4]))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_rows_and_schema_are_those_of_the_kafka_source(load, topic: str, level: str) -> None:
    options = {"includeHeaders": "true", "kafka.isolation.level": level}
    expected, found = (load(source, topic, **options) for source in ("kafka", "tidelog"))
    assert found.schema == expected.schema
    known = rows(expected)
    assert len(known) == 600 + (320 if level == "read_uncommitted" else 160)
    assert rows(found) == known
    assert rows(load("tidelog", topic, **options, minPartitions="9")) == known
    assert load("tidelog", topic, **options, minPartitions="9").rdd.getNumPartitions() >= 9


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "1040", "endingTimestamp": "1080"},
        {
            "startingOffsets": '{"TOPIC":{"0":7,"1":-2}}',
            "endingOffsets": '{"TOPIC":{"0":44,"1":-1}}',
        },
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":1100,"1":1000}}'},
    ],
)
def test_limits_are_those_of_the_kafka_source(load, topic: str, options: dict[str, str]) -> None:
    given = {name: text.replace("TOPIC", topic) for name, text in options.items()}
    expected = rows(load("kafka", topic, **given))
    assert expected
    assert rows(load("tidelog", topic, **given)) == expected


def test_a_schema_of_fewer_columns_reads_no_more(load, topic: str) -> None:
    few = load("tidelog", topic, "timestamp timestamp, key binary")
    assert few.columns == ["timestamp", "key"]
    expected = load("kafka", topic).select("timestamp", "key")
    assert sorted(map(str, few.collect())) == sorted(map(str, expected.collect()))
    with pytest.raises(Exception, match="there is no column size"):
        load("tidelog", topic, "size int").collect()
    with pytest.raises(Exception, match="offset is bigint, not int"):
        load("tidelog", topic, "offset int").collect()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingTimestamp": "99999999"}, "No offset matched from request of topic-partition"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no answer from 127.0.0.1:1"),
    ],
)
def test_errors_are_one_sentence(load, topic: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps them; checked below
        load("tidelog", topic, **options).count()
    assert text in str(caught.value)


def test_a_wrong_option_of_a_stream_is_the_only_error(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", servers)
    frame = reader.options(subscribe="any", startingOffsets="noon").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.start()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps it; checked below
        query.awaitTermination()
    assert "Expected e.g." in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)


def test_the_stores_properties_are_in_no_plan(load, topic: str, capsys) -> None:
    frame = load("tidelog", topic, **{"rsm.config.extra": "hush-hush"})
    assert frame.count() == 920
    frame.explain(extended=True)
    assert "hush-hush" not in capsys.readouterr().out
    assert "hush-hush" not in frame._jdf.queryExecution().toString()


def test_a_stream_reads_each_record_once_across_the_border(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    name = create_tiered(servers, 2)

    def run() -> int:
        query = (
            spark.readStream.format("tidelog")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("partition", "offset", "value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    produce(servers, name, range(400))
    wait_until_remote(servers, name)
    assert run() == 400
    produce(servers, name, range(400, 450))
    assert run() == 50
    assert run() == 0
    produce(servers, name, range(450, 900))
    wait_until_remote(servers, name)
    assert run() == 450
    stored = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.value.split()[0]) for row in stored) == list(range(900))
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert sum(last[name].values()) == 900


def test_a_stream_that_runs_on_takes_what_is_written_meanwhile(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    name = create_tiered(servers, 2)
    produce(servers, name, range(200))
    wait_until_remote(servers, name)
    for ends in ((250, 300), (350,)):  # two runs of one checkpoint
        frame = (
            spark.readStream.format("tidelog")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            frame.selectExpr("value")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            for end in ends:
                produce(servers, name, range(end - 50, end))
                query.processAllAvailable()
                stored = spark.read.parquet(str(tmp_path / "out")).collect()
                assert sorted(int(row.value.split()[0]) for row in stored) == list(range(end))
        finally:
            query.stop()


def test_an_event_log_has_no_secrets(
    spark: SparkSession, servers: str, topic: str, tmp_path: Path
) -> None:
    """The UI and a history server show it: plans of batches and of streams, and their tasks."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    given = {
        "kafka.bootstrap.servers": servers,
        "kafka.sasl.jaas.config": f'{login} username="u" password="hush-sasl";',
        "kafka.ssl.truststore.password": "hush-ssl",
        "rsm.config.aws.secret.access.key": "hush-store",
        "startingOffsets": "earliest",
        "subscribe": topic,
    }
    with event_log(spark, tmp_path) as log:
        frame = spark.read.format("tidelog").options(**given).load()
        frame.write.parquet(str(tmp_path / "out"))
        stream = spark.readStream.format("tidelog").options(**given).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
    events = log.read_text()
    assert events.count("SparkListenerSQLExecutionStart") >= 2
    assert "hush" not in events
    assert "hush" not in "".join(file.read_text() for file in (tmp_path / "c").rglob("[0-9]*"))
