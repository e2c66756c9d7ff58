"""Small Spark queries on demand: one JSON request a line in, one JSON answer a line out.

A program beside the package, started by `tidelog_bench.spark_case`: it needs the `spark` extra, and
the packages of bench and pipeline do not import each other.
"""

from __future__ import annotations

import json
import os
import sys
import time

from tidelog_pipeline.spark import session


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is not an answer
    spark = session("tidelog-bench")
    for line in sys.stdin:
        request = json.loads(line)
        reader = spark.read.format("kafka").option("subscribe", request["topic"])
        reader = reader.option("kafka.bootstrap.servers", request["bootstrap"])
        seconds = []
        for _ in range(request["queries"]):
            started = time.perf_counter()
            records = reader.load().count()
            seconds.append(time.perf_counter() - started)
            assert records == request["records"], f"{records} records were counted"
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
