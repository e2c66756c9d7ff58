"""What a test run pays for its brokers: `python -m tidelog_bench.bench_test_runs`.

- `--starts N`: N clusters start and stop in this process, every fourth with three brokers: how
  many failed, what they left (descriptors, threads, folders), and how long one took.
- `--resets N`: three brokers are filled with topics, records, groups, an open transaction and
  faults, and given back as new by `reset()`, N times: how long that took, and the brokers' CPU.

Prints one JSON object; times are in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from confluent_kafka import Consumer, Producer, TopicPartition

import tidelog
from tidelog.testing.records import produce
from tidelog_bench.peers.process import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["measure_resets", "measure_starts"]

TOPICS = 20
GROUPS = 3
FAULTS = 3
PARTITIONS = 3
TIMEOUT_S = 30
SHOWN_MAX = 5
WARM_UP = 4


def measure_starts(count: int) -> dict[str, Any]:
    """Start and stop so many clusters, after a few that are not counted."""
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-starts-") as folder,
        mock.patch.dict(os.environ, TMPDIR=folder),
    ):
        _starts(WARM_UP)
        was = _held()
        times, failures = _starts(count)
        now = _held()
        folders = os.listdir(folder)
    return {
        "starts": count,
        "failures": len(failures),
        "first failures": failures[:SHOWN_MAX],
        **{f"{name} left": now[name] - was[name] for name in was},
        "folders left": len(folders),
        **_figures(times),
    }


def _starts(count: int) -> tuple[list[float], list[str]]:
    times, failures = [], []
    for number in range(count):
        began = time.perf_counter()
        try:
            asyncio.run(_start_and_stop(3 if number % 4 == 3 else 1))
        except (tidelog.TidelogError, OSError) as error:
            failures.append(str(error))
        else:
            times.append(1000 * (time.perf_counter() - began))
    return times, failures


async def _start_and_stop(brokers: int) -> None:
    async with tidelog.Cluster(brokers=brokers) as cluster:
        assert len(cluster.bootstrap_servers.split(",")) == brokers


def _held() -> dict[str, int]:
    """What this process holds."""
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}


def measure_resets(count: int) -> dict[str, Any]:
    """Fill three brokers and reset them, so many times."""
    times, spent = [], []
    with tidelog.run(brokers=3) as cluster:
        for number in range(count + 1):
            producer = _fill(cluster)
            before, began = cpu_seconds(cluster.pid), time.perf_counter()
            cluster.reset()
            if number:  # the first one loads modules
                times.append(1000 * (time.perf_counter() - began))
                spent.append(1000 * (cpu_seconds(cluster.pid) - before))
            assert cluster.state().topics == ()
            del producer  # its transaction was open
    of = {"topics": TOPICS, "partitions": TOPICS * PARTITIONS, "groups": GROUPS, "faults": FAULTS}
    return {"resets": count, "of": of, **_figures(times), "CPU": _figures(spent)}


def _fill(cluster: tidelog.RunningCluster) -> Any:
    """Return the producer whose transaction is open."""
    servers = cluster.bootstrap_servers
    names = [f"topic-{number}" for number in range(TOPICS)]
    for name in names:
        cluster.create_topic(name, partitions=PARTITIONS)
        produce(servers, name, [b"1", b"2"])
    for number in range(GROUPS):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": f"group-{number}"})
        offsets = [
            TopicPartition(name, partition, 1) for name in names for partition in range(PARTITIONS)
        ]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
    for name in names[:FAULTS]:
        cluster.faults.on("ListOffsets", topic=name).error("UNKNOWN_SERVER_ERROR")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "open"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(names[0], b"open")
    producer.flush(TIMEOUT_S)
    return producer


def _figures(times: Sequence[float]) -> dict[str, float]:
    if not times:
        return {}
    middle, worst = statistics.median(times), max(times)
    return {"median ms": round(middle, 1), "worst ms": round(worst, 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=1000, help="0: none")
    parser.add_argument("--resets", type=int, default=20, help="0: none")
    options = parser.parse_args()
    results = {}
    if options.starts:
        results["starts"] = measure_starts(options.starts)
    if options.resets:
        results["resets"] = measure_resets(options.resets)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
