"""What thousands of partitions cost one broker: `python -m tidelog_bench.bench_partitions`.

One CreateTopics of all partitions, an orderly stop, and a start from exec until the broker answers.
Prints one JSON object: seconds on the clock and of the broker's CPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from tidelog.embedded.simple_client import SimpleClient
from tidelog_bench.peers.tidelog import Tidelog
from tidelog_protocol.messages.admin import CreateTopicsRequest

WAIT_S_MAX = 300.0
CASES = {f"{count} partitions": count for count in (1000, 5000)}


def measure(partitions: int, folder: Path) -> dict[str, float]:
    """One broker's two lives."""
    broker = Tidelog(folder)
    broker.prepare()
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=partitions, replication_factor=1
    )
    try:
        broker.start()
        before, began = broker.cpu_seconds(), time.perf_counter()
        with SimpleClient(broker.bootstrap, timeout_s=WAIT_S_MAX) as client:
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]
        created, spent = time.perf_counter() - began, broker.cpu_seconds() - before
        if answer.error_code:
            raise RuntimeError(f"the topic was not created: {answer.error_message}")
        began = time.perf_counter()
        broker.end()
        stopped = time.perf_counter() - began
        started = broker.start()
        figures = {
            "create s": created,
            "create CPU s": spent,
            "stop s": stopped,
            "start s": started,
            "start CPU s": broker.cpu_seconds(),
        }
        return {name: round(seconds, 2) for name, seconds in figures.items()}
    finally:
        broker.remove()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--data", type=Path, help="folder for the broker's data (temporary)")
    options = parser.parse_args()
    results = {}
    for name, partitions in CASES.items():
        if options.only in name:
            with tempfile.TemporaryDirectory(dir=options.data) as folder:
                results[name] = measure(partitions, Path(folder) / "broker")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
