"""Spark's Kafka connector: resolved once by Spark's own resolver, then taken from the cache.

Spark's resolver (Ivy) knows the public repository and honours the user's Ivy settings, so no host
is named here. Later sessions get the cached files as `spark.jars` and skip the resolver (1.6 s).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tidelog_pipeline.java import cache_dir

SCALA_VERSION = "2.13"
RESOLVE_SECONDS_MAX = 300


class ConnectorMissingError(RuntimeError):
    """The connector's jars could not be had; the message says what was tried and what to do."""


def connector_versions(spark_version: str) -> list[str]:
    """Connector releases to try for a Spark release, best first.

    Later patches of a line lack a dependency on some mirrors (the token provider), and the line's
    first release works with all of them.
    """
    major, minor = spark_version.split(".")[:2]
    return list(dict.fromkeys([f"{major}.{minor}.0", spark_version]))


def connector_jars(spark_version: str, java_home: str | None) -> list[str]:
    """Paths of the connector and its dependencies, downloaded (about 60 MB) the first time.

    Raises:
        ConnectorMissingError: no version of it could be resolved.
    """
    cache = cache_dir() / "spark" / spark_version
    listing = cache / "connector.json"
    if listing.exists():
        jars: list[str] = json.loads(listing.read_text())
        if all(Path(jar).exists() for jar in jars):
            return jars
    cache.mkdir(parents=True, exist_ok=True)
    tried = []
    for version in connector_versions(spark_version):
        coordinate = f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{version}"
        print(
            f"Downloading Spark's Kafka connector {coordinate} to {cache} (once) ...",
            file=sys.stderr,
        )
        output = _resolve(coordinate, cache / version, java_home)
        jars = sorted(str(jar) for jar in (cache / version / "jars").glob("*.jar"))
        if output is None and jars:
            fresh = listing.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(jars))
            fresh.replace(listing)
            return jars
        tried.append(f"{coordinate}: {output or 'no jars came'}")
    message = (
        "Spark's Kafka connector could not be downloaded:\n  " + "\n  ".join(tried) + "\n"
        "It comes from Maven Central through Spark's resolver. Offline, or behind a mirror: put an "
        "ivysettings.xml in spark.jars.ivySettings, or give the jars: settings={'spark.jars': ...}"
    )
    raise ConnectorMissingError(message)


def _resolve(coordinate: str, ivy: Path, java_home: str | None) -> str | None:
    """Let Spark's resolver fetch `coordinate` into `ivy/jars`; returns why it failed, or None."""
    import pyspark  # noqa: PLC0415  # an extra, and large

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with tempfile.TemporaryDirectory(prefix="tidelog-resolve-") as scratch:
        nothing = Path(scratch) / "nothing.py"
        nothing.write_text("")
        environment = dict(os.environ)
        environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # The resolver also looks into ~/.m2, and POMs there without their jars make it fail.
        environment["SPARK_SUBMIT_OPTS"] = f"-Duser.home={scratch}"
        if java_home:
            environment["JAVA_HOME"] = java_home
        command = [str(submit), "--packages", coordinate, "--conf", f"spark.jars.ivy={ivy}"]
        try:
            done = subprocess.run(
                [*command, "--conf", "spark.ui.enabled=false", str(nothing)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=RESOLVE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {RESOLVE_SECONDS_MAX} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if "rror" in line or "not found" in line]
    return (lines or done.stderr.splitlines() or ["spark-submit failed"])[-1].strip()
