"""Jars that Spark lacks (its Kafka connector, Delta, Iceberg): resolved once by Spark's own
resolver, then taken from the cache.

Spark's resolver (Ivy) knows the public repository and honours the user's Ivy settings, so no host
is named here. Later sessions get the cached files as `spark.jars` and skip the resolver (1.6 s).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_pipeline.java import cache_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALA_VERSION = "2.13"
RESOLVE_SECONDS_MAX = 300
_OF_RESOLVER = ("spark.jars.ivySettings", "spark.jars.repositories")

# The releases that write tables with Spark 4.0, best first.
_DELTA_VERSIONS = ("4.0.1", "4.0.0")
_ICEBERG_VERSIONS = ("1.10.1", "1.10.0")


class JarsMissingError(RuntimeError):
    """Jars could not be had; the message says what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Library:
    """Jars that are resolved together, from the first of their releases that can be had."""

    key: str  # of its files in the cache
    title: str
    group: str
    artifact: str
    versions: tuple[str, ...]  # best first


def connector_versions(spark_version: str) -> list[str]:
    """Connector releases to try for a Spark release, best first.

    Later patches of a line lack a dependency on some mirrors (the token provider), and the line's
    first release works with all of them.
    """
    return list(dict.fromkeys([f"{_line(spark_version)}.0", spark_version]))


def connector(spark_version: str) -> Library:
    """Spark's Kafka source and sink, about 60 MB."""
    return Library(
        "connector",
        "Spark's Kafka connector",
        "org.apache.spark",
        f"spark-sql-kafka-0-10_{SCALA_VERSION}",
        tuple(connector_versions(spark_version)),
    )


def _delta(spark_version: str) -> Library:
    """About 8 MB. A release of it works with one line of Spark."""
    line = _line(spark_version)
    versions = _DELTA_VERSIONS if line == "4.0" else (f"{line}.0",)
    return Library("delta", "Delta", "io.delta", f"delta-spark_{SCALA_VERSION}", versions)


def _iceberg(spark_version: str) -> Library:
    """About 47 MB."""
    artifact = f"iceberg-spark-runtime-{_line(spark_version)}_{SCALA_VERSION}"
    return Library("iceberg", "Iceberg", "org.apache.iceberg", artifact, _ICEBERG_VERSIONS)


TABLES = {"delta": _delta, "iceberg": _iceberg}
"""The library of a table format, for a version of Spark."""


def _line(spark_version: str) -> str:
    return ".".join(spark_version.split(".")[:2])


def jars_of(
    library: Library,
    spark_version: str,
    java_home: str | None,
    settings: Mapping[str, str] | None = None,
) -> list[str]:
    """Paths of a library's jars and their dependencies, downloaded the first time. Of `settings`
    the resolver's own count.

    Raises:
        JarsMissingError: no release of it could be resolved.
    """
    cache = cache_dir() / "spark" / spark_version
    listing = cache / f"{library.key}.json"
    if listing.exists():
        jars: list[str] = json.loads(listing.read_text())
        if all(Path(jar).exists() for jar in jars):
            return jars
    cache.mkdir(parents=True, exist_ok=True)
    tried = []
    for version in library.versions:
        coordinate = f"{library.group}:{library.artifact}:{version}"
        print(f"Downloading {library.title} {coordinate} to {cache} (once) ...", file=sys.stderr)
        ivy = cache / f"{library.key}-{version}"
        output = _resolve(coordinate, ivy, java_home, settings or {})
        jars = sorted(str(jar) for jar in (ivy / "jars").glob("*.jar"))
        if output is None and jars:
            fresh = listing.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(jars))
            fresh.replace(listing)
            return jars
        tried.append(f"{coordinate} ({output or 'no jars came'})")
    raise JarsMissingError(
        f"{library.title} could not be downloaded: {'; '.join(tried)}. It comes from Maven Central "
        "through Spark's resolver. Offline, or behind a mirror: name an ivysettings.xml in the "
        "setting spark.jars.ivySettings, or the jars themselves in spark.jars"
    )


def _resolve(
    coordinate: str, ivy: Path, java_home: str | None, settings: Mapping[str, str]
) -> str | None:
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
        for name in _OF_RESOLVER:
            if name in settings:
                command += ["--conf", f"{name}={settings[name]}"]
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
