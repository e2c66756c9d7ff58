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

# What a session needs; each can be overridden by `settings`.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
_ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


_EXTRA = ("pyspark", "pyarrow", "numpy")


class SparkMissingError(RuntimeError):
    """PySpark or what it needs is not installed; the message says how to get it."""


def missing_packages() -> list[str]:
    """What the extra `spark` brings and is not installed."""
    return [name for name in _EXTRA if importlib.util.find_spec(name) is None]


def session(
    app_name: str = "tidelog",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    with_connector: bool = True,
) -> SparkSession:
    """A session with Spark's standard Kafka source and sink, the source of the tier's history
    (`format("tidelog")`), and Java found for it.

    The connector's jars are downloaded at the first call (about 60 MB) and cached under
    `$XDG_CACHE_HOME/tidelog`; give `spark.jars` in `settings` to bring your own. Without the
    connector there is `format("tidelog")` alone, and nothing is downloaded. A `master` that is not
    local keeps Spark's own addresses, and the Python that its settings name for the workers.

    Raises:
        SparkMissingError: PySpark is not installed.
        JavaMissingError: no Java that Spark runs on (17 to 23).
        ConnectorMissingError: the jars could not be downloaded.
    """
    missing = missing_packages()
    if missing:
        names = " and ".join(missing)
        message = f"{names} not installed; run: pip install 'tidelog[spark]'"
        raise SparkMissingError(message)
    import pyspark  # noqa: PLC0415  # an extra, and large
    from pyspark.sql import SparkSession  # noqa: PLC0415

    java_home = find_java_home()
    if java_home:
        os.environ["JAVA_HOME"] = java_home
    is_local = master.startswith("local")
    # Otherwise workers take whatever python3 comes first on PATH.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = {**_DEFAULTS, **(_ON_LOOPBACK if is_local else {}), **(settings or {})}
    if with_connector and "spark.jars" not in chosen:
        chosen["spark.jars"] = ",".join(connector_jars(pyspark.__version__, java_home))
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    from tidelog_pipeline.source import TidelogDataSource  # noqa: PLC0415 - needs PySpark

    spark.dataSource.register(TidelogDataSource)
    return spark
