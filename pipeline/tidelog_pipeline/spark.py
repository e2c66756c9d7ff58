"""A SparkSession that can read and write Kafka topics, set up in one call."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from tidelog_pipeline.jars import connector_jars
from tidelog_pipeline.java import find_java_home

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# What a local session on loopback needs; each can be overridden by `settings`.
_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


class SparkMissingError(RuntimeError):
    """PySpark is not installed; the message says how to get it."""


def session(
    app_name: str = "tidelog",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with Spark's standard Kafka source and sink, the source of the tier's history
    (`format("tidelog")`), and Java found for it.

    The connector's jars are downloaded at the first call (about 60 MB) and cached under
    `$XDG_CACHE_HOME/tidelog`; give `spark.jars` in `settings` to bring your own.

    Raises:
        SparkMissingError: PySpark is not installed.
        JavaMissingError: no Java that Spark runs on (17 to 23).
        ConnectorMissingError: the jars could not be downloaded.
    """
    if importlib.util.find_spec("pyspark") is None:
        message = "PySpark is not installed; run: pip install 'tidelog[spark]'"
        raise SparkMissingError(message)
    import pyspark  # noqa: PLC0415  # an extra, and large
    from pyspark.sql import SparkSession  # noqa: PLC0415

    java_home = find_java_home()
    if java_home:
        os.environ["JAVA_HOME"] = java_home
    # Otherwise workers take whatever python3 comes first on PATH.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    chosen = {**_DEFAULTS, **(settings or {})}
    if "spark.jars" not in chosen:
        chosen["spark.jars"] = ",".join(connector_jars(pyspark.__version__, java_home))
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    from tidelog_pipeline.source import TidelogDataSource  # noqa: PLC0415 - needs PySpark

    spark.dataSource.register(TidelogDataSource)
    return spark
