"""A SparkSession that can read and write Kafka topics, set up in one call."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog_pipeline import jars
from tidelog_pipeline.gateway import JvmError, start_jvm
from tidelog_pipeline.java import find_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

# What a session needs; each can be overridden by `settings`.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Spark's own INT96 is deprecated: files of it have no least and greatest timestamp.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# Without it Spark's start prints what it takes for its log.
_LOG = Path(__file__).with_name("log4j2.properties")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXTENSIONS, _JARS, _PACKAGES = "spark.sql.extensions", "spark.jars", "spark.jars.packages"
_OF_DELTA = {
    _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "4",  # not 50: an export has few files
}
_ON_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


_EXTRA = ("pyspark", "pyarrow", "numpy")
# SparkMasterRegex, and what SparkSubmit takes.
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)( *, *[1-9]\d*)?\])?|local-cluster\[( *\d+ *,){2} *\d+ *\]"
    r"|spark://[^/,\s]+:\d+(,[^/,\s]+:\d+)*|yarn|k8s://\S+"
)


class SparkMissingError(RuntimeError):
    """PySpark or what it needs is not installed or too old; the message says how to get it."""


class SparkStartError(RuntimeError):
    """Spark does not start with this master and these settings; the message is one line."""


def missing_packages() -> list[str]:
    """What the extra `spark` brings and is not installed."""
    return [name for name in _EXTRA if importlib.util.find_spec(name) is None]


def check_version(version: str) -> None:
    """SparkMissingError if this release of Spark has no Python data sources that stream."""
    if int(version.partition(".")[0]) < 4:
        raise SparkMissingError(
            f"format('tidelog') needs Spark 4.0, whose Python data sources can stream; PySpark "
            f"{version} is installed; run: pip install 'tidelog[spark]'"
        )


def check_master(master: str) -> None:
    """SparkStartError for what is no master: Spark itself prints a trace of Java's."""
    if _MASTER.fullmatch(master) is None:
        raise SparkStartError(
            f"{master!r} is no master of Spark such as local[2], spark://HOST:7077, yarn or "
            "k8s://https://HOST:443"
        )


def session(
    app_name: str = "tidelog",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    with_connector: bool = True,
    table_format: str = "parquet",
) -> SparkSession:
    """A session with Spark's standard Kafka source and sink, the source of the tier's history
    (`format("tidelog")`), and Java found for it.

    The connector's jars are downloaded at the first call (about 60 MB) and cached under
    `$XDG_CACHE_HOME/tidelog`; so are those of a `table_format`, `delta` or `iceberg`. Give
    `spark.jars` in `settings` to bring your own. Without both there is `format("tidelog")` alone,
    and nothing is downloaded. A `master` that is not local keeps Spark's own addresses, and the
    Python that its settings name for the workers.

    Raises:
        SparkMissingError: PySpark is not installed, or is older than 4.0.
        SparkStartError: Spark does not start with this master and these settings.
        JavaMissingError: no Java that Spark runs on (17 to 23).
        JarsMissingError: the jars could not be downloaded.
    """
    missing = missing_packages()
    if missing:
        names = " and ".join(missing)
        message = f"{names} not installed; run: pip install 'tidelog[spark]'"
        raise SparkMissingError(message)
    import pyspark  # noqa: PLC0415  # an extra, and large
    from pyspark.sql import SparkSession  # noqa: PLC0415

    check_version(pyspark.__version__)
    master = (settings or {}).get("spark.master", master)
    check_master(master)
    java_home = find_java_home()
    if java_home:
        os.environ["JAVA_HOME"] = java_home
    is_local = master.startswith("local")
    # Otherwise workers take whatever python3 comes first on PATH.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = {
        **_DEFAULTS,
        **(_ON_LOOPBACK if is_local else {}),
        **_with_format(table_format, settings or {}),
    }
    if "log4j" not in chosen.get(_DRIVER_OPTIONS, ""):
        log = f'"-Dlog4j2.configurationFile={_LOG.as_uri()}"'
        chosen[_DRIVER_OPTIONS] = f"{log} {chosen.get(_DRIVER_OPTIONS, '')}".strip()
    libraries = []
    if with_connector and _JARS not in chosen:
        libraries.append(jars.connector(pyspark.__version__))
    if table_format != "parquet":
        libraries.append(jars.TABLES[table_format](pyspark.__version__))
    _add_jars(chosen, libraries, pyspark.__version__, java_home)
    chosen = {"spark.app.name": app_name, "spark.master": master, **chosen}
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _one_line(master):
        start_jvm(chosen)
        return _started(builder)


@contextmanager
def _one_line(master: str) -> Iterator[None]:
    """Errors of Spark's start become one line."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with PySpark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JError, JvmError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        is_javas = len(lines) > 1 and lines[0].startswith("An error occurred while calling")
        why = lines[is_javas].removeprefix(": ") if lines else type(error).__name__
        raise SparkStartError(f"Spark does not start with master {master!r}: {why}") from error


def _started(builder: Any) -> SparkSession:
    """The session, with the source."""
    started: SparkSession = builder.getOrCreate()
    register: Any = started.dataSource.register  # settings of SQL are read here
    from tidelog_pipeline.source import TidelogDataSource  # noqa: PLC0415 - needs PySpark

    register(TidelogDataSource)
    return started


def _add_jars(
    chosen: dict[str, str],
    libraries: Sequence[jars.Library],
    version: str,
    java_home: str | None,
) -> None:
    """Add the libraries' jars to the settings, without what they name already."""
    given = f"{chosen.get(_JARS, '')} {chosen.get(_PACKAGES, '')}"
    found = [chosen[_JARS]] if _JARS in chosen else []
    for library in libraries:
        if library.artifact not in given:
            found += jars.jars_of(library, version, java_home, chosen)
    if found:
        chosen[_JARS] = ",".join(found)


def _with_format(table_format: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The user's settings over those of a format; extensions of both count."""
    if table_format != "delta":
        return dict(settings)
    found = {**_OF_DELTA, **settings}
    if _EXTENSIONS in settings:
        found[_EXTENSIONS] = f"{_OF_DELTA[_EXTENSIONS]},{settings[_EXTENSIONS]}"
    return found
