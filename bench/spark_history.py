"""Spark over a tiered topic by both doors: `python bench/spark_history.py [--megabytes 500]`.

A broker process, a topic of which nearly all is in the tier (a directory, or S3 by
`--tiered s3://...`), and one Spark session. Each query runs through Spark's Kafka source (its
defaults, then tuned) and through `format("tidelog")`, in turns; the table has the middle of the
rounds. A program beside the package: it needs the `spark` extra.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from tidelog.embedded.simple_client import create_topic
from tidelog.embedded.tier_view import TierViewer
from tidelog_pipeline.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "history"
PARTITIONS = 4
VALUE_BYTES = 200
KEYS = 1000
TUNED = {
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
}
DOORS: dict[str, tuple[str, dict[str, str]]] = {
    "kafka": ("kafka", {}),
    "kafka, tuned": ("kafka", TUNED),
    "tidelog": ("tidelog", {}),
}
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def broker(folder: Path, tiered: str | None, properties: list[str]) -> Iterator[tuple[str, int]]:
    """A broker over a tier; its address and process id."""
    command = [sys.executable, "-m", "tidelog", "serve", "--port", "0", "--until-stdin-ends"]
    command += ["--data-dir", str(folder / "data"), "--tiered", tiered or str(folder / "tier")]
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


def cpu_seconds(process_id: int) -> float:
    """Processor time a process has used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def fill(servers: str, megabytes: int, segment_bytes: int) -> int:
    """Write the topic; return its records, once only active segments are local."""
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
    assert producer.flush(120) == 0
    end = time.perf_counter() + 120
    with TierViewer(servers) as viewer:
        while any(view.local_bytes > segment_bytes for view in viewer.look(TOPIC)):
            assert time.perf_counter() < end, "the tier did not take all segments"
            time.sleep(0.5)
        views = viewer.look(TOPIC)
    local = sum(view.local_bytes for view in views)
    remote = sum(segment.size for view in views for segment in view.remote)
    print(f"{records:,} records, {(local + remote) / 1e6:,.0f} MB, "
          f"{remote / (local + remote):.0%} remote")  # fmt: skip
    return records


def queries(folder: Path) -> dict[str, Any]:
    """By name: the columns that are needed, and what is done with the rows."""

    def scan(frame: Any) -> int:
        target = folder / "parquet"
        shutil.rmtree(target, ignore_errors=True)
        frame.select("key", "value", "offset", "timestamp").write.parquet(str(target))
        return -1

    return {
        "count": ("offset bigint", lambda frame: frame.count()),
        "group by key": (
            "key binary",
            lambda frame: sum(row["count"] for row in frame.groupBy("key").count().collect()),
        ),
        "scan to Parquet": (None, scan),
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--segment-megabytes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiered", help="s3://BUCKET/PREFIX instead of a directory")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-spark-history-") as name:
        folder = Path(name)
        with broker(folder, given.tiered, given.set) as (servers, process_id):
            records = fill(servers, given.megabytes, given.segment_megabytes << 20)
            measure(folder, servers, process_id, records, given.rounds)


def measure(folder: Path, servers: str, process_id: int, records: int, rounds: int) -> None:
    """Each query through each door, in turns; the first round warms up."""
    spark = session("tidelog-history-bench")
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for turn in range(rounds + 1):
        for query, (schema, run) in queries(folder).items():
            for door, (source, options) in DOORS.items():
                reader = spark.read.format(source).option("kafka.bootstrap.servers", servers)
                if source == "tidelog" and schema is not None:
                    reader = reader.schema(schema)
                frame = reader.option("subscribe", TOPIC).options(**options).load()
                before, started = cpu_seconds(process_id), time.perf_counter()
                counted = run(frame)
                seconds = time.perf_counter() - started
                assert counted in (records, -1), f"{query} by {door}: {counted:,} records"
                if turn:
                    used = cpu_seconds(process_id) - before
                    found.setdefault((query, door), []).append((seconds, used))
    spark.stop()
    print("query / door: seconds (lowest to highest), million records/s, broker CPU s")
    for (query, door), taken in found.items():
        times = sorted(seconds for seconds, _ in taken)
        middle = statistics.median(times)
        used = statistics.median([used for _, used in taken])
        print(
            f"{query:16} {door:13} {middle:6.2f} ({times[0]:.2f} to {times[-1]:.2f}) "
            f"{records / middle / 1e6:5.2f} {used:6.2f}"
        )


if __name__ == "__main__":
    main()
