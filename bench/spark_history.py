"""Spark over a tiered topic by both doors: `python bench/spark_history.py [--megabytes 2000]`.

A broker process, a topic of which nearly all is in the tier (a directory, or with `--s3` a real S3
server), and one Spark session. Each query runs through Spark's Kafka source (its defaults, then
tuned) and through `format("tidelog")`, in turns. Two more doors say what Spark itself costs:
`floor` is a data source in Python that yields as many rows out of Arrow batches that it has, and
`jvm` makes as many rows in the JVM, without Python and without a source.

With `--folder` the topic and the figures stay there, and the next run goes on with them: a long
measurement is cut into short runs by `--queries` and `--doors`. A program beside the package: it
needs the `spark` extra.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.embedded.simple_client import create_topic
from tidelog.embedded.tier_view import TierViewer
from tidelog_bench.peers.process import cpu_seconds
from tidelog_bench.peers.versitygw import ENVIRONMENT, REGION, Versitygw
from tidelog_pipeline.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "history"
PARTITIONS = 4
VALUE_BYTES = 200
KEYS = 1000
BUCKET = "history"
WAIT_SECONDS_MAX = 300
TUNED = {
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
DOORS: dict[str, tuple[str, dict[str, str]]] = {
    "kafka": ("kafka", {}),
    "tuned": ("kafka", TUNED),
    "tidelog": ("tidelog", {}),
}
FLOORS = ("floor", "jvm")
SPLIT_BYTES = 128 << 20
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def broker(folder: Path, tiered: str, properties: list[str]) -> Iterator[tuple[str, int]]:
    """A broker over a tier; its address and process id."""
    command = [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--until-stdin-ends"]
    command += ["--data-dir", str(folder / "data"), "--tiered", tiered]
    given = ["remote.log.manager.task.interval.ms=500", "log.retention.check.interval.ms=500"]
    for text in (*given, "log.segment.delete.delay.ms=500", *properties):
        command += ["--set", text]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        found = re.search(r"127\.0\.0\.1:\d+", child.stdout.readline())
        assert found is not None, "the broker did not print its address"
        yield found[0], child.pid
        child.stdin.close()


@contextmanager
def s3_server(folder: Path) -> Iterator[list[str]]:
    """A real S3 server with a bucket; the properties by which a broker finds it."""
    server = Versitygw(folder)
    os.environ.update(ENVIRONMENT)
    server.start()
    try:
        server.make_bucket(BUCKET)
        yield [f"rsm.config.endpoint.url={server.url}", f"rsm.config.region={REGION}"]
    finally:
        server.stop()


# ---- the topic -----------------------------------------------------------------------------------


def fill(servers: str, megabytes: int, segment_bytes: int) -> dict[str, Any]:
    """Write the topic, wait until only active segments are local, and describe it."""
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(segment_bytes),
        "local.retention.bytes": "1",
        "retention.ms": "-1",
    }
    create_topic(servers, TOPIC, PARTITIONS, configs)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 200_000})
    chance = random.Random(1)
    values = [chance.randbytes(VALUE_BYTES) for _ in range(100)]
    keys = [b"key-%d" % number for number in range(KEYS)]
    records = megabytes * 1_000_000 // VALUE_BYTES
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, values[number % 100], keys[number * 7919 % KEYS])
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    end = time.perf_counter() + WAIT_SECONDS_MAX
    with TierViewer(servers) as viewer:
        while any(view.local_bytes > segment_bytes for view in viewer.look(TOPIC)):
            assert time.perf_counter() < end, "the tier did not take all segments"
            time.sleep(0.5)
        views = viewer.look(TOPIC)
    local = sum(view.local_bytes for view in views)
    remote = sum(segment.size for view in views for segment in view.remote)
    return {"records": records, "bytes": local + remote, "remote": remote / (local + remote)}


def queries(folder: Path) -> dict[str, Any]:
    """By name: the columns that are needed, and what is done with the rows."""

    def scan(frame: Any) -> int:
        target = folder / "parquet"
        shutil.rmtree(target, ignore_errors=True)
        frame.select("key", "value", "offset", "timestamp").write.parquet(str(target))
        return -1

    return {
        "count": ("offset bigint", lambda frame: frame.count()),
        "group": (
            "key binary",
            lambda frame: sum(row["count"] for row in frame.groupBy("key").count().collect()),
        ),
        "scan": ("key binary, value binary, offset bigint, timestamp timestamp", scan),
    }


# ---- what Spark itself costs ---------------------------------------------------------------------


class Floor(DataSource):
    """Rows as the topic's, of Arrow batches that a task makes once: no read, no decoding."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "floor"

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of a batch query."""
        return FloorReader(int(self.options["records"]), schema.fieldNames())


class FloorReader(DataSourceReader):
    """Its tasks are of 128 MiB, as those of `format("tidelog")`."""

    def __init__(self, records: int, columns: list[str]) -> None:
        self._columns = columns
        self._tasks = max(1, records * VALUE_BYTES // SPLIT_BYTES)
        self._rows = [records * number // self._tasks for number in range(self._tasks + 1)]

    def partitions(self) -> list[InputPartition]:
        """The numbers of their rows."""
        counts = [after - before for before, after in itertools.pairwise(self._rows)]
        return [InputPartition(count) for count in counts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Its batches of 8 MiB."""
        chance, size = random.Random(1), (8 << 20) // VALUE_BYTES
        values = [chance.randbytes(VALUE_BYTES) for _ in range(100)]
        numbers = np.arange(size)
        whole = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"key-%d" % (number * 7919 % KEYS) for number in range(size)]),
                "value": pa.array(values).take(pa.array(numbers % 100)),
                "offset": pa.array(numbers),
                "timestamp": pa.array(numbers * 1000, pa.timestamp("us", tz="UTC")),
            }
        ).select(self._columns)
        for first in range(0, partition.value, size):
            yield whole.slice(0, min(size, partition.value - first))


def made_in_jvm(spark: Any, records: int) -> Any:
    """Rows as the topic's, made by Spark's own expressions."""
    chance = random.Random(1)
    values = [chance.randbytes(VALUE_BYTES) for _ in range(100)]
    number = F.col("id")
    return spark.range(0, records, 1, max(1, records * VALUE_BYTES // SPLIT_BYTES)).select(
        F.concat(F.lit("key-"), number * 7919 % KEYS).cast("binary").alias("key"),
        F.element_at(F.array(*map(F.lit, values)), (number % 100 + 1).cast("int")).alias("value"),
        number.alias("offset"),
        F.timestamp_millis(number).alias("timestamp"),
    )


# ---- the figures ---------------------------------------------------------------------------------


class Processes:
    """The JVM of Spark and the Python processes below it."""

    def __init__(self, root: int) -> None:
        self._root = root

    def cpu_seconds(self) -> dict[int, float]:
        """Processor time of each process that lives."""
        return {
            process_id: (int(fields[11]) + int(fields[12])) / _TICKS
            for process_id, fields in self._alive()
        }

    def cpu_since(self, before: dict[int, float]) -> tuple[float, float]:
        """Processor time of the JVM, and of all below it. What ended meanwhile counts nothing."""
        spent = {each: now - before.get(each, 0.0) for each, now in self.cpu_seconds().items()}
        jvm = spent.pop(self._root)
        return jvm, sum(spent.values())

    def forget_peaks(self) -> None:
        """The workers' peaks of memory count from here on (proc(5), clear_refs)."""
        for process_id, _ in self._alive():
            Path(f"/proc/{process_id}/clear_refs").write_text("5")

    def worker_megabytes(self) -> float:
        """The most memory that one worker had: VmHWM, shared pages of libraries included."""
        peaks = [0.0]
        for process_id, _ in self._alive():
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process_id}/status").read_text())
            if process_id != self._root and found:
                peaks.append(int(found[1]) / 1000)
        return max(peaks)

    def _alive(self) -> Iterator[tuple[int, list[str]]]:
        """Process ids, with the fields behind the name in /proc/*/stat."""
        waiting = [self._root]
        while waiting:
            process_id = waiting.pop()
            try:
                for task in Path(f"/proc/{process_id}/task").iterdir():
                    with suppress(OSError):  # a thread has ended: the process has not
                        waiting += map(int, (task / "children").read_text().split())
                stat = Path(f"/proc/{process_id}/stat").read_text()
            except OSError:
                continue  # it has ended meanwhile
            yield process_id, stat.rpartition(")")[2].split()


def frame(spark: Any, servers: str, door: str, columns: str, given: dict[str, Any]) -> Any:
    """The rows by one door, at least with these columns."""
    if door == "jvm":
        return made_in_jvm(spark, given["records"])
    if door == "floor":
        return spark.read.format("floor").schema(columns).options(records=given["records"]).load()
    source, options = DOORS[door]
    reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
    if source == "tidelog":
        reader = reader.schema(columns)
    return reader.options(**options, **given["partitions"]).load()


def measure(
    folder: Path, servers: str, process_id: int, topic: dict[str, Any], given: Any
) -> list[dict[str, Any]]:
    """Each query through each door, in turns; first on one partition, to warm up."""
    spark = session("tidelog-history-bench")
    spark.dataSource.register(Floor)
    gateway: Any = spark.sparkContext._gateway
    processes = Processes(gateway.proc.pid)
    figures = []
    for turn in range(given.rounds + 1):
        rows = {"partitions": {"subscribe": TOPIC}, "records": topic["records"]}
        if not turn:
            first = {"assign": json.dumps({TOPIC: [0]})}
            rows = {"partitions": first, "records": topic["records"] // PARTITIONS}
        for query in given.queries:
            columns, run = queries(folder)[query]
            for door in given.doors:
                processes.forget_peaks()
                before, started = cpu_seconds(process_id), time.perf_counter()
                spark_before = processes.cpu_seconds()
                counted = run(frame(spark, servers, door, columns, rows))
                seconds = time.perf_counter() - started
                jvm, workers = processes.cpu_since(spark_before)
                figure = {
                    "query": query,
                    "door": door,
                    "seconds": seconds,
                    "jvm_cpu": jvm,
                    "worker_cpu": workers,
                    "broker_cpu": cpu_seconds(process_id) - before,
                    "worker_mb": processes.worker_megabytes(),
                }
                assert not turn or counted in (topic["records"], -1), f"{query}, {door}: {counted}"
                if turn:
                    figures.append(figure)
    spark.stop()
    return figures


def show(topic: dict[str, Any], figures: list[dict[str, Any]]) -> None:
    """A table of all figures."""
    print(f"{platform.node()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}: "
          f"{topic['records']:,} records, {topic['bytes'] / 1e6:,.0f} MB, "
          f"{topic['remote']:.1%} remote")  # fmt: skip
    print("query / door: seconds (lowest to highest), million records/s, CPU seconds of the JVM, "
          "its Python processes and the broker, MB of a worker")  # fmt: skip
    for query, door in dict.fromkeys((each["query"], each["door"]) for each in figures):
        taken = [each for each in figures if (each["query"], each["door"]) == (query, door)]
        times = sorted(each["seconds"] for each in taken)
        middle = statistics.median(times)
        jvm, workers, cpu = (
            statistics.median([each[name] for each in taken])
            for name in ("jvm_cpu", "worker_cpu", "broker_cpu")
        )
        memory = max(each["worker_mb"] for each in taken)
        print(
            f"{query:6} {door:8} {middle:6.2f} ({times[0]:.2f} to {times[-1]:.2f}) "
            f"{topic['records'] / middle / 1e6:6.2f} {jvm:7.2f} {workers:7.2f} {cpu:7.3f} "
            f"{memory:5.0f}"
        )


def run(folder: Path, given: Any) -> None:
    """Prepare the topic unless it is in the folder already, measure, and print a table."""
    with ExitStack() as stack:
        tiered, properties = str(folder / "tier"), list(given.set)
        if given.s3:
            tiered = f"s3://{BUCKET}/tier"
            properties += stack.enter_context(s3_server(folder / "s3"))
        servers, process_id = stack.enter_context(broker(folder, tiered, properties))
        described = folder / "topic.json"
        if not described.exists():
            topic = fill(servers, given.megabytes, given.segment_megabytes << 20)
            described.write_text(json.dumps(topic))
        topic = json.loads(described.read_text())
        kept = folder / "figures.json"
        figures = json.loads(kept.read_text()) if kept.exists() else []
        if given.rounds:
            figures += measure(folder, servers, process_id, topic, given)
            kept.write_text(json.dumps(figures))
        show(topic, figures)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="of values (500)")
    parser.add_argument("--segment-megabytes", type=int, default=16, help="(16)")
    parser.add_argument("--rounds", type=int, default=3, help="(3); 0 prepares the topic only")
    parser.add_argument("--s3", action="store_true", help="a tier on an S3 server (needs Go)")
    parser.add_argument("--folder", type=Path, help="keeps the topic and all figures for more runs")
    names = list(queries(Path()))
    parser.add_argument("--queries", nargs="+", choices=names, default=names)
    doors = [*DOORS, *FLOORS]
    parser.add_argument("--doors", nargs="+", choices=doors, default=list(DOORS))
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker")
    given = parser.parse_args()
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
        run(given.folder, given)
        return
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-history-") as name:
        run(Path(name), given)


if __name__ == "__main__":
    main()
